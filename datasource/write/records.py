"""Frames to write -> record batches of one topic partition each, of a good size to store. No loop
over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dledger.config import MIB
from dledger.datasource.table.schema import WriteColumns
from dledger.datasource.table.typed import TypedTopic
from dledger.datasource.write.spreading import Spread
from dledger.errors import ConfigError
from dledger.records.body.schema import RECORD_SCHEMA
from dledger.records.body.typed import convert, key_bytes, stamped
from dledger.records.columns.arrays import binary_parts
from dledger.records.columns.partitioner import Division, divided_by_codes

LEAST_BYTES: Final = MIB
"""A body is stored once it has this much, or when the task ends."""
MOST_BYTES: Final = 4 * MIB
"""A larger one is cut."""
MOST_WAITING: Final = 64 * MIB
"""Records wait to become a body until so many bytes of others have come; then they are stored as
they are. A slice keeps the batch in memory that it is of, so this is also what a task holds."""

Body = tuple[str, int, pa.RecordBatch]
"""(topic, partition, records)"""


class Routed(NamedTuple):
    """Records of one topic, and which of them go to which partition."""

    topic: str
    records: pa.RecordBatch
    division: Division


class Router:
    """Sends each row of a frame to its topic and partition; see
    `dledger.datasource.write.spreading`."""

    def __init__(
        self,
        columns: WriteColumns,
        topic: str,
        *,
        spread: Spread,
        partitions_of: Callable[[str], int],
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._spread = spread
        self._partitions_of = partitions_of

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The rows of ``batch`` by topic.

        Raises:
            ConfigError: a row has no topic, or a partition that its topic does not have.
            TopicNotFound: and topics are not to be created.
        """
        self._spread.next_batch()
        records = self.records(batch)
        if self._topic:
            yield self._to_partitions(self._topic, records, batch)
            return
        names = batch.column(self._columns.topic)
        if names.null_count:
            raise ConfigError(
                "column 'topic' is null in some rows: fill it, or give the option 'topic'"
            )
        encoded = names.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield self._to_partitions(topics[0], records, batch)
            return
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        division = divided_by_codes(codes)
        of_batch = division.of(batch)
        for (code, rows), (_, whole) in zip(division.of(records), of_batch, strict=True):
            yield self._to_partitions(topics[code], rows, whole)

    def records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The record columns that the frame has, with the log's types."""
        arrays: list[pa.Array] = []
        fields: list[pa.Field] = []
        for own in RECORD_SCHEMA:
            place = getattr(self._columns, own.name)
            if place < 0:
                continue
            column = batch.column(place)
            if own.name in {"key", "headers"} and column.null_count == len(column):
                continue  # not stored at all
            arrays.append(column if column.type == own.type else column.cast(own.type))
            fields.append(own)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _to_partitions(self, topic: str, records: pa.RecordBatch, batch: pa.RecordBatch) -> Routed:
        asked = batch.column(self._columns.partition) if self._columns.partition >= 0 else None
        keys = records.column("key") if "key" in records.schema.names else None
        count = self._partitions_of(topic)
        division = self._spread.spread(topic, count, records.num_rows, keys, asked)
        return Routed(topic, records, division)


class TypedRouter:
    """Sends each row of a frame to its partition of a typed topic, under one version of the topic's
    columns."""

    def __init__(self, typed: TypedTopic, spread: Spread) -> None:
        self._typed = typed
        self._schema = stamped(typed.columns, typed.version)
        self._spread = spread

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The rows of ``batch`` as those of the topic.

        Raises:
            SchemaMismatch: a value does not fit its column, or is null where none may be.
        """
        self._spread.next_batch()
        typed = self._typed
        rows = convert(batch, typed.frame, typed.columns, self._schema)
        keys = key_bytes(typed.columns, rows)
        if keys is not None and keys.null_count == len(keys):
            keys = None
        info = typed.info
        division = self._spread.spread(info.name, info.partitions, rows.num_rows, keys)
        yield Routed(info.name, rows, division)


@dataclass(slots=True)
class Waiting:
    """Records of a topic partition that are to become a body."""

    since: int
    """Bytes that had come before them."""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    """Bytes, more or less."""


class Coalescer:
    """Gathers small batches of a topic partition into bodies of some 1 to 4 MiB."""

    def __init__(
        self, least: int = LEAST_BYTES, most: int = MOST_BYTES, *, waiting: int = MOST_WAITING
    ) -> None:
        self._least = least
        self._most = most
        self._limit = waiting
        self._waiting: dict[tuple[str, int], Waiting] = {}
        """The longest waiting ones first."""
        self._came = 0

    def add(self, topic: str, records: pa.RecordBatch, division: Division) -> Iterator[Body]:
        """Take the rows of a batch; yields the bodies that are full by them, and those that have
        waited too long."""
        size, rows = records.nbytes, records.num_rows
        if not rows:
            return
        # shared out by rows: to ask each slice for its bytes takes as long as copying it
        for partition, part in division.of(records):
            key = (topic, partition)
            found = self._waiting.get(key)
            if found is not None and found.batches[0].schema != records.schema:
                yield from self._close(key)
                found = None
            if found is None:
                found = self._waiting[key] = Waiting(self._came)
            found.batches.append(part)
            found.size += size * part.num_rows // rows
            if found.size >= self._least:
                yield from self._close(key)
        self._came += size
        while self._waiting:
            oldest = next(iter(self._waiting))
            if self._came - self._waiting[oldest].since <= self._limit:
                return
            yield from self._close(oldest)

    def rest(self) -> Iterator[Body]:
        """All that is still waiting."""
        for key in list(self._waiting):
            yield from self._close(key)

    def _close(self, key: tuple[str, int]) -> Iterator[Body]:
        batches = self._waiting.pop(key).batches
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        for part in [whole] if whole.nbytes <= self._most else cut(whole, self._most):
            yield (*key, part)


def cut(records: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Slices of at most ``most`` bytes, or of one record when that alone is larger."""
    rows = records.num_rows
    sizes = np.zeros(rows, np.int64)
    for column in records.columns:
        if pa.types.is_binary(column.type):
            sizes += np.diff(binary_parts(column)[0]) + 4
        else:
            sizes += -(-column.nbytes // max(rows, 1))
    ends = np.cumsum(sizes)
    start = 0
    while start < rows:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
        yield records.slice(start, end - start)
        start = end
