"""Stored bodies of a typed topic -> Arrow batches of the columns that are read, without a loop over
rows.

A column that a body has as it is wanted lies where it was received. Each body is read by the
version that it was written under; how this fits the columns of the read is
`dledger.records.body.typed.convert`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.datasource.read.rows import Constants, decoded, gather, places, whole
from dledger.datasource.table.schema import PLACE, RECORD
from dledger.errors import SchemaMismatch
from dledger.records.body.typed import Schemas, arrow_schema, convert, decode_typed, record_times
from dledger.records.columns.arrays import counting
from dledger.records.columns.types import Columns
from dledger.types import Buffer

TIMES: Final = "\0times"
"""The records' times on their way: no column of a frame has this name."""
RECORD_FIELDS: Final = list(to_arrow_schema(PLACE, timezone="UTC"))
"""Of the column ``_record``."""


def typed_rows(
    answers: Iterable[FetchedBodies],
    topic: str,
    partition: int,
    start: int,
    end: int,
    schemas: Schemas,
    wanted: Columns,
    record: bool = False,
    remade: str = "",
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows [start, end) under the ``wanted`` columns, in batches of some 1 to 4 MiB, with the
    offset behind each; see `dledger.datasource.read.rows`.

    Args:
        record: add the column ``_record``.
        remade: for an SQL table the statement that makes it anew.

    Raises:
        SchemaMismatch: a value does not fit the columns of the read, which are narrower than those
            it was written by.
        ProtocolError: a body contradicts the log's record of it.
    """
    schema = arrow_schema(wanted)

    def decode(body: Buffer) -> pa.RecordBatch:
        header, columns, batch = decode_typed(body, schemas)
        try:
            rows = convert(batch, columns, wanted, schema)
        except SchemaMismatch as error:
            way = (
                f"Make the table anew: {remade}"
                if remade
                else "Load it anew, or start the query again"
            )
            text = (
                f"{error}. The columns of topic {topic!r} are wider by now than those of the "
                f"read. {way}"
            )
            raise SchemaMismatch(text) from error
        return rows.append_column(TIMES, record_times(header, columns, batch)) if record else rows

    constants = Constants(topic, partition)
    for gathered in gather(decoded(answers, decode, start, end)):
        rows = whole(gathered)
        if record:
            name, number, _ = constants.of(rows.num_rows)
            at = gathered[0].offset
            rows = _with_record(rows, schema, [name, number], at, places(gathered))
        yield rows, gathered[-1].behind


def _with_record(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    names: list[pa.Array],
    offset: int,
    entries: Iterable[pa.Array],
) -> pa.RecordBatch:
    """Rows with the column ``_record`` in place of their times, which are the last column."""
    count = rows.num_rows
    offsets = counting(offset, count)
    times = rows.column(rows.num_columns - 1)
    known = pa.StructArray.from_arrays([*names, offsets, times, *entries], fields=RECORD_FIELDS)
    with_record = schema.append(pa.field(RECORD.name, known.type))
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], known], schema=with_record)
