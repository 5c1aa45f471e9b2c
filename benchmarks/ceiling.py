"""A source and a sink for Spark that do nothing: no Python data source can be faster than these.

The source hands over ready Arrow batches with the seven columns of a log, as a batch or a stream;
the sink looks at each batch and drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
ROWS_PER_BATCH = 20_000


class Ceiling(DataSource):
    """Format "ceiling"; options ``rows``, ``parts`` and, for some of the columns, ``columns``."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return chosen(SCHEMA, self.options.get("columns", ""))

    def reader(self, schema: Any) -> CeilingReader:
        rows, parts = int(self.options["rows"]), int(self.options["parts"])
        return CeilingReader(rows, parts, schema.fieldNames())

    def streamReader(self, schema: Any) -> CeilingStreamReader:
        rows, parts = int(self.options["rows"]), int(self.options["parts"])
        return CeilingStreamReader(rows, parts, schema.fieldNames())

    def writer(self, schema: Any, overwrite: bool) -> CeilingWriter:
        return CeilingWriter()


class CeilingReader(DataSourceReader):
    """Gives ``rows`` rows in ``parts`` tasks."""

    def __init__(self, rows: int, parts: int, columns: list[str]) -> None:
        self._rows, self._parts, self._columns = rows, parts, columns

    def partitions(self) -> list[InputPartition]:
        return parts_of(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = ready_batch(ROWS_PER_BATCH).select(self._columns)
        left = self._rows // self._parts
        while left > 0:
            yield rows if left >= ROWS_PER_BATCH else rows.slice(0, left)
            left -= ROWS_PER_BATCH


class CeilingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same rows as one micro-batch."""

    def __init__(self, rows: int, parts: int, columns: list[str]) -> None:
        self._batch, self._rows = CeilingReader(rows, parts, columns), rows

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows are there already."""

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._batch.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batch.read(partition)


class CeilingWriter(DataSourceArrowWriter):
    """Takes everything, keeps nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            assert batch.num_columns
        return WriterCommitMessage()


def chosen(schema: str, columns: str) -> str:
    """The columns of a schema with these names, separated by commas; all of them without."""
    names = [name.strip() for name in columns.split(",") if name.strip()]
    fields = {field.split()[0]: field for field in schema.split(", ")}
    return ", ".join(map(fields.__getitem__, names)) or schema


def parts_of(parts: int) -> list[InputPartition]:
    """The inputs of so many tasks."""
    return [InputPartition(part) for part in range(parts)]


def ready_batch(size: int) -> pa.RecordBatch:
    """``size`` rows with values of 100 bytes, as a log's source would give them."""
    return pa.record_batch(
        {
            "key": pa.array([b"k" * 8] * size, pa.binary()),
            "value": pa.array([b"x" * 100] * size, pa.binary()),
            "topic": pa.array(["bench"] * size, pa.string()),
            "partition": pa.array([0] * size, pa.int32()),
            "offset": pa.array(range(size), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000] * size, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * size, pa.int32()),
        }
    )
