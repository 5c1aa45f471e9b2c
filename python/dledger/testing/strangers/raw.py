"""Connections that keep to no rule but the form of frames."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

from dledger.messages.codes import Code
from dledger.messages.hello import HelloRequest, HelloResponse
from dledger.messages.peer import (
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
from dledger.net.address import split_address
from dledger.release import RELEASE
from dledger.types import Index, NodeId, Position, Term
from dledger.wire import FrameReader, Limits, decode, encode

WIRE_MAX = (1 << 63) - 1


def dial(address: str) -> socket.socket:
    """A plain connection."""
    return socket.create_connection(split_address(address), 10)


def hello(group: str, node_id: str = "", members: tuple[str, ...] = ()) -> bytes:
    """The first frame, of a client or of one that says that it is a node."""
    words = HelloRequest(group=group, node_id=node_id, release=RELEASE, members=members, nonce=os.urandom(16))
    return b"".join(encode(words, 1))


def is_welcome(sock: socket.socket) -> bool:
    """Whether the node's first answer takes the connection without any proof."""
    reader = FrameReader(Limits())
    while data := sock.recv(65536):
        for frame in reader.feed(data):
            answer = decode(frame.kind, frame.header, frame.payload)
            return isinstance(answer, HelloResponse) and answer.code is Code.SUCCESS and not answer.proof_wanted
    return False


def lies(dice: random.Random, group: str, me: NodeId, to: NodeId, count: int) -> Iterator[PeerMessage]:
    """Well-formed messages of a node that makes up all that it says."""
    for _ in range(count):
        term = Term(dice.choice((0, 1, 2, 3, 5, 50, 1 << 20, 1 << 40, 1 << 61, WIRE_MAX - 1, WIRE_MAX)))
        index = Index(dice.choice((-1, 0, 1, 5, 100, 1 << 40)))
        place, kind = Position(term, index), dice.choice(list(PushType))
        flag = dice.random() < 0.5
        yield dice.choice(
            (
                VoteRequest(group=group, local_id=me, remote_id=to, term=term, ledger_end=place, pre_vote=flag,
                            transfer=not flag, incarnation=dice.randrange(1 << 62)),
                VoteResponse(group=group, local_id=me, remote_id=to, term=term, request_term=term,
                             result=dice.choice(list(VoteResult)), pre_vote=flag),
                HeartBeatRequest(group=group, local_id=me, remote_id=to, term=term, leader_id=me, round=1),
                HeartBeatResponse(group=group, local_id=me, remote_id=to, term=term, code=Code.SUCCESS, round=1,
                                  durable_index=index),
                PushEntryRequest(group=group, local_id=me, remote_id=to, term=term, leader_id=me, type=kind,
                                 previous=place, commit_index=index),
                PushEntryResponse(group=group, local_id=me, remote_id=to, term=term, type=kind, code=Code.SUCCESS,
                                  index=index, begin_index=index, end_index=index),
                LeadershipTransferRequest(group=group, local_id=me, remote_id=to, term=term,
                                          take_leadership_index=index),
            )
        )  # fmt: skip


__all__ = ["WIRE_MAX", "dial", "hello", "is_welcome", "lies"]
