"""Batch reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import Positions
from dledger.datasource.options.option_table import BATCH
from dledger.datasource.options.options import Options, need_group, need_topics, parse_options
from dledger.datasource.options.sql import HINT, remade
from dledger.datasource.read.loss import check_order, deleted, keep_or_fail, recreated, report
from dledger.datasource.read.planning import Shape, Slice, plan, together
from dledger.datasource.read.reading import check_kind, columns_to_read
from dledger.datasource.read.resolving import Edges, resolve
from dledger.datasource.read.rows import joined, table_rows
from dledger.datasource.read.typed_rows import typed_rows
from dledger.datasource.table.log import Address, Log, fetch
from dledger.datasource.table.stored_body import Body
from dledger.datasource.worker import settle
from dledger.errors import ConfigError, OffsetOutOfRange, TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.json_rows import as_records
from dledger.records.columns.types import Columns

LOGGER: Final = logging.getLogger("dledger.spark")


@dataclass
class LogSlice(InputPartition):
    """The input of one task, in plain values: it travels to an executor that knows nothing else."""

    address: Address
    topic: str
    topic_id: int
    partition: int
    start: int
    end: int
    headers: bool
    metadata: bool
    fail_on_data_loss: bool
    log_id: str = ""
    typed: bool = False
    columns: Columns | None = None
    """The columns that are read of a typed topic; None: keys and values."""
    fail_on_recreate: bool = True
    remade: str = ""
    """For an SQL table the statement that makes it anew."""


@dataclass
class LogSlices(InputPartition):
    """The input of one task where very many partitions have little to read each."""

    parts: list[LogSlice]


class LogReader(DataSourceReader):
    """Reads topics from offsets to offsets; both are fixed when the read is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, BATCH)
        need_group(self.options, HINT)
        need_topics(self.options)
        self.columns = columns_to_read(self.options, schema, Log(self.options))
        self.remade = remade(schema)
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
        log = Log(self.options)
        log.lineage()
        return log.settled(lambda infos: self._plan(log, infos))

    def _plan(self, log: Log, infos: Mapping[str, TopicInfo]) -> Sequence[InputPartition]:
        if not infos:
            raise TopicNotFound(
                f"no topic of {self.options.address} fits option 'subscribePattern', "
                f"{self.options.selection.pattern!r}; topics there: {log.some_names()}"
            )
        edges = Edges.of(log, {name: info.log_id for name, info in infos.items()})
        starts = resolve(
            self.options.starting or Bound(BoundKind.EARLIEST, "startingOffsets"), edges, log
        )
        ends = resolve(self.options.ending or Bound(BoundKind.LATEST, "endingOffsets"), edges, log)
        check_order(
            starts, ends, f"{_said(self.options.starting)} and {_said(self.options.ending)}"
        )
        starts = keep_or_fail(starts, ends, edges.begins, self.options.fail_on_data_loss)
        return plan_slices(log, self.options, infos, starts, ends, self.columns, self.remade)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slice(partition)


def _said(bound: Bound | None) -> str:
    return repr(bound.option) if bound is not None else "the default"


def plan_slices(
    log: Log,
    options: Options,
    infos: Mapping[str, TopicInfo],
    starts: Positions,
    ends: Positions,
    columns: Columns | None = None,
    remade: str = "",
) -> list[InputPartition]:
    """The tasks that read [starts, ends), under these columns of typed topics or as keys and
    values.

    Args:
        remade: for an SQL table the statement that makes it anew.

    Raises:
        ConfigError: a topic is raw, and columns are to be read.
    """
    for topic in ends:
        check_kind(infos[topic], columns)
    shape = Shape(
        options.min_partitions,
        options.max_task_records,
        options.max_task_bytes,
        os.cpu_count() or 2,
    )
    tasks = together(plan(starts, ends, log.split, shape), shape)
    address = replace(log.found(), group_id=log.group_id)
    parts = (
        [
            replace(_input(address, options, infos[one.topic], one, columns), remade=remade)
            for one in task
        ]
        for task in tasks
    )
    return [task[0] if len(task) == 1 else LogSlices(task) for task in parts]


def _input(
    address: Address, options: Options, info: TopicInfo, one: Slice, columns: Columns | None
) -> LogSlice:
    return LogSlice(
        address,
        one.topic,
        info.topic_id,
        one.partition,
        one.start,
        one.end,
        options.include_headers,
        options.include_metadata,
        options.fail_on_data_loss,
        info.log_id,
        info.typed,
        columns,
        not options.restart_recreated,
    )


def read_slice(given: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the executor. Spark passes a bare InputPartition when there is nothing
    to read.

    Raises:
        OffsetOutOfRange, TopicNotFound, TopicRecreated: records went between planning and reading,
            and they must not.
    """
    settle()
    if isinstance(given, LogSlices):
        yield from joined(rows for part in given.parts for rows in _read(part))
    elif isinstance(given, LogSlice):
        yield from _read(given)


def _read(given: LogSlice) -> Iterator[pa.RecordBatch]:
    start = given.start
    while start < given.end:
        try:
            bodies = fetch(given.address, given.topic_id, given.partition, start, given.end)
            for rows in _rows(given, bodies, start):
                yield rows
                start += rows.num_rows
        except OffsetOutOfRange as error:
            if error.begin <= start:
                raise  # nothing was removed: the log ends before the slice does
            kept = min(error.begin, given.end)
            report(
                [f"{given.topic}/{given.partition} offsets {start} to {kept - 1}"],
                given.fail_on_data_loss,
            )
            start = kept
        except TopicNotFound:
            _check_gone(given, start)
            return


def _check_gone(given: LogSlice, start: int) -> None:
    """Whether a task may end before its time because its topic is not there any more; a warning
    when it may.

    Raises:
        TopicNotFound, TopicRecreated: it may not, by the user's word.
    """
    what = f"records {start} to {given.end - 1} of partition {given.partition}"
    try:
        again = given.address.client().topic(given.topic).log_id != given.log_id
    except TopicNotFound:
        again = False
    if again:
        LOGGER.warning("%s", recreated(given.topic, what, given.log_id, given.fail_on_recreate))
    else:
        LOGGER.warning("%s", deleted(given.topic, what, given.fail_on_data_loss))


def _rows(given: LogSlice, bodies: Iterable[Body], start: int) -> Iterator[pa.RecordBatch]:
    at = (given.topic, given.partition, start, given.end)
    if not given.typed:
        return table_rows(bodies, *at, given.headers, given.metadata)
    info = TopicInfo(
        name=given.topic,
        topic_id=given.topic_id,
        log_id=given.log_id,
        partitions=given.partition + 1,
    )
    client = given.address.client()

    def schemas(version: int) -> Columns:
        return client.schema(info, version)

    if given.columns is not None:
        return typed_rows(bodies, *at, schemas, given.columns, given.metadata, given.remade)
    return table_rows(
        bodies, *at, given.headers, given.metadata, lambda body: as_records(body, schemas)
    )
