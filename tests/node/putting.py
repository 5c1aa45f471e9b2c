"""Messages put into a group that keeps a RocketMQ commit log, and taken out of an answer."""

from __future__ import annotations

from typing import Any

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import PutMessageRequest
from dledger.rocketmq.format.message import Message, decode_message, encode_message


async def put(client: Any, *messages: Message) -> Any:
    answer = await client.ask(
        PutMessageRequest(timeout_ms=20_000), b"".join(map(encode_message, messages))
    )
    assert answer.code is Code.SUCCESS, answer
    return answer


def split(payload: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(payload):
        found.append(decode_message(payload, at))
        at += int.from_bytes(payload[at : at + 4], "big")
    return found
