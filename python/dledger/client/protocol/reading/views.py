"""What a reader gives of each record: a topic's own columns, and where and when the record is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.config import nearest
from dledger.errors import ConfigError
from dledger.records.body.header import read_header
from dledger.records.body.schema import RECORD_SCHEMA, TIMESTAMP
from dledger.records.body.typed import Schemas, arrow_schema, convert, decode_typed, record_times
from dledger.records.columns.arrays import counting, repeated
from dledger.records.columns.types import Columns
from dledger.types import Buffer

PLACE: Final = (
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
)
"""Where and when a record is."""
_OWN: Final = "own "
"""In front of the name of an own column, where it may be that of a place."""
_TIMES: Final = "\0times"
"""The records' times on their way: no column has this name."""
RECORD: Final = tuple(RECORD_SCHEMA.field(name) for name in ("key", "value", "headers"))
"""The own columns of a topic of keys and values."""


class View:
    """The columns that a reader gives, in order: partition, offset and timestamp, then the topic's
    own. One of the three whose name the topic has as a column begins with ``_``.

    Args:
        columns: of a typed topic; None: of a topic of keys and values.
        selected: names of columns, in order; None: all.
        has_place: whether partition, offset and timestamp are among them.

    Raises:
        ConfigError: a name is no column's.
    """

    def __init__(
        self,
        columns: Columns | None,
        *,
        selected: Sequence[str] | None = None,
        has_place: bool = True,
    ) -> None:
        own = list(RECORD if columns is None else arrow_schema(columns))
        taken = {field.name.lower() for field in own}
        place = {"_" * (one.name in taken) + one.name: one.name for one in PLACE[: 3 * has_place]}
        known = {name: one.with_name(name) for name, one in zip(place, PLACE, strict=False)}
        known |= {field.name: field for field in own}
        names = list(known) if selected is None else selected
        for name in names:
            if name not in known:
                there = list(known)
                raise ConfigError(
                    f"there is no column {name!r}{nearest(name, there)}; there are "
                    f"{', '.join(there)}"
                )
        self.schema = pa.schema([known[name] for name in names])
        self._sources = [place.get(name, _OWN + name) for name in names]
        self._wanted: Columns | None = None
        if columns is not None:
            fields = (columns.fields[columns.find(name)] for name in names if name not in place)
            self._wanted = Columns(tuple(fields))
        self._has_times = "timestamp" in self._sources or not any(
            source.startswith(_OWN) for source in self._sources
        )

    def rows(
        self,
        bodies: FetchedBodies,
        partition: int,
        start: int,
        end: int | None,
        schemas: Schemas,
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The records of bodies within [start, end) with these columns, each batch with the offset
        behind it.

        Raises:
            SchemaMismatch: a value does not fit the columns, which are narrower than those it was
                written by.
            ProtocolError, CorruptEntry: a body contradicts the log's record of it, or itself.
        """
        wanted = self._wanted
        if wanted is None:
            found = bodies.plain_records()
        else:
            found = bodies.decoded(lambda body: self._typed(body, wanted, schemas))
        for records, batches in found:
            base = batches.base_offset
            first, last = max(start - base, 0), records.num_rows
            last = last if end is None else min(end - base, last)
            if first or last < records.num_rows:
                records = records.slice(first, last - first)
            arrays = [
                self._column(source, records, partition, base + first) for source in self._sources
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema), base + last

    def _typed(self, body: Buffer, wanted: Columns, schemas: Schemas) -> pa.RecordBatch:
        """The own columns that are wanted, and the records' times where they are, or nothing else
        says how many records there are."""
        header, columns, batch = decode_typed(body, schemas)
        rows = convert(batch, columns, wanted) if wanted.fields else None
        if not self._has_times:
            return rows
        times = record_times(header, columns, batch)
        if rows is None:
            return pa.RecordBatch.from_arrays([times], [_TIMES])
        return rows.append_column(_TIMES, times)

    def _column(self, source: str, records: pa.RecordBatch, partition: int, start: int) -> pa.Array:
        count = records.num_rows
        match source:
            case "partition":
                return repeated(pa.int32(), partition, count)
            case "offset":
                return counting(start, count)
            case "timestamp":
                return records.column("timestamp" if self._wanted is None else _TIMES)
        return records.column(source.removeprefix(_OWN))


@dataclass(slots=True)
class TypedReading:
    """The columns of one partition's rows while they are read: those of the newest version that was
    there at the start, and of newer ones from their first row on."""

    partition: int
    has_place: bool
    version: int
    view: View | None

    @classmethod
    def start(cls, partition: int, versions: Sequence[Columns], has_place: bool) -> TypedReading:
        """With the versions of the topic's columns that there are, perhaps none."""
        view = View(versions[-1], has_place=has_place) if versions else None
        return cls(partition, has_place, len(versions), view)

    def rows(
        self, body: FetchedBodies, start: int, end: int | None, columns: Columns
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The rows of one body, written under ``columns``; see `View.rows`."""
        version = read_header(body.payload).schema_version
        if self.view is None or version > self.version:
            self.version, self.view = version, View(columns, has_place=self.has_place)
        return self.view.rows(body, self.partition, start, end, lambda _: columns)


def with_partition(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Records of a topic of keys and values with their partition in front."""
    column = repeated(pa.int32(), partition, batch.num_rows)
    return batch.add_column(0, PLACE[0], column)
