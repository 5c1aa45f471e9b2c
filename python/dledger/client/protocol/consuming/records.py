"""Records as a consumer hands them out: one by one, or as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import repeat
from typing import Final, NamedTuple

import pyarrow as pa

from dledger.records.body.schema import READ_SCHEMA
from dledger.times import EPOCH

CONSUMED_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), *READ_SCHEMA]
)
"""The schema of a consumer's batches: topic, partition, offset, timestamp, key, value, headers."""


class ConsumerRecord(NamedTuple):
    """One record. ``timestamp`` is in UTC; ``headers`` are pairs of name and value."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def as_records(topic: str, partition: int, batch: pa.RecordBatch) -> list[ConsumerRecord]:
    """The rows of a batch in the READ_SCHEMA."""
    headers = batch.column("headers")
    pairs: Sequence[Sequence[tuple[str, bytes | None]]] = ((),) * batch.num_rows
    if headers.null_count < batch.num_rows:
        pairs = [
            [(one["key"], one["value"]) for one in found or ()] for found in headers.to_pylist()
        ]
    offsets, keys, values = (batch.column(one).to_pylist() for one in ("offset", "key", "value"))
    # not by `to_pylist`, which loads pandas where it is installed
    microseconds = batch.column("timestamp").cast(pa.int64()).to_pylist()
    known = {one: EPOCH + timedelta(microseconds=one) for one in set(microseconds)}
    times = map(known.__getitem__, microseconds)
    rows = zip(repeat(topic), repeat(partition), offsets, times, keys, values, pairs, strict=False)
    return list(map(ConsumerRecord._make, rows))


def as_consumed(topic: str, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in the READ_SCHEMA with its place, in the CONSUMED_SCHEMA."""
    places = (
        pa.repeat(pa.scalar(topic), batch.num_rows),
        pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
    )
    return pa.RecordBatch.from_arrays([*places, *batch.columns], schema=CONSUMED_SCHEMA)
