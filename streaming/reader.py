"""The source of readStream: where each micro-batch starts and ends.

Spark runs this class in two processes: one asks for offsets and tasks for as long as the query runs, another one only
pickles it for the executors. Nothing but the tasks themselves travels between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
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

from dledger.datasource.log import Log, check_ids
from dledger.datasource.loss import check_order, keep_or_fail
from dledger.datasource.offsets import Positions, StreamOffset, batch_start, resolve
from dledger.datasource.options import need_group, need_topics, parse_options
from dledger.datasource.reader import plan_slices, read_slice
from dledger.datasource.schema import check_read_schema
from dledger.errors import ConfigError
from dledger.messages.client import TopicInfo
from dledger.streaming.admission import admit

WAIT_MS: Final = 200
"""How long an idle query's question for new records may wait at the leader. Spark asks again at once, and asks its
sources one after the other: a longer wait would hold back records of another source of the same query."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from where the checkpoint says, or from ``startingOffsets`` in a new query."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options)
        need_group(self.options)
        self.topics = need_topics(self.options)
        check_read_schema(schema, self.options.include_headers)
        if self.options.ending is not None:
            raise ConfigError("'endingOffsets' is for batch reads: a stream has no end; stop the query instead")
        self.log = Log(self.options)
        self._infos: dict[str, TopicInfo] = {}
        self._first: StreamOffset | None = None
        self._seen: Positions = {}
        self._last: Positions | None = None

    @property
    def infos(self) -> dict[str, TopicInfo]:
        """The topics as they were when this run of the query began."""
        if not self._infos:
            self._infos = self.log.topics(self.topics)
        return self._infos

    @property
    def ids(self) -> dict[str, str]:
        return {name: info.log_id for name, info in self.infos.items()}

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks several times, before and after the batch is planned, and keeps none of
        the answers: the one that counts travels in the end of the first batch (`StreamOffset.begin`)."""
        if self._first is None:
            begins, ends = self.log.begins(self.ids), self.log.ends(self.ids)
            starts = resolve("startingOffsets", self.options.starting or "latest", begins, ends)
            starts = keep_or_fail(starts, ends, begins, self.options.fail_on_data_loss)
            self._first = StreamOffset(starts, self.ids, init=True)
        return self._first.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the log ends where it ends now."""
        self._last = self._seen = self.log.ends(self.ids)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Without new records this is ``start`` itself, after a short wait."""
        given = StreamOffset.from_json(start)
        self._check_topics(given)
        starts, added = self._starts(given)
        ends = self._ends(starts, wait=not given.init and not added)
        check_order(starts, ends, "the checkpoint is ahead of the log, which has lost acknowledged records")
        admitted = self._admit(starts, ends, limit)
        if admitted == starts and not given.init and not added:
            return start
        return StreamOffset(admitted, self.ids, begin=starts if given.init else added).as_json()

    def _check_topics(self, given: StreamOffset) -> None:
        check_ids({t: i for t, i in given.ids.items() if t in self.ids}, self.ids)

    def _starts(self, given: StreamOffset) -> tuple[Positions, Positions]:
        """Where the batch starts, and the part of it that is new to the checkpoint: topics subscribed to since, which
        are read from their first record."""
        counts = {topic: range(info.partitions) for topic, info in self.infos.items()}
        unknown = {t for t, parts in counts.items() if any(p not in given.logs.get(t, {}) for p in parts)}
        begins = self.log.begins({t: self.ids[t] for t in sorted(unknown)}) if unknown else {}
        starts: Positions = {}
        added: Positions = {}
        for topic, parts in counts.items():
            for partition in parts:
                known = given.logs.get(topic, {}).get(partition)
                starts.setdefault(topic, {})[partition] = begins[topic][partition] if known is None else known
                if known is None:
                    added.setdefault(topic, {})[partition] = begins[topic][partition]
        return starts, added

    def _ends(self, starts: Positions, wait: bool) -> Positions:
        if self._last is not None:
            return self._last
        if wait:
            self._seen = self.log.ends(self.ids, newer_than=starts, wait_ms=WAIT_MS)
        else:
            self._seen = self.log.ends(self.ids)
        return self._seen

    def _admit(self, starts: Positions, ends: Positions, limit: ReadLimit) -> Positions:
        if starts == ends:
            return starts
        begins = self.log.begins(self.ids)
        kept = keep_or_fail(starts, ends, begins, self.options.fail_on_data_loss)
        if isinstance(limit, ReadAllAvailable):
            return ends
        rows, size = self.options.max_offsets, self.options.max_bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        elif isinstance(limit, ReadMinRows):
            there = sum(ends[t][p] - start for t in kept for p, start in kept[t].items())
            if there < limit.min_rows and self._last is None:
                return starts
        else:
            raise ConfigError(f"this source cannot limit a batch by {type(limit).__name__}")
        return admit(kept, ends, self.log.split, rows, size)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log when it was last asked for, for the query's progress."""
        return StreamOffset(self._seen, self.ids).as_json() if self._seen else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch [start, end); the same batch at every replay, whatever ``start`` says by then."""
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        infos = self.log.topics(last.logs) if last.logs.keys() - self.infos.keys() else self.infos
        check_ids(last.ids, {name: info.log_id for name, info in infos.items()})
        starts = batch_start(first, last)
        check_order(starts, last.logs, "the checkpoint's batch ends before it starts")
        if starts == last.logs:
            return []
        begins = self.log.begins(last.ids)
        starts = keep_or_fail(starts, last.logs, begins, self.options.fail_on_data_loss)
        return plan_slices(self.log, self.options, infos, starts, last.logs)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slice(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is what counts."""

    def stop(self) -> None:
        """Nothing: connections are the process's."""


__all__ = ["WAIT_MS", "LogStreamReader"]
