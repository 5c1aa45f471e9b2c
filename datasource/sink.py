"""The sink that writes each batch of a query exactly once, for streams, foreachBatch and batch jobs.

A task stages its records: they are in the log, replicated, but have no offsets and nobody reads them. The driver
commits all stages of a write with one entry. A transaction is (writer id, sequence); committing it again is a success
that changes nothing, and a task that comes to a committed transaction does not even send its records.

=====================  ===================================  ==========
write                  writer id                            sequence
=====================  ===================================  ==========
writeStream            ``spark/<query id>``                 batch id
in foreachBatch        ``spark/<query id>/<topic>/<txnId>`` batch id
batch, with a txnId    ``txn/<txnId>``                      0
batch                  ``job/<uuid>``                       0
=====================  ===================================  ==========

Spark tells a task the query id, which lives in the checkpoint, and the batch id; both are the same when a batch is run
again. In foreachBatch ``<topic>`` is the option, or ``*`` when a column says it, so that writes to several topics are
different transactions. Two writes of one batch to the same topic cannot be told apart from the same write run twice,
whatever their order or content, so the second one is refused until it has an option ``txnId`` of its own
(``dledger.datasource.claims``).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from dledger.client import Client, Committed
from dledger.client.staging import Stage
from dledger.datasource.claims import Claim, check_claim, claim
from dledger.datasource.log import Address, Log, find_group
from dledger.datasource.options import Options, need_group
from dledger.datasource.records import Coalescer, Router
from dledger.datasource.schema import WriteColumns, check_write_schema
from dledger.errors import ConfigError, DLedgerError, TopicExists, TopicNotFound
from dledger.messages.command import StageSum

BY_COLUMN: Final = "*"
"""Stands for the topic of a write whose rows name theirs."""


@dataclass(frozen=True, slots=True)
class Task:
    """What Spark tells a task about itself."""

    partition: int
    attempt: int
    query_id: str | None
    """Of the streaming query, from its checkpoint; None outside of one."""
    run_id: str
    """Of this run of the query; another one after each start."""
    batch_id: int

    @staticmethod
    def current() -> Task:
        """The task that this code runs in."""
        context = TaskContext.get()
        if context is None:
            return Task(0, 0, None, "", 0)
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId") if batch is not None else None
        run = context.getLocalProperty("spark.jobGroup.id") or ""
        return Task(context.partitionId(), context.attemptNumber(), query, run, int(batch or 0))

    @property
    def label(self) -> str:
        """Who writes a stage, for people."""
        return f"partition {self.partition} attempt {self.attempt}"


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the driver: which transaction it wrote for, and its stage if it had any records."""

    writer_id: str
    sequence: int
    stage: StageSum | None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Everything a task needs to write, as plain values."""

    address: Address
    columns: WriteColumns
    topic: str
    create_topic: bool
    create_partitions: int
    timeout_ms: int

    @staticmethod
    def plan(options: Options, schema: StructType) -> Sink:
        """Check the frame and find the group; on the driver's side, once for each write.

        Raises:
            ConfigError: columns or options cannot be.
            TopicNotFound: the topic of option ``topic`` is not there and is not to be created.
        """
        need_group(options)
        columns = check_write_schema(schema, options.topic)
        address = find_group(options, create=True)
        address = replace(address, settings={**address.settings, "compression": options.compression})
        if options.topic and not options.create_topic:
            Log(options, address).topics([options.topic])
        return Sink(
            address, columns, options.topic, options.create_topic, options.create_partitions, options.txn_timeout_ms
        )

    def stage(
        self, batches: Iterable[pa.RecordBatch], task: Task, writer_id: str, sequence: int, claim: Claim | None = None
    ) -> Staged:
        """Stage a task's records.

        Raises:
            DLedgerError: they are not all staged; what was is dropped.
        """
        client = self.address.client()
        nothing = Staged(writer_id, sequence, None, claim)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return nothing
        stage = client.stage(writer_id, sequence, task.label, self.timeout_ms)
        if isinstance(stage, Committed):
            for _ in filled:  # Spark goes on sending; a worker that stops listening is thrown away
                pass
            return nothing
        router = Router(self.columns, self.topic, Partitions(client, self), task.partition)
        coalescer = Coalescer()
        try:
            for topic, partition, records in router.route(first):
                for part in coalescer.add(topic, partition, records):
                    stage.append_batch(*part)
            for batch in filled:
                for topic, partition, records in router.route(batch):
                    for part in coalescer.add(topic, partition, records):
                        stage.append_batch(*part)
            for part in coalescer.rest():
                stage.append_batch(*part)
            return Staged(writer_id, sequence, stage.close(), claim)
        except BaseException:
            self._drop(client, writer_id, sequence, stage)
            raise

    @staticmethod
    def _drop(client: Client, writer_id: str, sequence: int, stage: Stage) -> None:
        stage.cancel()
        with suppress(DLedgerError):  # it times out by itself, and the first error is the one to tell
            client.abort_transaction(writer_id, sequence, stage_ids=(stage.stage_id,))

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> Committed | None:
        """Commit a write; None when it had no records.

        Raises:
            ConfigError: another write of this batch has the same name.
            DLedgerError: not committed, or (OutcomeUnknown) perhaps; the same batch run again does the rest.
        """
        staged = [m for m in messages if isinstance(m, Staged)]
        if not staged:
            return None
        first = staged[0]
        if first.claim is not None:
            check_claim(first.claim)
        stages = [m.stage for m in staged if m.stage is not None]
        done = None
        if stages:
            done = self.address.client().commit_transaction(first.writer_id, first.sequence, stages)
        if first.claim is not None:
            claim(first.claim)
        return done

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of a failed write staged. A commit that has happened stands."""
        staged = [m for m in messages if isinstance(m, Staged) and m.stage is not None]
        if not staged:
            return  # no stage ids would mean all stages, also those of a run that goes on
        ids = tuple(m.stage.stage_id for m in staged if m.stage is not None)
        self.address.client().abort_transaction(staged[0].writer_id, staged[0].sequence, stage_ids=ids)


@dataclass(slots=True)
class Partitions:
    """How many partitions a topic has; creates the topic where that is wanted."""

    client: Client
    sink: Sink
    known: dict[str, int] | None = None

    def __call__(self, topic: str) -> int:
        known = self.known = {} if self.known is None else self.known
        if topic not in known:
            known[topic] = self._look_up(topic)
        return known[topic]

    def _look_up(self, topic: str) -> int:
        try:
            return self.client.topic(topic).partitions
        except TopicNotFound as error:
            if not self.sink.create_topic:
                raise TopicNotFound(
                    f"topic {topic!r} does not exist in {self.sink.address.bootstrap_servers}: create it "
                    "(dledger topics --create, Client.create_topic), or set option 'createTopic' to true"
                ) from error
        with suppress(TopicExists):  # another task was first
            self.client.create_topic(topic, partitions=self.sink.create_partitions)
        return self.client.topic(topic).partitions


def refuse_overwrite(overwrite: bool, what: str) -> None:
    """A log is only ever appended to.

    Raises:
        ConfigError: saying what to write instead.
    """
    if overwrite:
        raise ConfigError(
            f"{what} would replace what is in the topic, and a log only grows: "
            "use .mode('append') or .outputMode('append'); to start a topic over, delete it first "
            "(Client.delete_topic), and to keep the last state of an aggregate, write it with a key from foreachBatch"
        )


__all__ = ["BY_COLUMN", "Sink", "Staged", "Task", "refuse_overwrite"]
