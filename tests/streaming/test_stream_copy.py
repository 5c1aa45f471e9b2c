"""Source and sink together, without a JVM: a query that copies topics, against a model, whatever
ends in between.

Hypothesis drives records, topics and partitions that come, micro-batches, tasks that run twice,
drivers that die at any step, and restarts with other limits, in random order. Spark's part is
played with its own rules: a plan is kept before it is run, a batch that was not finished is run
again with the same offsets, and every hop is a pickle.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from dledger.datasource.options.offsets import StreamOffset, batch_start
from dledger.datasource.table.schema import read_schema
from dledger.datasource.write.sink_task import Task
from dledger.streaming.reader import LogStreamReader
from dledger.streaming.writer import LogStreamWriter
from tests.datasource.hops import hop

TARGET = "copies"
STEPS = ["", "planned", "read", "staged", "committed"]
"""Where the driver dies; nowhere, after the plan is kept, after some tasks, before the sink's
commit, and behind it."""
LIMITS = [
    {},
    {"maxOffsetsPerTrigger": "3"},
    {"maxBytesPerTrigger": "900"},
    {"maxRecordsPerPartition": "2"},
]


class Copy(RuleBasedStateMachine):
    """One query over its lives."""

    def __init__(self, group: Any, task: list[Task]) -> None:
        super().__init__()
        self.group, self.task = group, task
        self.expected: dict[tuple[str, int], list[bytes]] = {}
        self.offsets: list[str] = []
        self.done = 0
        self.lives = 0
        self.planned: dict[int, list[tuple[Any, ...]]] = {}
        self.reader: LogStreamReader | None = None
        self.limits: dict[str, str] = {}

    def options(self) -> dict[str, str]:
        return {
            "dledger.bootstrap.servers": self.group.address,
            "subscribePattern": "in-.*",
            "groupId": "copying",
            "startingOffsets": "earliest",
            **self.limits,
        }

    def started(self) -> LogStreamReader:
        if self.reader is None:
            self.lives += 1
            self.reader = LogStreamReader(
                self.options(), read_schema(False), clock=lambda: 0.0, sleep=lambda _: None
            )
        return self.reader

    @initialize()
    def begin(self) -> None:
        self.group.create_topic(TARGET, 3)
        self.more_partitions(0, 1)

    @rule(number=st.integers(0, 2), partitions=st.integers(1, 3))
    def more_partitions(self, number: int, partitions: int) -> None:
        name = f"in-{number}"
        if name not in self.group.by_name:
            self.group.create_topic(name, partitions)
        elif partitions > self.group.topic(name).partitions:
            self.group.add_partitions(name, partitions)
        for partition in range(self.group.topic(name).partitions):
            self.expected.setdefault((name, partition), [])

    @rule(data=st.data(), count=st.integers(1, 4))
    def records(self, data: st.DataObject, count: int) -> None:
        name, partition = data.draw(st.sampled_from(sorted(self.expected)))
        known = self.expected[name, partition]
        values = [f"{name}/{partition}/{len(known) + i}".encode() for i in range(count)]
        self.group.append(name, partition, values)
        known += values

    @rule(limits=st.sampled_from(LIMITS))
    def dies_and_starts_with_other_limits(self, limits: dict[str, str]) -> None:
        self.reader, self.limits = None, limits

    @rule(dies=st.sampled_from(STEPS), twice=st.booleans())
    def batch(self, dies: str, twice: bool) -> None:
        if self.one_batch(dies, twice) == "died":
            self.reader = None

    def one_batch(self, dies: str = "", twice: bool = False) -> str:
        reader = self.started()
        start = self.offsets[self.done - 1] if self.done else json.dumps(reader.initialOffset())
        if len(self.offsets) == self.done:
            end = json.dumps(reader.latestOffset(json.loads(start), reader.getDefaultReadLimit()))
            if end == start:
                return "idle"
            self.offsets.append(end)
        if dies == "planned":
            return "died"
        end = self.offsets[self.done]
        slices = [hop(one) for one in reader.partitions(json.loads(start), json.loads(end))]
        self.same_at_every_replay(start, end, slices)
        writer = self.sink()
        now = Task(0, 0, "query", f"run-{self.lives}", self.done)
        messages: list[Any] = []
        for place, one in enumerate(slices):
            if dies == "read" and place == len(slices) - 1:
                return "died"
            for attempt in range(1 + twice):  # the last attempt's message is the one that counts
                self.task[0] = replace(now, partition=place, attempt=attempt)
                message = hop(hop(writer).write(hop(reader_for(self.options())).read(one)))
            messages.append(message)
        if dies == "staged":
            return "died"
        self.sink().commit(messages, self.done)
        if dies in {"read", "committed"}:
            return "died"
        self.done += 1
        return "done"

    def sink(self) -> LogStreamWriter:
        given = {"dledger.bootstrap.servers": self.group.address, "topic": TARGET}
        return LogStreamWriter(given, read_schema(False), overwrite=False)

    def same_at_every_replay(self, start: str, end: str, slices: list[Any]) -> None:
        """The same records whatever the limits and the tasks are by now; and as many as the offsets
        say."""
        first, last = (StreamOffset.from_json(json.loads(text)) for text in (start, end))
        starts = batch_start(first, last)
        rows = sum(stop - starts[t][p] for t, ends in last.logs.items() for p, stop in ends.items())
        records = sorted(
            (s.info.name, s.partition, offset) for s in slices for offset in range(s.start, s.end)
        )
        assert len(set(records)) == len(records) == rows
        assert self.planned.setdefault(self.done, records) == records

    def copies(self) -> list[bytes]:
        there = range(3) if TARGET in self.group.by_name else ()  # not yet, before the first rule
        return [value for number in there for value in self.group.values(TARGET, number)]

    @invariant()
    def what_is_copied_is_a_beginning_of_every_partition(self) -> None:
        copied: dict[tuple[str, int], list[bytes]] = {}
        for value in self.copies():
            name, partition, _ = value.decode().split("/")
            copied.setdefault((name, int(partition)), []).append(value)
        for place, values in copied.items():
            assert values == self.expected[place][: len(values)], "lost, doubled or invented"

    @invariant()
    def the_group_is_not_ahead_of_what_is_committed(self) -> None:
        told = self.group.consumers.get("copying", {})
        if self.done:
            committed = StreamOffset.from_json(json.loads(self.offsets[self.done - 1])).logs
            for topic, offsets in told.items():
                assert all(
                    offset <= committed[topic][p]
                    for p, offset in offsets.items()
                    if p in committed[topic]
                )

    def teardown(self) -> None:
        """However it went, the query comes to its end, and everything is there once."""
        self.reader = None
        while self.one_batch() != "idle":
            pass
        assert sorted(self.copies()) == sorted(chain.from_iterable(self.expected.values()))


def reader_for(options: dict[str, str]) -> LogStreamReader:
    """An executor's reader: made anew for each task."""
    return LogStreamReader(options, read_schema(False))


def test_a_copy_is_exact_whatever_comes_and_dies_in_whatever_order(
    make_group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = [Task(0, 0, "query", "run", 0)]
    monkeypatch.setattr(Task, "current", staticmethod(lambda: task[0]))
    limits = settings(max_examples=25, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(lambda: Copy(make_group(), task), settings=limits)
