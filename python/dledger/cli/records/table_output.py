"""Records as tables: CSV, Arrow streams and Parquet."""

from __future__ import annotations

from typing import IO, Any, Final

import pyarrow as pa

from dledger.cli.records.format_string import PrintedRecords
from dledger.cli.records.printers import header_text
from dledger.errors import ConfigError
from dledger.records.body.schema import READ_SCHEMA
from dledger.records.columns.arrays import repeated

SCHEMA: Final = pa.schema([pa.field("partition", pa.int64()), *READ_SCHEMA])
"""Columns of a table of records."""
_TEXT: Final = pa.schema(
    [
        pa.field(one.name, one.type if one.name in ("partition", "offset") else pa.string())
        for one in SCHEMA
    ]
)
"""The same as CSV has them."""


def open_writer(form: str, out: IO[bytes], schema: pa.Schema) -> Any:
    """Of csv, arrow or parquet; with ``write_batch`` and ``close``."""
    if form == "csv":
        from pyarrow.csv import CSVWriter

        return CSVWriter(out, schema)
    if form == "arrow":
        return pa.ipc.new_stream(out, schema)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(out, schema, compression="zstd")


class TableOutput:
    """Writes tables of records; `close` completes them."""

    def __init__(self, form: str, out: IO[bytes]) -> None:
        self._form = form
        self._writer = open_writer(form, out, _TEXT if form == "csv" else SCHEMA)

    def write(self, records: PrintedRecords) -> None:
        """Raises `ConfigError` for bytes that CSV cannot hold."""
        batch = records.batch
        numbers = repeated(pa.int64(), records.partition, batch.num_rows)
        columns = [numbers, *batch.columns]
        if self._form != "csv":
            table = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            self._writer.write_batch(table)
            return
        columns[-1] = header_text(columns[-1])
        try:
            texts = [column.cast(kind.type) for column, kind in zip(columns, _TEXT, strict=True)]
        except pa.ArrowInvalid:
            raise ConfigError(
                f"partition {records.partition} has a key or value at or behind offset "
                f"{batch.column('offset')[0]} that is no text: say --base64, or --format arrow or "
                "parquet"
            ) from None
        self._writer.write_batch(pa.RecordBatch.from_arrays(texts, schema=_TEXT))

    def close(self) -> None:
        self._writer.close()


class RowsOutput:
    """Writes rows of a typed topic in its own columns, so that they can be appended again; `close`
    completes them.

    Args:
        schema: of these columns.

    Raises:
        ConfigError: CSV cannot hold a column.
    """

    def __init__(self, form: str, out: IO[bytes], *, schema: pa.Schema) -> None:
        self._names = schema.names
        try:
            self._writer = open_writer(form, out, schema)
        except pa.ArrowException as error:
            raise ConfigError(
                f"--format {form} cannot hold every column of the topic ({error}): use arrow, "
                "parquet or json"
            ) from None

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch.select(self._names))

    def close(self) -> None:
        self._writer.close()
