"""The words every layer shares: numbers with a meaning, and the roles of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, NewType, TypeVar, dataclass_transform

T = TypeVar("T")

Index = NewType("Index", int)
"""Place of an entry in the log, from 0; -1 is "before the first"."""
Term = NewType("Term", int)
"""Number of an election, from 0; -1 is "none yet"."""
NodeId = NewType("NodeId", str)
"""Name of a node in its group, e.g. ``n0``."""
Offset = NewType("Offset", int)
"""Place of a record in its topic partition, from 0, without gaps."""
Principal = NewType("Principal", str)
"""Who is at the other side of a connection, as Kafka writes it: ``User:alice``, ``Node:n1``;
`OWNER` and `ANONYMOUS` beside these."""
OWNER = Principal("Owner")
"""A program that has proved the group's secret, as those of the Unix user do who owns a path
group."""
ANONYMOUS = Principal("User:ANONYMOUS")
"""A client that has proved nothing."""
ALL_USERS = Principal("User:*")
"""In place of a user's name: each one that is not named itself."""

NO_INDEX = Index(-1)
NO_TERM = Term(-1)
MAX_TERM = Term(1 << 62)
"""The last term that is ever taken or asked for; half of what the wire and the files have room
for."""
TERM_JUMP = 1 << 32
"""How far ahead of a node's own term another member's may be; `dledger.raft.state.terms` has the
reasons."""

OfPartitions = Annotated[dict[int, int], "packed"]
"""An offset for each partition. Messages have them packed, because a topic may have thousands."""

Buffer = bytes | bytearray | memoryview
"""Bytes that may still lie in the buffer they were received in."""


class Role(IntEnum):
    """The role of a node in its group; every node starts as CANDIDATE."""

    CANDIDATE = 0
    FOLLOWER = 1
    LEADER = 2


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def slots_dataclass(*, kw_only: bool = False, order: bool = False) -> Callable[[type[T]], type[T]]:
    """A dataclass with slots whose fields never change, for values made for every entry or message.

    mypy refuses to set a field, as with ``frozen=True``; at run time it is not refused, because a
    really frozen dataclass takes five times as long to make.
    """

    def decorate(cls: type[T]) -> type[T]:
        return dataclass(cls, slots=True, unsafe_hash=True, kw_only=kw_only, order=order)

    return decorate


@slots_dataclass(order=True)
class Position:
    """Names one entry for ever. Its order is Raft's "at least as up to date" (Raft paper,
    5.4.1)."""

    term: Term
    index: Index


NOWHERE = Position(NO_TERM, NO_INDEX)
"""The position before the first entry of an empty log."""
