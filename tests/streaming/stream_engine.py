"""Spark's micro-batch engine in a few lines, with every hop pickled and crashes in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from dledger.datasource.options.offsets import StreamOffset, batch_start
from dledger.datasource.table.schema import read_schema
from dledger.streaming.reader import LogStreamReader
from tests.datasource.hops import rows_of

CRASHES = (
    "before the plan is kept",
    "after the plan is kept",
    "while reading",
    "after the sink",
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("trigger"), st.sampled_from(["", "", *CRASHES])),
        st.tuples(st.just("crash"), st.just("")),
    ),
    max_size=25,
)
"""What happens to a query: records that come, micro-batches and where they crash, restarts."""


class Crash(Exception):
    """The driver died here."""


class Engine:
    """A streaming query: its checkpoint, its sink, and a reader for as long as its driver lives."""

    def __init__(
        self, source: Callable[..., Any], given: dict[str, str], schema: StructType
    ) -> None:
        self.source, self.given, self.schema = source, given, schema
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.reader: Any = None
        self.now = 0.0

    def start(self, available_now: bool = False) -> Any:
        if self.reader is None:
            self.reader = self.source(
                self.given, self.schema, clock=lambda: self.now, sleep=self.wait
            )
            if available_now:
                self.reader.prepareForTriggerAvailableNow()
        return self.reader

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def crash(self, **options: str) -> None:
        """The next start is under these options, too."""
        self.reader = None
        self.given |= options

    def begin(self) -> str:
        done = self.commits
        return self.offsets[done - 1] if done else json.dumps(self.start().initialOffset())

    def trigger(self, limit: Any = None, crash_at: str = "") -> bool:
        """One round of the engine; False when there was nothing to do."""
        reader = self.start()
        if len(self.offsets) == self.commits:
            start = self.begin()
            end = json.dumps(
                reader.latestOffset(json.loads(start), limit or reader.getDefaultReadLimit())
            )
            if end == start:
                return False
            self._die_if(crash_at, "before the plan is kept")
            self.offsets.append(end)
        self._die_if(crash_at, "after the plan is kept")
        start, end = json.loads(self.begin()), json.loads(self.offsets[self.commits])
        slices = reader.partitions(start, end)
        rows = rows_of(self.source(self.given, self.schema), slices)
        self._die_if(crash_at, "while reading")
        self.sink.setdefault(self.commits, self.read(start, end, rows))
        self._die_if(crash_at, "after the sink")
        self.commits += 1
        return True

    def read(
        self, start: dict[str, Any], end: dict[str, Any], rows: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The rows of a batch, as they go to the sink."""
        return rows

    def dies(self, here: str = "while reading") -> None:
        """One round that does not come to its end."""
        with pytest.raises(Crash):
            self.trigger(crash_at=here)

    def drain(self) -> list[Any]:
        """Trigger until there is nothing to do; all values so far."""
        while self.trigger():
            pass
        return self.values()

    def _die_if(self, crash_at: str, here: str) -> None:
        if crash_at == here:
            self.crash()
            raise Crash(here)

    def values(self, column: str = "value") -> list[Any]:
        return [row[column] for batch in sorted(self.sink) for row in self.sink[batch]]


class Query(Engine):
    """A query over topics of an in-memory group: t, unless the options say otherwise."""

    def __init__(self, group: Any, **options: str) -> None:
        given = {"dledger.bootstrap.servers": group.address, **options}
        if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
            given["subscribe"] = "t"
        super().__init__(LogStreamReader, given, read_schema(False))

    def read(
        self, start: dict[str, Any], end: dict[str, Any], rows: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """As many as Spark's progress must show, unless some may be lost or topics made anew."""
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        starts = batch_start(first, last)
        if not {"false", "restart"} & set(self.given.values()):
            assert len(rows) == sum(
                stop - starts[t][p] for t, ends in last.logs.items() for p, stop in ends.items()
            ), "rows are end - start, always"
        return sorted(rows, key=lambda row: row["offset"])

    def offset(self, batch: int = -1) -> StreamOffset:
        """Where a batch ends."""
        return StreamOffset.from_json(json.loads(self.offsets[batch]))


def numbers(*values: int) -> list[bytes]:
    return [str(value).encode() for value in values]


def add_topic(group: Any, name: str, *values: int, partitions: int = 1) -> None:
    """A new topic with these numbers in its first partition, in place of one of this name."""
    if name in group.by_name:
        group.delete_topic(name)
    group.create_topic(name, partitions)
    if values:
        group.append(name, 0, numbers(*values))
