"""Batches of any size -> batches of a good size to store. No loop over rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.config import MIB
from dledger.records.columns.arrays import number, numbers_of, offsets_of, repeated
from dledger.records.columns.partitioner import Division

LEAST_BYTES: Final = 3 * MIB
"""A body is stored once it has this much, or when the task ends. What a node does for each body
takes as long as what it does for a megabyte."""
MOST_BYTES: Final = 4 * MIB
"""A body that another batch like its last one would make larger is stored, too; one that is larger
by then is cut."""
MOST_WAITING: Final = 64 * MIB
"""Records wait to become a body until so many bytes of others have come; then they are stored as
they are. A slice keeps the batch in memory that it is of, so this is also what a task holds."""

Body = tuple[str, int, pa.RecordBatch]
"""(topic, partition, records)"""


@dataclass(slots=True)
class Waiting:
    """Records of a topic partition that are to become a body."""

    since: int
    """Bytes that had come before them."""
    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    """Bytes, more or less."""


class Coalescer:
    """Gathers small batches of a topic partition into bodies of some 2 to 4 MiB."""

    def __init__(
        self, least: int = LEAST_BYTES, most: int = MOST_BYTES, *, waiting: int = MOST_WAITING
    ) -> None:
        self._least = least
        self._most = most
        self._limit = waiting
        self._waiting: dict[tuple[str, int], Waiting] = {}
        """The longest waiting ones first."""
        self._came = 0
        self._schema: pa.Schema | None = None
        """Of the last batch: the same object for all that have the same columns in a row."""

    def add(self, topic: str, records: pa.RecordBatch, division: Division) -> Iterator[Body]:
        """Take the rows of a batch; yields the bodies that are full by them, and those that have
        waited too long."""
        size, rows = records.nbytes, records.num_rows
        if not rows:
            return
        schema = self._schema_of(records)
        # shared out by rows: to ask each slice for its bytes takes as long as copying it
        for partition, part in division.of(records):
            key = (topic, partition)
            found = self._waiting.get(key)
            if found is not None and found.schema is not schema and found.schema != schema:
                yield from self._close(key)
                found = None
            if found is None:
                found = self._waiting[key] = Waiting(self._came, schema)
            found.batches.append(part)
            part_size = size * part.num_rows // rows
            found.size += part_size
            if found.size >= self._least or found.size + part_size > self._most:
                yield from self._close(key)
        self._came += size
        while self._waiting:
            oldest = next(iter(self._waiting))
            if self._came - self._waiting[oldest].since <= self._limit:
                return
            yield from self._close(oldest)

    def _schema_of(self, records: pa.RecordBatch) -> pa.Schema:
        """To compare columns for each partition would take longer than to share out its rows."""
        schema = records.schema
        if self._schema is None or self._schema != schema:
            self._schema = schema
        return self._schema

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
    ends = numbers_of(pc.cumulative_sum(_sizes(records)))
    start = 0
    while start < rows:
        before = ends[start - 1] if start else 0
        end = max(start + 1, bisect_right(ends, before + most))
        yield records.slice(start, end - start)
        start = end


def _sizes(records: pa.RecordBatch) -> pa.Array:
    """Bytes of each record, more or less."""
    rows = records.num_rows
    sizes = repeated(pa.int64(), 0, rows)
    for column in records.columns:
        if pa.types.is_binary(column.type):
            offsets = offsets_of(column)
            lengths = pc.subtract(offsets.slice(1), offsets.slice(0, rows)).cast(pa.int64())
            size = pc.add(lengths, number(pa.int64(), 4))
        else:
            size = number(pa.int64(), -(-column.nbytes // max(rows, 1)))
        sizes = pc.add(sizes, size)
    return sizes
