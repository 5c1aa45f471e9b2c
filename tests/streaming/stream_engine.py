"""Spark's micro-batch engine in a few lines, with every hop pickled and crashes in between."""

from __future__ import annotations

import json
import pickle
from typing import Any

from dledger.datasource.options.offsets import StreamOffset, batch_start
from dledger.datasource.table.schema import read_schema
from dledger.streaming.reader import LogStreamReader


class Crash(Exception):
    """The driver died here."""


class Query:
    """A streaming query: its checkpoint, its sink, and a reader for as long as its driver lives."""

    def __init__(self, group: Any, **options: str) -> None:
        self.given = {"dledger.bootstrap.servers": group.address, **options}
        if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
            self.given["subscribe"] = "t"
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[bytes]] = {}
        self.reader: LogStreamReader | None = None
        self.now = 0.0

    def start(self, available_now: bool = False) -> LogStreamReader:
        if self.reader is None:
            self.reader = LogStreamReader(
                self.given, read_schema(False), clock=lambda: self.now, sleep=self.wait
            )
            if available_now:
                self.reader.prepareForTriggerAvailableNow()
        return self.reader

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def crash(self) -> None:
        self.reader = None

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
            self.die_if(crash_at, "before the plan is kept")
            self.offsets.append(end)
        self.die_if(crash_at, "after the plan is kept")
        start, end = self.begin(), self.offsets[self.commits]
        slices = [
            pickle.loads(pickle.dumps(s))
            for s in reader.partitions(json.loads(start), json.loads(end))
        ]
        executor = pickle.loads(pickle.dumps(LogStreamReader(self.given, read_schema(False))))
        rows = [row for one in slices for batch in executor.read(one) for row in batch.to_pylist()]
        self.last_rows = len(rows)
        self.die_if(crash_at, "while reading")
        assert len(rows) == self.rows_between(start, end), "rows are end - start, always"
        self.sink.setdefault(
            self.commits, [row["value"] for row in sorted(rows, key=lambda r: r["offset"])]
        )
        self.die_if(crash_at, "after the sink")
        self.commits += 1
        return True

    def rows_between(self, start: str, end: str) -> int:
        """What Spark's progress must show for this batch when nothing was lost and no topic created
        again."""
        first, last = (
            StreamOffset.from_json(json.loads(start)),
            StreamOffset.from_json(json.loads(end)),
        )
        starts = batch_start(first, last)
        if "false" in self.given.values() or "restart" in self.given.values():
            return self.last_rows
        return sum(end - starts[t][p] for t, ends in last.logs.items() for p, end in ends.items())

    def drain(self) -> list[bytes]:
        """Trigger until there is nothing to do; all values so far."""
        while self.trigger():
            pass
        return self.values()

    def die_if(self, crash_at: str, here: str) -> None:
        if crash_at == here:
            self.crash()
            raise Crash(here)

    def values(self) -> list[bytes]:
        return [value for batch in sorted(self.sink) for value in self.sink[batch]]


def numbers(*values: int) -> list[bytes]:
    return [str(value).encode() for value in values]


__all__ = ["Crash", "Query", "numbers"]
