"""The source of readStream: where each micro-batch starts and ends.

Spark runs this class in two processes: one asks for offsets and tasks for as long as the query
runs, another one only pickles it for the executors. Only the tasks themselves travel between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import Positions, StreamOffset, batch_start, without
from dledger.datasource.options.option_table import STREAM
from dledger.datasource.options.rate_limits import RateLimits
from dledger.datasource.read.loss import check_order, keep_or_fail
from dledger.datasource.read.reader import TopicReads
from dledger.datasource.read.resolving import resolve
from dledger.datasource.table.log import LOOKS, GroupView, until_settled
from dledger.errors import TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.streaming.admission import BatchDelay, admit, limits_for
from dledger.streaming.changes import Changes
from dledger.streaming.kafka_checkpoint import read_offset
from dledger.streaming.progress import Progress
from dledger.tracing import span


class LogStreamReader(TopicReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from where the checkpoint says, or from where the options say in a new query."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(options, schema, use=STREAM)
        self._changes = Changes(self.options)
        self._progress = Progress(self.options, self.log)
        self._pace = BatchDelay(clock)
        self._sleep = sleep
        self._infos: dict[str, TopicInfo] = {}
        self._first: StreamOffset | None = None
        self._seen: GroupView | None = None
        self._last: GroupView | None = None
        self._planned: Positions = {}
        """Where the newest batch ends."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks several times, before and after the batch is
        planned, and keeps none of the answers: the one that counts travels in the end of the first
        batch (`StreamOffset.begin`)."""
        if self._first is None:
            group = self.log.lineage().group_id
            starts, ids = self.log.settled(self._begin)
            self._first = StreamOffset(starts, ids, init=True, group=group)
        return self._first.as_json()

    def _begin(self, infos: dict[str, TopicInfo]) -> tuple[Positions, dict[str, str]]:
        self._infos = infos
        edges = self.log.edges({name: info.log_id for name, info in infos.items()})
        starts = resolve(
            self.options.starting or Bound(BoundKind.LATEST, "startingOffsets"), edges, self.log
        )
        return keep_or_fail(
            starts, edges.offsets, edges.begins, self.options.fail_on_data_loss
        ), edges.ids

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the options' limits; the others are put to it in latestOffset, because Spark knows
        no sum of them."""
        limits = self.options.limits
        if limits.rows is not None:
            return ReadMaxRows(limits.rows)
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        return ReadMinRows(limits.least_rows) if limits.least_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the log ends where it ends now."""
        self._last = self._seen = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Without new records this is ``start`` itself, after a short
        wait.

        Everything below ``start`` is committed, here and in the sink, whereas Spark calls `commit`
        one batch late and for the last batch of a run never: so this is where a consumer group is
        told.
        """
        given = read_offset(start, self.log)
        self._changes.group(given, self.log)
        self._progress.publish(given)
        self._seen = self._last or self._look(None if given.init else given)
        limits = limits_for(limit, self.options.limits)
        end = until_settled(lambda: self._end(given, limits), self._look_again)
        self._planned = (given if end is None else end).logs
        return start if end is None else end.as_json()

    def _end(self, given: StreamOffset, limits: RateLimits) -> StreamOffset | None:
        """Of the next batch; None when there is nothing for one."""
        view = self._seen
        assert view is not None
        group = self._changes.group(given, self.log)  # the one that has answered
        starts, added = self._starts(given, view)
        check_order(
            starts,
            view.offsets,
            "the checkpoint is ahead of the log, which has lost acknowledged records",
        )
        admitted = self._admit(starts, view, limits)
        if admitted == starts and not given.init and not added:
            return None
        end = StreamOffset(admitted, view.ids, begin=starts if given.init else added, group=group)
        return self._changes.with_unread(end, given)

    def _look_again(self) -> bool:
        """Whether a topic has gone, or was made again, since the log was seen. The next plan is
        made without it; with the trigger AvailableNow the remaining topics keep their ends."""
        view, fresh = self._seen, self._look()
        assert view is not None
        if view.ids.items() <= fresh.ids.items():
            return False
        if self._last is None:
            self._seen = fresh
            return True
        ids = {topic: log_id for topic, log_id in fresh.ids.items() if topic in view.ids}
        ends = {
            t: (view if view.ids[t] == log_id else fresh).offsets[t] for t, log_id in ids.items()
        }
        self._last = self._seen = GroupView(
            ends, ids, {topic: fresh.begins[topic] for topic in ids}
        )
        return True

    def _look(self, given: StreamOffset | None = None) -> GroupView:
        """Where the log ends; with ``given`` after a wait, unless there is more than that."""
        for look in range(LOOKS):
            names = (
                tuple(self.log.select())
                if self.options.selection.pattern
                else self.options.selection.names
            )
            if not names:
                self._sleep(self.options.wait_ms / 1000 if given else 0)
                break
            try:
                if given is None or set(names) - given.logs.keys():
                    return self.log.look(names)
                return self.log.look(names, self._known(given, names), self.options.wait_ms)
            except TopicNotFound:
                if not self.options.selection.pattern or look == LOOKS - 1:
                    raise
        return GroupView({}, {}, {})

    def _known(self, given: StreamOffset, names: Sequence[str]) -> Positions:
        """The offsets that an answer must be newer than. While a batch waits for more records,
        those seen are no news."""
        known = {name: given.logs[name] for name in names}
        if self._pace.holding and self._seen is not None:
            known.update(
                {name: self._seen.offsets[name] for name in names if name in self._seen.offsets}
            )
        return known

    def _starts(self, given: StreamOffset, view: GroupView) -> tuple[Positions, Positions]:
        """Where the batch starts, and the part of it that the offset before does not say: topics
        and partitions that were not read by then. One that was read earlier goes on where it was
        left, a new one begins with its first record."""
        same = self._changes.same(given, view)
        known = given.known()
        starts: Positions = {}
        added: Positions = {}
        for topic, ends in view.offsets.items():
            places = view.begins[topic] | (known.logs[topic] if topic in same else {})
            starts[topic] = dict(zip(ends, map(places.__getitem__, ends), strict=True))
            if back := without(starts[topic], given.logs.get(topic, {}) if topic in same else {}):
                added[topic] = back
        return starts, added

    def _admit(self, starts: Positions, view: GroupView, limits: RateLimits) -> Positions:
        backlog = sum(
            sum(ends.values()) - sum(starts[topic].values()) for topic, ends in view.offsets.items()
        )
        if not self._pace.go(backlog, limits, patient=self._last is None):
            return starts
        # that view may be old by now
        begins = view.begins if self._last is None else self.log.edges(view.ids).begins
        kept = keep_or_fail(starts, view.offsets, begins, self.options.fail_on_data_loss)
        return admit(kept, view.offsets, self.log, limits.rows, limits.bytes)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: the end of the log when it was last asked for, and how many
        records of a partition were behind the newest batch then, by the names of the metrics that
        Spark's Kafka source has. A Python source has no metrics of its own."""
        view = self._seen
        if view is None:
            return None
        report = StreamOffset(view.offsets, view.ids, group=self.log.group_id).as_json()
        behind = [
            end - self._planned.get(topic, {}).get(number, view.begins[topic][number])
            for topic, ends in view.offsets.items()
            for number, end in ends.items()
        ]
        if behind:
            report |= {
                "minOffsetsBehindLatest": min(behind),
                "maxOffsetsBehindLatest": max(behind),
                "avgOffsetsBehindLatest": sum(behind) / len(behind),
            }
        return report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch [start, end); the same batch at every replay, also when ``start``
        differs then."""
        first, last = read_offset(start, self.log), read_offset(end, self.log)
        starts = batch_start(first, last)
        check_order(starts, last.logs, "the checkpoint's batch ends before it starts")
        self._changes.group(last, self.log)
        self._describe(last.ids)

        def changed() -> bool:
            before, self._infos = self._infos, {}
            self._describe(last.ids)
            return self._infos != before

        with span("plan micro-batch", topics=", ".join(last.logs)):
            return until_settled(lambda: self._plan(starts, last), changed)

    def _plan(self, starts: Positions, last: StreamOffset) -> Sequence[InputPartition]:
        starts, ends = self._changes.readable(starts, last, self._infos)
        if starts == ends:
            return []
        begins = self.log.edges({topic: last.ids[topic] for topic in ends}).begins
        starts = keep_or_fail(starts, ends, begins, self.options.fail_on_data_loss)
        return self.tasks(self.log, self._infos, starts, ends)

    def _describe(self, ids: Mapping[str, str]) -> None:
        """Learn the numbers by which the tasks ask for these topics."""
        if all(
            topic in self._infos and self._infos[topic].log_id == log_id
            for topic, log_id in ids.items()
        ):
            return
        if self.options.selection.pattern:
            self._infos = {
                info.name: info
                for info in self.log.ask(lambda client: client.topics())
                if info.name in ids
            }
        else:
            self._infos = self.log.topics(ids)
