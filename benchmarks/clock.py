"""A stream for Spark that does nothing: a record is due each 100 ms, and its value says when, in ns
since 1970.

It asks no service and waits for none, so that no Python stream source can show a record sooner.
Columns are a log's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.ceiling import SCHEMA, ready_batch

TICK_NS: Final = 100_000_000


class Clock(DataSource):
    """Format "clock"; once the file of option ``over`` is there, no more records are due."""

    @classmethod
    def name(cls) -> str:
        return "clock"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> ClockReader:
        return ClockReader(Path(self.options["over"]))


class ClockReader(DataSourceStreamReader):
    """Offsets are ticks since 1970."""

    def __init__(self, over: Path) -> None:
        self._over = over

    def initialOffset(self) -> dict[str, int]:
        return {"tick": time.time_ns() // TICK_NS}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return (
            start
            if self._over.exists()
            else {"tick": max(start["tick"], time.time_ns() // TICK_NS)}
        )

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["tick"], end["tick"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        start, end = partition.value
        due = [str(tick * TICK_NS).encode() for tick in range(start + 1, end + 1)]
        batch = ready_batch(len(due))
        place = batch.schema.get_field_index("value")
        yield batch.set_column(place, "value", pa.array(due, pa.binary()))
