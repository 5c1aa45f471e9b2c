"""Batch reads that the filters of their queries limit (option filterPushdown).

Spark 4.3 keeps one plan for each DataFrame that was loaded, by which every query over it reads, and
makes it anew for each place in a query where filters stand above the DataFrame. So a plan must do
for the filters of all queries over the DataFrame, not of the one that it is made for, and a query
without filters is not seen at all. Hence the two rules here: a plan covers whatever filters the
DataFrame has met, and it is limited only by filters that come with the DataFrame's mark, itself a
filter, which `dledger.spark.load_with_pushdown` puts above it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import Filter, InputPartition, Not
from pyspark.sql.types import StructType

from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import Positions
from dledger.datasource.read.limits import Limits
from dledger.datasource.read.reader import LogReader
from dledger.datasource.read.resolving import each, resolve
from dledger.datasource.table.log import GroupView, Log
from dledger.datasource.table.schema import RECORD
from dledger.errors import ConfigError

SETTING: Final = "spark.sql.python.filterPushdown.enabled"
MOST_LIMITS: Final = 16
"""Of one DataFrame; one that meets more different filters is read whole."""
OPTION: Final = "filterPushdown"
UNLIMITED: Final = Limits()


class LimitedReader(LogReader):
    """Reads what the filters of its DataFrame's queries leave; Spark evaluates all of them again,
    over the rows that are read."""

    limits: Sequence[Limits] = (UNLIMITED,)
    """Rows that one of these lets through are read."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        if self.columns.typed is not None and not self.columns.has_place:
            raise ConfigError(
                f"option {OPTION!r} is for filters on a row's place in the log, which a typed "
                "topic's rows have only with option 'includeMetadata': set that to true, and "
                "filter _record.offset and its sisters"
            )

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters of one place where a query reads the DataFrame."""
        marked = any(self._is_mark(one) for one in filters)
        struct = RECORD.name if self.columns.typed is not None else ""
        limits = Limits.of(filters, struct) if marked else UNLIMITED
        self.limits = met_limits(self.options.pushdown_mark, limits)
        return filters

    def _is_mark(self, one: Filter) -> bool:
        return isinstance(one, Not) and (
            getattr(one.child, "value", None) == -self.options.pushdown_mark
        )

    def limited(
        self, log: Log, edges: GroupView, starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        """Of each partition the part from the first to the last offset that some limits leave."""
        parts = [
            one.narrowed(edges, starts, ends, _as_new(one.timestamp.low, edges, log))
            for one in self.limits
        ]

        def left(topic: str, p: int) -> list[tuple[int, int]]:
            found = [(low[topic][p], high[topic][p]) for low, high in parts]
            return [(low, high) for low, high in found if low < high]

        def low(topic: str, p: int, _begin: int, _end: int) -> int:
            return min((low for low, _ in left(topic, p)), default=ends[topic][p])

        def high(topic: str, p: int, _begin: int, _end: int) -> int:
            return max((high for _, high in left(topic, p)), default=ends[topic][p])

        return each(edges, low), each(edges, high)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task.

        Raises:
            ConfigError: Spark has not asked this query for its filters.
        """
        check_still_enabled(TaskContext.get())
        return super().read(partition)


def _as_new(time_us: int, edges: GroupView, log: Log) -> Positions:
    """As option startingTimestamp finds it; empty where all records are."""
    if time_us <= 0:
        return {}
    return resolve(Bound(BoundKind.TIME, OPTION, number=time_us), edges, log)


def check_still_enabled(task: TaskContext | None) -> None:
    """Refuse to read for a query that was planned while Spark's setting was off: it reads by the
    plan of an earlier query, and that one's filters.

    Raises:
        ConfigError: with the way out.
    """
    if task is None or task.getLocalProperty("spark.sql.execution.id") is None:
        return  # such as of DataFrame.rdd, where Spark tells tasks no settings
    if task.getLocalProperty(SETTING) != "true":
        raise ConfigError(
            f"{SETTING} was turned off under a DataFrame with option {OPTION!r}, which is read by "
            "the filters of an earlier query: turn it on, or load the DataFrame again without the "
            "option"
        )


def met_limits(mark: int, limits: Limits) -> Sequence[Limits]:
    """All that the DataFrame of this mark has met, these included.

    They lie in a file, since Spark asks for each plan in any of several processes; it is in a
    directory that the driver deletes when its session ends. Without one nothing is limited.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not (local and Path(local).is_dir()):
        return (UNLIMITED,)
    with (Path(local) / f"dledger-pushdown-{mark}").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        met = [Limits.unpacked(json.loads(line)) for line in file]
        if limits not in met:
            met.append(limits)
            file.write(json.dumps(limits.packed()) + "\n")
    return met if len(met) <= MOST_LIMITS else (UNLIMITED,)


__all__ = ["LimitedReader"]
