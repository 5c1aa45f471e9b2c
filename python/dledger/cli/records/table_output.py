"""Records as tables: CSV, Arrow streams and Parquet."""

from __future__ import annotations

from typing import IO, Final

import numpy as np
import pyarrow as pa

from dledger.cli.records.format_string import PrintedRecords
from dledger.cli.records.printers import header_text
from dledger.errors import ConfigError
from dledger.records.body.schema import READ_SCHEMA
from dledger.records.columns.arrays import number_column

SCHEMA: Final = pa.schema([pa.field("partition", pa.int64()), *READ_SCHEMA])
"""Columns of a table of records."""
_TEXT: Final = pa.schema(
    [
        pa.field(one.name, one.type if one.name in ("partition", "offset") else pa.string())
        for one in SCHEMA
    ]
)
"""The same as CSV has them."""


class TableOutput:
    """Writes tables of records; `close` completes them."""

    def __init__(self, form: str, out: IO[bytes]) -> None:
        self._form = form
        if form == "csv":
            from pyarrow.csv import CSVWriter

            self._writer = CSVWriter(out, _TEXT)
        elif form == "arrow":
            self._writer = pa.ipc.new_stream(out, SCHEMA)
        else:
            from pyarrow.parquet import ParquetWriter

            self._writer = ParquetWriter(out, SCHEMA, compression="zstd")

    def write(self, records: PrintedRecords) -> None:
        """Raises `ConfigError` for bytes that CSV cannot hold."""
        batch = records.batch
        numbers = number_column(pa.int64(), np.full(batch.num_rows, records.partition, np.int64))
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
