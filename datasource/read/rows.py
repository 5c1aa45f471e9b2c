"""Stored bodies -> Arrow batches of the table's columns, without a loop over rows.

Only ``offset`` is computed for each row; ``topic``, ``partition`` and ``timestampType`` are slices
of arrays that are made once, and ``key``, ``value``, ``timestamp`` and ``headers`` lie where they
were received.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dledger.client.protocol.reading.fetched import Decode, FetchedBodies
from dledger.config import MIB
from dledger.protocol.messages.fetched import FetchedBatches
from dledger.records.columns.arrays import counting, number, number_column, repeated

LEAST_BYTES: Final = MIB
"""Smaller batches are put together: each one costs Spark about a millisecond."""
MOST_BYTES: Final = 4 * MIB
"""Larger ones are cut: Spark holds several at a time."""
MOST_ROWS: Final = 1 << 16
"""Nor has a batch more rows, however small: each also gets its topic, offset and time."""
NO_BATCHES: Final = FetchedBatches(b"")
CREATE_TIME: Final = 0
"""The value of ``timestampType``, as in Kafka: the time is the writer's."""
STORED: Final = {
    "key": ("key",),
    "value": ("value",),
    "timestamp": ("timestamp",),
    "headers": ("headers",),
    "size": ("key", "value"),
}
"""Columns of the table -> those of the stored records that they are made of."""


class Part(NamedTuple):
    """Neighbouring rows of one body, or of bodies of one row each from the ``first`` one on."""

    records: pa.RecordBatch
    batches: FetchedBatches
    first: int = 0
    offset: int = 0
    """Of the first row."""

    @property
    def behind(self) -> int:
        """The offset behind the last row."""
        rows: int = self.records.num_rows
        return self.offset + rows

    @property
    def places(self) -> tuple[array[int], array[int]]:
        """``term`` and ``index`` of the entry of each row."""
        rows = self.records.num_rows
        is_shared = len(self.batches) == 1
        batches = self.batches if is_shared else self.batches.part(self.first, self.first + rows)
        *_, entries, terms = zip(*batches.rows(), strict=True)
        times = rows if is_shared else 1
        return array("i", terms) * times, array("q", entries) * times


def text_column(text: bytes, rows: int) -> pa.Array:
    """The same text in every row."""
    offsets = pc.multiply(counting(0, rows + 1), number(pa.int64(), len(text))).cast(pa.int32())
    return pa.Array.from_buffers(
        pa.string(), rows, [None, offsets.buffers()[1], pa.py_buffer(text * rows)]
    )


class Constants:
    """Columns in which every row of a topic partition has the same value."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._rows = 0
        self._arrays: tuple[pa.Array, ...] = ()

    def of(self, rows: int) -> tuple[pa.Array, ...]:
        """``topic``, ``partition`` and ``timestampType`` for so many rows."""
        if rows > self._rows:
            self._rows = max(rows, 2 * self._rows)
            self._arrays = (
                text_column(self._topic, self._rows),
                repeated(pa.int32(), self._partition, self._rows),
                repeated(pa.int32(), CREATE_TIME, self._rows),
            )
        return tuple(array.slice(0, rows) for array in self._arrays)


def table_rows(
    answers: Iterable[FetchedBodies],
    topic: str,
    partition: int,
    start: int,
    end: int,
    schema: pa.Schema,
    decode: Decode | None = None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Records [start, end) as batches of the columns of a schema, of some 1 to 4 MiB each, with the
    offset behind each; see `dledger.datasource.table.schema.EVERY`.

    Bodies come in order and without gaps; the first and the last one may reach out of the range.

    Raises:
        ProtocolError: a body contradicts the log's record of it.
    """
    constants = Constants(topic, partition)
    # one at least: a batch without columns has no rows
    stored = {own for name in schema.names for own in STORED.get(name.lower(), ())} or {"timestamp"}
    for gathered in gather(decoded(answers, decode, start, end, sorted(stored))):
        yield _build(gathered, constants, schema), gathered[-1].behind


