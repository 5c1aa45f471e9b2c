"""Bodies of entries, and heartbeats."""

from __future__ import annotations

from typing import Any

from dledger.protocol.messages.peer import HeartBeatRequest
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.types import NodeId, Term


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
