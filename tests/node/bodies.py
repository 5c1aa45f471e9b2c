"""Bodies of entries."""

from __future__ import annotations

from typing import Any

from dledger.records.body.header import BodyHeader, BodyKind, encode_header


def body(topic_id: int, payload: bytes = b"payload", count: int = 1, **fields: Any) -> bytes:
    """A body whose payload no node looks into."""
    partition = fields.pop("partition", 0)
    return encode_header(BodyHeader(BodyKind.DATA, topic_id, partition, count, **fields)) + payload
