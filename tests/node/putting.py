"""Messages put into a group that keeps a RocketMQ commit log, and asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    PutMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.rocketmq.columns.commit_log import Wanted
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.ranges import plan_store, read_range
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.message import Message, decode_message, encode_message


def message(
    number: int, topic: str = "orders", queue_id: int = 0, *, size: int = 0, **fields: Any
) -> Message:
    """``body NUMBER``, filled up with dots, under keys of its own and one that all have."""
    text = f"KEYS\x01k{number} all\x02TAGS\x01t{number % 3}\x02UNIQ_KEY\x01u{number}"
    body = f"body {number}".encode().ljust(size, b".")
    return Message(topic, body, fields.pop("properties", text), queue_id, **fields)


def number_of(body: bytes) -> int:
    return int(body.rstrip(b".").split()[1])


async def ask_to_put(client: Any, *messages: Message) -> Any:
    """The answer, whatever it is."""
    return await client.ask(
        PutMessageRequest(timeout_ms=20_000), b"".join(map(encode_message, messages))
    )


async def put(client: Any, *messages: Message) -> Any:
    answer = await ask_to_put(client, *messages)
    assert answer.code is Code.SUCCESS, answer
    return answer


async def get(
    client: Any,
    at: int,
    topic: str = "orders",
    queue_id: int = 0,
    *,
    code: Code = Code.SUCCESS,
    **fields: Any,
) -> tuple[Any, list[Message]]:
    """The answer, which has this code, and the messages from a queue offset on."""
    request = GetMessageRequest(topic=topic, queue_id=queue_id, queue_offset=at, **fields)
    answer, payload = await client.start(request)
    assert answer.code is code, answer
    return answer, split(payload)


async def view(client: Any, place: int, **fields: Any) -> Message | Code:
    """The message that lies there, or why it is not shown."""
    answer, payload = await client.start(ViewMessageRequest(physical_offset=place, **fields))
    if answer.code is Code.SUCCESS:
        return decode_message(payload)
    assert not payload
    code: Code = answer.code
    return code


async def query(client: Any, key: str, topic: str = "orders", **fields: Any) -> list[Message]:
    """The messages with a key."""
    answer, payload = await client.start(QueryMessageRequest(topic=topic, key=key, **fields))
    assert answer.code is Code.SUCCESS, answer
    return split(payload)


def split(payload: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(payload):
        found.append(decode_message(payload, at))
        at += int.from_bytes(payload[at : at + 4], "big")
    return found


def reput_of(node: Any) -> Any:
    return node.parts.application.reput


async def dispatched(group: Any) -> None:
    """Wait until every node has put into its queues all that is committed."""
    await group.agree()
    end = (await group.leader()).raft.end_index
    await group.until(lambda: {reput_of(n).dispatched_index for n in group.nodes.values()} == {end})


def rows_of(root: Path) -> list[dict[str, Any]]:
    """The messages of a store that no program has open; none is damaged."""
    store = open_store(Storage.of(str(root)), "rocketmq")
    plan = plan_store(store)
    assert not plan.faults
    rows: list[dict[str, Any]] = []
    for one in plan.ranges:
        for batch in read_range(store.storage, store.layout, one, None, Wanted()):
            assert not batch.damage
            rows += batch.rows.to_pylist() if batch.rows else []
    return rows
