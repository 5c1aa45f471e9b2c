"""Connections that keep to no rule but the form of frames."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from dledger.config import Tls
from dledger.net.address import split_address
from dledger.net.connections.tls import client_context
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_version import SUPPORTED
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    PeerMessage,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.protocol.wire import FrameLimits, FrameReader, Message, decode, encode
from dledger.release import RELEASE
from dledger.types import Index, NodeId, Position, Term

WIRE_MAX = (1 << 63) - 1


def dial(address: str, tls: Tls | None = None) -> socket.socket:
    """A connection, under TLS with a certificate of the group's authority or plain."""
    host, port = split_address(address)
    sock = socket.create_connection((host, port), 10)
    context = client_context(tls)
    return sock if context is None else context.wrap_socket(sock, server_hostname=host)


def hello(group: str, node_id: str = "", members: tuple[str, ...] = ()) -> bytes:
    """The first frame, of a client or of one that says that it is a node."""
    words = HelloRequest(
        group=group,
        node_id=node_id,
        release=RELEASE,
        members=members,
        nonce=os.urandom(16),
        versions=SUPPORTED,  # else it would be refused for that
    )
    return b"".join(encode(words, 1))


def framed(messages: Iterable[Message]) -> bytes:
    """Their frames, from request 2 on: the hello is the first one."""
    return b"".join(
        piece for number, message in enumerate(messages, 2) for piece in encode(message, number)
    )


class Answers:
    """The answers of a node to a hello and to a proof."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader(FrameLimits())

    def next(self) -> HelloResponse | None:
        """The next one; None when the connection has ended, or something else has come."""
        try:
            while data := self._sock.recv(65536):
                for frame in self._reader.feed(data):
                    answer = decode(frame.kind, frame.header, frame.payload)
                    return answer if isinstance(answer, HelloResponse) else None
        except OSError:
            return None
        return None


def is_welcome(answer: HelloResponse | None) -> bool:
    """Whether the node takes the connection, without any further proof."""
    return answer is not None and answer.code is Code.SUCCESS and not answer.proof_wanted


def lies(
    dice: random.Random, group: str, me: NodeId, to: NodeId, count: int
) -> Iterator[PeerMessage]:
    """Well-formed messages of a node that makes up all that it says."""
    for _ in range(count):
        term = Term(
            dice.choice((0, 1, 2, 3, 5, 50, 1 << 20, 1 << 40, 1 << 61, WIRE_MAX - 1, WIRE_MAX))
        )
        index = Index(dice.choice((-1, 0, 1, 5, 100, 1 << 40)))
        push_type, flag = dice.choice(list(PushType)), dice.random() < 0.5
        place = Position(term, index)
        head: dict[str, Any] = {"group": group, "local_id": me, "remote_id": to, "term": term}
        yield dice.choice(
            (
                VoteRequest(
                    **head,
                    ledger_end=place,
                    pre_vote=flag,
                    transfer=not flag,
                    incarnation=dice.randrange(1 << 62),
                ),
                VoteResponse(
                    **head,
                    request_term=term,
                    result=dice.choice(list(VoteResult)),
                    pre_vote=flag,
                ),
                HeartBeatRequest(**head, leader_id=me, round=1),
                HeartBeatResponse(**head, code=Code.SUCCESS, round=1, durable_index=index),
                PushEntryRequest(
                    **head, leader_id=me, type=push_type, previous=place, commit_index=index
                ),
                PushEntryResponse(
                    **head,
                    type=push_type,
                    code=Code.SUCCESS,
                    index=index,
                    begin_index=index,
                    end_index=index,
                ),
                LeadershipTransferRequest(**head, take_leadership_index=index),
            )
        )
