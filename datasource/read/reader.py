"""Batch reads, and what streams share with them: the tasks of a read, and their rows."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dledger.client import Client
from dledger.client.protocol.reading.damage import DamagePolicy
from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import Positions
from dledger.datasource.options.option_table import BATCH
from dledger.datasource.options.options import need_group, need_topics, parse_options
from dledger.datasource.options.sql import HINT, remade
from dledger.datasource.read.loss import check_order, deleted, keep_or_fail, recreated, report
from dledger.datasource.read.planning import Shape, plan, together
from dledger.datasource.read.reading import check_kind, columns_to_read
from dledger.datasource.read.resolving import resolve
from dledger.datasource.table.log import Address, GroupView, Log
from dledger.datasource.worker import settle
from dledger.errors import ConfigError, OffsetOutOfRange, TopicNotFound
from dledger.protocol.messages.client import TopicInfo

if TYPE_CHECKING:  # what a process that plans a query, and reads no rows, need not load
    import pyarrow as pa

    from dledger.client.protocol.reading.fetched import FetchedBodies
    from dledger.records.columns.types import Columns

LOGGER: Final = logging.getLogger("dledger.spark")
DAMAGE_WAY: Final = (
    "set option 'onDamage' to skip, or read from offset {end} on: a batch by 'startingOffsets', a "
    "stream with a new checkpointLocation too"
)


@dataclass
class LogSlice(InputPartition):
    """The input of one task, in plain values: it travels to an executor that knows only the reader
    beside it."""

    address: Address
    info: TopicInfo
    partition: int
    start: int
    end: int


@dataclass
class LogSlices(InputPartition):
    """The input of one task where very many partitions have little to read each: columns."""

    address: Address
    infos: list[TopicInfo]
    partitions: list[int]
    starts: list[int]
    ends: list[int]

    def __iter__(self) -> Iterator[LogSlice]:
        columns = self.infos, self.partitions, self.starts, self.ends
        return (LogSlice(self.address, *one) for one in zip(*columns, strict=True))


class TopicReads:
    """A read of topics, of a batch or a stream: its options, its tasks, and their rows. Spark
    pickles it to the executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, use: str) -> None:
        self.options = parse_options(options, use)
        need_group(self.options, HINT)
        need_topics(self.options)
        self.log = Log(self.options)
        self.columns = columns_to_read(self.options, schema, self.log)
        self.remade = remade(schema)
        """For an SQL table the statement that makes it anew."""

    def tasks(
        self, log: Log, infos: Mapping[str, TopicInfo], starts: Positions, ends: Positions
    ) -> list[InputPartition]:
        """The tasks that read [starts, ends).

        Raises:
            ConfigError: a topic is raw, and columns of typed ones are to be read.
        """
        for topic in ends:
            check_kind(infos[topic], self.columns)
        shape = Shape(
            self.options.min_partitions,
            self.options.max_task_records,
            self.options.max_task_bytes,
            os.cpu_count() or 2,
        )
        address = replace(log.found(), group_id=log.group_id)
        tasks: list[InputPartition] = []
        for task in together(plan(starts, ends, log, shape), shape):
            topics = list(map(infos.__getitem__, task.topics))
            slices = LogSlices(address, topics, task.partitions, task.starts, task.ends)
            tasks += slices if len(topics) == 1 else (slices,)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in the executor. Spark passes a bare InputPartition when there is
        nothing to read.

        Raises:
            OffsetOutOfRange, TopicNotFound, TopicRecreated: records went between planning and
                reading, and they must not.
            UnreadableBatch: records cannot be opened, and are not to be left out.
        """
        settle()
        if isinstance(partition, LogSlices):
            from dledger.datasource.read.rows import joined

            yield from joined(rows for part in partition for rows in self._read(part))
        elif isinstance(partition, LogSlice):
            yield from self._read(partition)

    def _read(self, given: LogSlice) -> Iterator[pa.RecordBatch]:
        start, info, client = given.start, given.info, given.address.client()
        damage = self._damage(info.name, given.partition)
        while start < given.end:
            try:
                at = info.topic_id, given.partition, start, given.end
                with closing(client.fetch(*at, damage=damage)) as answers:
                    for rows, behind in self._rows(given, client, answers, start):
                        yield rows
                        start = behind
            except OffsetOutOfRange as error:
                if error.begin <= start:
                    raise  # nothing was removed: the log ends before the slice does
                kept = min(error.begin, given.end)
                report(
                    [f"{info.name}/{given.partition} offsets {start} to {kept - 1}"],
                    self.options.fail_on_data_loss,
                )
                start = kept
            except TopicNotFound:
                self._check_gone(given, client, start)
                return

    def _damage(self, topic: str, partition: int) -> DamagePolicy:
        return DamagePolicy(topic, partition, self.options.on_damage, DAMAGE_WAY, "'onDamage'")

    def _check_gone(self, given: LogSlice, client: Client, start: int) -> None:
        """Whether a task may end before its time because its topic is not there any more; a warning
        when it may.

        Raises:
            TopicNotFound, TopicRecreated: it may not, by the user's word.
        """
        name, log_id = given.info.name, given.info.log_id
        what = f"records {start} to {given.end - 1} of partition {given.partition}"
        try:
            again = client.topic(name).log_id != log_id
        except TopicNotFound:
            again = False
        if again:
            text = recreated(name, what, log_id, not self.options.restart_recreated)
        else:
            text = deleted(name, what, self.options.fail_on_data_loss)
        LOGGER.warning("%s", text)

    def _rows(
        self, given: LogSlice, client: Client, answers: Iterable[FetchedBodies], start: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        from dledger.datasource.read.rows import table_rows
        from dledger.datasource.read.typed_rows import typed_rows
        from dledger.records.body.json_rows import as_records

        at, wanted = (given.info.name, given.partition, start, given.end), self.columns

        def schemas(version: int) -> Columns:
            return client.schema(given.info, version)

        if wanted.typed is not None and given.info.typed:
            return typed_rows(answers, *at, schemas, wanted.typed, wanted.has_place, self.remade)
        assert wanted.records is not None, "check_kind has refused a raw topic"
        decode = partial(as_records, schemas=schemas) if given.info.typed else None
        return table_rows(answers, *at, wanted.records, decode)


class LogReader(TopicReads, DataSourceReader):
    """Reads topics from offsets to offsets; both are fixed when the read is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, use=BATCH)
        starting, ending = self.options.starting, self.options.ending
        if starting is not None and starting.kind is BoundKind.LATEST:
            raise ConfigError(
                "'startingOffsets' latest would read nothing in a batch: write earliest or JSON"
            )
        if ending is not None and ending.kind is BoundKind.EARLIEST:
            raise ConfigError("'endingOffsets' earliest would read nothing: write latest or JSON")

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve both offsets and cut the records between into tasks."""
        settle()
        log = Log(self.options)  # its answers need not travel to the tasks
        log.lineage()
        return log.settled(lambda infos: self._plan(log, infos))

    def _plan(self, log: Log, infos: Mapping[str, TopicInfo]) -> Sequence[InputPartition]:
        if not infos:
            raise TopicNotFound(
                f"no topic of {self.options.address} fits option 'subscribePattern', "
                f"{self.options.selection.pattern!r}; topics there: {log.some_names()}"
            )
        edges = log.edges({name: info.log_id for name, info in infos.items()})
        starting, ending = self.options.starting, self.options.ending
        starts = resolve(starting or Bound(BoundKind.EARLIEST, "startingOffsets"), edges, log)
        ends = resolve(ending or Bound(BoundKind.LATEST, "endingOffsets"), edges, log)
        check_order(starts, ends, f"{_said(starting)} and {_said(ending)}")
        starts = keep_or_fail(starts, ends, edges.begins, self.options.fail_on_data_loss)
        return self.tasks(log, infos, *self.limited(log, edges, starts, ends))

    def limited(
        self, log: Log, edges: GroupView, starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        """The part of [starts, ends) that is read: here all of it."""
        return starts, ends


def _said(bound: Bound | None) -> str:
    return repr(bound.option) if bound is not None else "the default"
