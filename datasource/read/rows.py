"""Stored bodies -> Arrow batches of the table's columns, without a loop over rows.

Only ``offset`` is computed for each row; ``topic``, ``partition`` and ``timestampType`` are slices
of arrays that are made once, and ``key``, ``value``, ``timestamp`` and ``headers`` lie where they
were received.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dledger.config import MIB
from dledger.datasource.table.schema import read_schema
from dledger.errors import ProtocolError
from dledger.protocol.messages.client import FetchedBatch
from dledger.records.body.records import decode_batch
from dledger.records.columns.arrays import binary_parts, number_column
from dledger.types import Buffer

LEAST_BYTES: Final = MIB
"""Smaller batches are put together: each one costs Spark about a millisecond."""
MOST_BYTES: Final = 4 * MIB
"""Larger ones are cut: Spark holds several at a time."""
MOST_ROWS: Final = 1 << 16
"""Nor has a batch more rows, however small: each also gets its topic, offset and time."""
CREATE_TIME: Final = 0
"""The value of ``timestampType``, as in Kafka: the time is the writer's."""
SCHEMAS: Final = {
    wanted: to_arrow_schema(read_schema(*wanted), timezone="UTC")
    for wanted in itertools.product((False, True), repeat=2)
}
"""By (with headers, with metadata)."""


Body = tuple[FetchedBatch, Buffer]
"""A stored body, and where it lies."""
Decode = Callable[[Buffer], pa.RecordBatch]
"""A body's rows."""


def plain_records(body: Buffer) -> pa.RecordBatch:
    """The records of a raw topic's body."""
    return decode_batch(body)[1]


class Part(NamedTuple):
    """Rows of one body."""

    records: pa.RecordBatch
    entry: int
    term: int


def text_column(text: bytes, rows: int) -> pa.Array:
    """The same text in every row."""
    offsets = np.arange(0, len(text) * (rows + 1), len(text), dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text * rows)]
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
                number_column(pa.int32(), np.full(self._rows, self._partition, np.int32)),
                number_column(pa.int32(), np.full(self._rows, CREATE_TIME, np.int32)),
            )
        return tuple(array.slice(0, rows) for array in self._arrays)


def table_rows(
    bodies: Iterable[Body],
    topic: str,
    partition: int,
    start: int,
    end: int,
    headers: bool = False,
    metadata: bool = False,
    decode: Decode = plain_records,
) -> Iterator[pa.RecordBatch]:
    """Records [start, end) as batches of the table's columns, of some 1 to 4 MiB each.

    ``bodies`` come in order and without gaps; the first and the last one may reach out of the
    range.

    Raises:
        ProtocolError: a body contradicts the log's record of it.
    """
    constants = Constants(topic, partition)
    offset = start
    for gathered in gather(decoded(bodies, decode, f"{topic}/{partition}", start, end)):
        batch = _build(gathered, constants, offset, headers, metadata)
        yield batch
        offset += batch.num_rows


def decoded(
    bodies: Iterable[Body], decode: Decode, what: str, start: int, end: int
) -> Iterator[Part]:
    """The rows of [start, end) in the bodies, in parts that are not too large.

    Raises:
        ProtocolError: a body has not as many rows as the log says.
    """
    for stored, body in bodies:
        batch, base = decode(body), stored.base_offset
        if batch.num_rows != stored.count:
            raise ProtocolError(
                f"{what}: {batch.num_rows} records at offset {base}, not {stored.count}"
            )
        first, last = max(start - base, 0), min(end - base, stored.count)
        if first > 0 or last < stored.count:
            batch = batch.slice(first, last - first)
        for part in _cut(batch):
            yield Part(part, stored.index, stored.term)


def gather(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Neighbours that together are of a good size."""
    gathered: list[Part] = []
    size = rows = 0
    for part in parts:
        if rows + part.records.num_rows > MOST_ROWS or size >= LEAST_BYTES:
            yield gathered
            gathered, size, rows = [], 0, 0
        gathered.append(part)
        size += part.records.nbytes
        rows += part.records.num_rows
    if gathered:
        yield gathered


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of several topic partitions, of the same columns each, in batches of a good size."""
    for gathered in gather(Part(batch, -1, -1) for batch in batches):
        yield whole(gathered)


def whole(gathered: list[Part]) -> pa.RecordBatch:
    """The rows of neighbours as one batch, copied only where there are several."""
    parts = [part.records for part in gathered]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    parts = min(max(-(-batch.nbytes // MOST_BYTES), -(-rows // MOST_ROWS)), rows)
    if parts <= 1:
        if rows:
            yield batch
        return
    for i in range(parts):
        first, last = rows * i // parts, rows * (i + 1) // parts
        yield batch.slice(first, last - first)


def _build(
    gathered: list[Part], constants: Constants, offset: int, headers: bool, metadata: bool
) -> pa.RecordBatch:
    batch = whole(gathered)
    rows = batch.num_rows
    topic, partition, kind = constants.of(rows)
    schema = SCHEMAS[headers, metadata]
    columns = [
        batch.column("key"),
        batch.column("value"),
        topic,
        partition,
        number_column(pa.int64(), np.arange(offset, offset + rows, dtype=np.int64)),
        batch.column("timestamp"),
        kind,
    ]
    if headers:
        columns.append(batch.column("headers").cast(schema.field("headers").type))
    if metadata:
        columns += [
            *places(gathered),
            number_column(
                pa.int32(), lengths(batch.column("key")) + lengths(batch.column("value"))
            ),
        ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def places(gathered: list[Part]) -> tuple[pa.Array, pa.Array]:
    """``term`` and ``entryIndex`` of each row."""
    counts = [part.records.num_rows for part in gathered]
    terms = np.repeat(np.array([part.term for part in gathered], np.int32), counts)
    entries = np.repeat(np.array([part.entry for part in gathered], np.int64), counts)
    return number_column(pa.int32(), terms), number_column(pa.int64(), entries)


def lengths(column: pa.Array) -> npt.NDArray[np.int32]:
    """Bytes of each entry of a binary column; 0 for null."""
    places, _ = binary_parts(column)
    found = np.diff(places) if len(places) > len(column) else np.zeros(len(column), np.int32)
    if column.null_count:
        found = np.where(column.is_valid().to_numpy(zero_copy_only=False), found, 0)
    return found.astype(np.int32)