def decoded(
    answers: Iterable[FetchedBodies],
    decode: Decode | None,
    start: int,
    end: int,
    columns: list[str] | None = None,
) -> Iterator[Part]:
    """The rows of [start, end) in the bodies, in parts that are not too large. Without ``decode``
    they are plain records; without ``columns`` all of them are given.

    Raises:
        ProtocolError: a body has not as many rows as the log says.
    """
    for bodies in answers:
        for batch, batches in bodies.decoded(decode) if decode else bodies.plain_records():
            base, wanted = batches.base_offset, batch if columns is None else batch.select(columns)
            first, last = max(start - base, 0), min(end - base, batch.num_rows)
            for at, part in _cut(wanted.slice(first, last - first)):
                yield Part(part, batches, first + at, base + first + at)


def gather(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Neighbours that together are of a good size, without offsets between them that are left
    out."""
    gathered: list[Part] = []
    size = rows = 0
    for part in parts:
        is_apart = bool(gathered) and part.offset != gathered[-1].behind
        if is_apart or rows + part.records.num_rows > MOST_ROWS or size >= LEAST_BYTES:
            yield gathered
            gathered, size, rows = [], 0, 0
        gathered.append(part)
        size += part.records.nbytes
        rows += part.records.num_rows
    if gathered:
        yield gathered


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of several topic partitions, of the same columns each, in batches of a good size."""
    for gathered in gather(_in_a_row(batches)):
        yield whole(gathered)


def _in_a_row(batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    rows = 0
    for batch in batches:
        yield Part(batch, NO_BATCHES, offset=rows)
        rows += batch.num_rows


def whole(gathered: list[Part]) -> pa.RecordBatch:
    """The rows of neighbours as one batch, copied only where there are several."""
    parts = [part.records for part in gathered]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _cut(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Pieces that are not too large, each behind its first row."""
    rows = batch.num_rows
    parts = min(max(-(-batch.nbytes // MOST_BYTES), -(-rows // MOST_ROWS)), rows)
    if parts <= 1:
        if rows:
            yield 0, batch
        return
    for i in range(parts):
        first, last = rows * i // parts, rows * (i + 1) // parts
        yield first, batch.slice(first, last - first)


def _build(gathered: list[Part], constants: Constants, schema: pa.Schema) -> pa.RecordBatch:
    batch, offset = whole(gathered), gathered[0].offset
    rows = batch.num_rows
    topic, partition, kind = constants.of(rows)
    has_places = not {"term", "entryindex"}.isdisjoint(map(str.lower, schema.names))
    terms, entries = places(gathered) if has_places else (None, None)

    def column(field: pa.Field) -> pa.Array:
        match name := field.name.lower():
            case "key" | "value" | "timestamp":
                return batch.column(name)
            case "topic":
                return topic
            case "partition":
                return partition
            case "offset":
                return counting(offset, rows)
            case "timestamptype":
                return kind
            case "headers":
                return batch.column(name).cast(field.type)
            case "size":
                return pc.add(lengths(batch.column("key")), lengths(batch.column("value")))
            case "term":
                return terms
            case "entryindex":
                return entries
        raise AssertionError(f"{name}: a column of the table that no one makes")

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def places(gathered: list[Part]) -> tuple[pa.Array, pa.Array]:
    """``term`` and ``entryIndex`` of each row."""
    terms, entries = array("i"), array("q")
    for part in gathered:
        of_rows = part.places
        terms += of_rows[0]
        entries += of_rows[1]
    return number_column(pa.int32(), terms), number_column(pa.int64(), entries)


def lengths(column: pa.Array) -> pa.Array:
    """Bytes of each entry of a binary column; 0 for null."""
    return pc.fill_null(pc.binary_length(column), number(pa.int32(), 0))
