"""Records as a consumer hands them out: one by one, or as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger.errors import CorruptEntry
from dledger.records.body.schema import READ_SCHEMA
from dledger.records.body.typed import bytes_of
from dledger.times import EPOCH

CONSUMED_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), *READ_SCHEMA]
)
"""The schema of a consumer's batches: topic, partition, offset, timestamp, key, value, headers; of
a typed topic its columns behind the first four."""
_OFFSET, _TIMESTAMP, _OWN = 1, 2, 3
"""Columns of a batch as it is held: partition, offset and timestamp, whatever their names, and the
topic's own behind them."""


class ConsumerRecord(NamedTuple):
    """One record. ``timestamp`` is in UTC; ``headers`` are pairs of name and value. Of a typed
    topic ``value`` is the row as a dict, and ``key`` the bytes of its key column's text."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: Any
    """``bytes`` or None; of a typed topic a dict."""
    headers: Sequence[tuple[str, bytes | None]] = ()


def as_records(
    topic: str, partition: int, batch: pa.RecordBatch, key_column: str | None
) -> list[ConsumerRecord]:
    """The first rows of a batch as it is held, one at least: up to one that has no form in Python,
    as a date of the year 20000. ``key_column`` is that of a typed topic, empty where it has none;
    None: the batch is of keys and values.

    Raises:
        CorruptEntry: that is the first one.
    """
    try:
        return _records(topic, partition, batch, key_column)
    except (ValueError, OverflowError) as error:
        if batch.num_rows <= 1:
            raise CorruptEntry(f"{error}; batches() gives it as it is") from error
        half = batch.slice(0, batch.num_rows // 2)
        return as_records(topic, partition, half, key_column)


def _records(
    topic: str, partition: int, batch: pa.RecordBatch, key_column: str | None
) -> list[ConsumerRecord]:
    own = batch.select(range(_OWN, batch.num_columns))
    pairs: Iterable[Sequence[tuple[str, bytes | None]]] = repeat(())
    if key_column is None:
        keys, values = (own.column(name).to_pylist() for name in ("key", "value"))
        headers = own.column("headers")
        if headers.null_count < len(headers):
            pairs = [
                [(one["key"], one["value"]) for one in found or ()] for found in headers.to_pylist()
            ]
    else:
        keys, values = _keys(own, key_column), own.to_pylist()
    offsets = batch.column(_OFFSET).to_pylist()
    # not by `to_pylist`, which loads pandas where it is installed
    microseconds = batch.column(_TIMESTAMP).cast(pa.int64()).to_pylist()
    known = {one: EPOCH + timedelta(microseconds=one) for one in set(microseconds)}
    times = map(known.__getitem__, microseconds)
    rows = zip(repeat(topic), repeat(partition), offsets, times, keys, values, pairs, strict=False)
    return list(map(ConsumerRecord._make, rows))


def _keys(own: pa.RecordBatch, key_column: str) -> Iterable[bytes | None]:
    if not key_column:
        return repeat(None)
    names = [name.lower() for name in own.schema.names]
    keys: list[bytes | None] = bytes_of(own.column(names.index(key_column.lower()))).to_pylist()
    return keys


def as_consumed(topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as it is held with its topic in front, whose name begins with ``_`` where the topic
    has a column of that name."""
    taken = {name.lower() for name in batch.schema.names}
    name = pa.field("_" * ("topic" in taken) + "topic", pa.string())
    return batch.add_column(0, name, pa.repeat(pa.scalar(topic), batch.num_rows))
