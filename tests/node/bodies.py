"""Entries, their bodies, and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.peer import HeartBeatRequest
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.storage.api import LogStore
from dledger.types import Index, NodeId, Term


def body(topic_id: int, payload: bytes = b"payload", count: int = 1, **fields: Any) -> bytes:
    """A body whose payload no node looks into."""
    partition = fields.pop("partition", 0)
    return encode_header(BodyHeader(BodyKind.DATA, topic_id, partition, count, **fields)) + payload


def heartbeat(
    term: int, *, to: str = "n0", of: str = "n1", group: str = "test"
) -> HeartBeatRequest:
    """As a node sends it that says that it leads."""
    sender = NodeId(of)
    return HeartBeatRequest(
        group=group, local_id=sender, remote_id=NodeId(to), term=Term(term), leader_id=sender
    )


def entries_of(store: LogStore, first: int | None = None) -> Iterator[Entry]:
    """All entries of a log, or those from ``first`` on."""
    begin = store.begin_index if first is None else Index(first)
    while found := store.read(begin, 1 << 30):
        yield from found
        begin = Index(found[-1].index + 1)
