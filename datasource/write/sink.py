"""The sink that writes each batch of a query exactly once, for streams, foreachBatch and batch
jobs.

A task stages its records: they are in the log, replicated, but have no offsets and are not read.
The driver commits all stages of a write with one entry. A transaction is (writer id, sequence);
committing it again is a success that changes nothing, and a task that comes to a committed
transaction does not even send its records.

=====================  ===================================  ==========
write                  writer id                            sequence
=====================  ===================================  ==========
writeStream            ``spark/<query id>/<topic>``         batch id
in foreachBatch        ``spark/<query id>/<topic>/<txnId>`` batch id
batch, with a txnId    ``txn/<txnId>/<topic>``              0
batch                  ``job/<uuid>``                       0
=====================  ===================================  ==========

Spark tells a task the query id, which lives in the checkpoint, and the batch id; both are the same
when a batch is run again. ``<topic>`` is the option, or ``*`` when a column says it, so that writes
to several topics are different transactions. Until 0.2 the first and the third had no topic; a
commit by such a name counts for the topics that it wrote to.

Both are the same, too, when a checkpoint was restored from an older copy, or copied for another
query, and then the batch of that number has other rows. So the commit also has the count and digest
of all rows (`dledger.records.digest`), and a repeat with others is an error (``onReplayMismatch``).
A plain batch write is never run again under its name, and needs none.

Two writes of one batch to the same topic cannot be told apart from the same write run twice, in any
order and with any content, so the second one is refused until it has an option ``txnId`` of its own
(``dledger.datasource.write.write_fence``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from dledger.client import Client, Committed
from dledger.client.blocking.staging import Stage
from dledger.client.protocol.operations.schemas import TypedTopic
from dledger.datasource.options.options import Options, need_group
from dledger.datasource.options.sql import WRITE_HINT
from dledger.datasource.table.log import Address, Log, find_group
from dledger.datasource.table.schema import WriteColumns, check_partitioner, check_write_schema
from dledger.datasource.table.typed import (
    EVOLVE,
    check_partitions,
    columns_of,
    find_topic,
    has_names_of_records,
    is_typed_write,
    open_topic,
)
from dledger.datasource.write import replays
from dledger.datasource.write.direct import Appends
from dledger.datasource.write.exactly_once_key import WriteTransaction
from dledger.datasource.write.records import Router, TypedRouter
from dledger.datasource.write.sink_task import Staged, Task
from dledger.datasource.write.write_fence import check_claim, claim
from dledger.errors import ConfigError, DLedgerError, ReplayMismatch
from dledger.protocol.messages.client import TopicInfo
from dledger.records.digest import RowsSum, sum_rows
from dledger.records.frames.coalescing import Coalescer
from dledger.records.frames.spreading import Spread

BY_COLUMN: Final = "*"
"""Stands for the topic of a write whose rows name theirs."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The plan of a write, as plain values for its tasks."""

    address: Address
    columns: WriteColumns | TypedTopic
    options: Options

    @property
    def topic(self) -> str:
        """Of the option, or what stands for those that rows name."""
        return self.options.topic or BY_COLUMN

    @staticmethod
    def plan(options: Options, schema: StructType) -> Sink:
        """Check the frame and find the group; on the driver, once for each write.

        Raises:
            ConfigError: columns or options cannot be.
            TopicNotFound: the topic of option ``topic`` is not there and is not to be created.
        """
        need_group(options, WRITE_HINT)
        if has_names_of_records(schema) and options.topic_type != "typed":
            check_write_schema(schema, options.topic)  # before a group is started for nothing
        address = find_group(options, create=True)
        address = replace(
            address, settings={**address.settings, "compression": options.compression}
        )
        client = address.client()
        columns = _columns(options, schema, client)
        if isinstance(columns, WriteColumns) and options.topic:
            if not options.create_topic:
                Log(options, address).topics([options.topic])
            elif (info := find_topic(client, options.topic)) is not None:
                check_partitions(options, info)
        return Sink(address, columns, options)

    def stage(
        self, batches: Iterable[pa.RecordBatch], task: Task, transaction: WriteTransaction
    ) -> Staged:
        """Stage a task's records; with at-least-once append them.

        Raises:
            DLedgerError: they are not all staged; those that are get dropped.
        """
        client = self.address.client()
        staged = Staged(transaction)
        filled: Iterator[pa.RecordBatch] = (batch for batch in batches if batch.num_rows)
        if self.options.exactly_once and transaction.may_be_repeated:
            filled = self._summed(filled, staged)
        first = next(filled, None)
        if first is None:
            return staged
        if not self.options.exactly_once:
            self._append(client, itertools.chain((first,), filled), task)
            return staged
        stage = client.stage(
            transaction.writer_id, transaction.sequence, task.label, self.options.txn_timeout_ms
        )
        if isinstance(stage, Committed):
            # the commit wants their digest; and a worker that stops listening is thrown away
            for _ in filled:
                pass
            return staged
        try:
            self._send(client, itertools.chain((first,), filled), task, stage)
            staged.stage = stage.close()
        except BaseException:
            self._drop(client, transaction, stage)
            raise
        return staged

    def _summed(
        self, batches: Iterable[pa.RecordBatch], staged: Staged
    ) -> Iterator[pa.RecordBatch]:
        columns = (
            None
            if isinstance(self.columns, TypedTopic)
            else [at for at in astuple(self.columns) if at >= 0]
        )
        for batch in batches:
            staged.rows += sum_rows(batch, columns)
            yield batch

    def _append(self, client: Client, batches: Iterable[pa.RecordBatch], task: Task) -> None:
        appends = Appends(client)
        try:
            self._send(client, batches, task, appends)
            appends.close()
        except BaseException:
            appends.cancel()
            raise

    def _send(
        self, client: Client, batches: Iterable[pa.RecordBatch], task: Task, to: Stage | Appends
    ) -> None:
        topics: dict[str, TopicInfo] = {}
        router: Router | TypedRouter
        spread = Spread(self.options.partitioner, task.partition)
        if isinstance(self.columns, TypedTopic):
            topics = {self.topic: self.columns.info}  # this very topic, whose columns are known
            router = TypedRouter(self.columns, spread)
        else:
            hint = "dledger topics create, Client.create_topic"
            router = Router(
                self.columns,
                self.options.topic,
                spread=spread,
                partitions_of=cache(
                    lambda topic: open_topic(client, self.options, topic, hint).partitions
                ),
            )
        coalescer = Coalescer()
        routed = (rows for batch in batches for rows in router.route(batch))
        full = (body for rows in routed for body in coalescer.add(*rows))
        for topic, partition, records in itertools.chain(full, coalescer.rest()):
            to.append_batch(topics.get(topic, topic), partition, records)

    @staticmethod
    def _drop(client: Client, transaction: WriteTransaction, stage: Stage) -> None:
        stage.cancel()
        # it times out by itself, and the first error is the one to tell
        with suppress(DLedgerError):
            client.abort_transaction(
                transaction.writer_id, transaction.sequence, stage_ids=(stage.stage_id,)
            )

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> Committed | None:
        """Commit a write; None when it had no records, or only others than those that stand.

        Raises:
            ConfigError: another write of this batch has the same name.
            ReplayMismatch: it was committed already with other rows, and those are not to stand.
            DLedgerError: not committed, or (OutcomeUnknown) perhaps; the same batch run again does
                the rest.
        """
        staged = [m for m in messages if isinstance(m, Staged)]
        if not staged:
            return None
        transaction = staged[0].transaction
        if transaction.claim is not None:
            check_claim(transaction.claim)
        done = self._commit(transaction, staged)
        if transaction.claim is not None:
            claim(transaction.claim)
        return done

    def _commit(self, transaction: WriteTransaction, staged: Sequence[Staged]) -> Committed | None:
        stages = [one.stage for one in staged if one.stage is not None]
        rows = sum((one.rows for one in staged), RowsSum())
        if not stages and not rows.count:
            return None
        client, name = self.address.client(), (transaction.writer_id, transaction.sequence)
        if not transaction.may_be_repeated:
            return client.commit_transaction(*name, stages)
        try:
            done = client.commit_transaction(*name, stages, rows, transaction.formerly)
        except ReplayMismatch as error:
            if not self.options.keeps_committed:
                raise ReplayMismatch(replays.explain(transaction.writer_id, error)) from error
            replays.tell_kept(error)
            self.abort(staged)
            return None
        replays.tell_repeated(transaction.writer_id, transaction.sequence, done)
        return done

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Drop the staged batches of a failed write's tasks. A commit that has happened stands."""
        staged = [m for m in messages if isinstance(m, Staged) and m.stage is not None]
        if not staged:
            return  # no stage ids would mean all stages, also those of a run that goes on
        ids = tuple(m.stage.stage_id for m in staged if m.stage is not None)
        transaction = staged[0].transaction
        self.address.client().abort_transaction(
            transaction.writer_id, transaction.sequence, stage_ids=ids
        )


def _columns(options: Options, schema: StructType, client: Client) -> WriteColumns | TypedTopic:
    """The columns and topics of a write; for a typed topic agreed upon with it.

    Raises:
        ConfigError: columns or options cannot be, or (SchemaMismatch) do not fit the topic.
        TopicNotFound: the typed topic is not there and is not to be created.
    """
    if not is_typed_write(options, schema, lambda: find_topic(client, options.topic)):
        for name, given in (("keyColumn", options.key_column), ("timeColumn", options.time_column)):
            if given:
                raise ConfigError(
                    f"option {name!r} is for typed topics; in a raw one the columns 'key' and "
                    f"'timestamp' are these"
                )
        columns = check_write_schema(schema, options.topic)
        check_partitioner(columns, options.partitioner)
        return columns
    if options.partitioner == "explicit":
        raise ConfigError(
            "option 'partitioner' is explicit, but a typed topic's rows say no partition: leave it "
            "away, and name the column that says it with 'keyColumn'"
        )
    frame = columns_of(schema, options.key_column, options.time_column)
    hint = f"Client.create_topic({options.topic!r}, type='typed')"
    info = open_topic(client, options, options.topic, hint, type="typed")
    if not info.typed:
        raise ConfigError(
            f"topic {info.name!r} was created as a raw one meanwhile: write to another topic"
        )
    return client.agree_schema(info, frame, evolve=options.evolves, way=EVOLVE)


def refuse_overwrite(overwrite: bool, what: str) -> None:
    """A log is only ever appended to.

    Raises:
        ConfigError: with the remedy.
    """
    if overwrite:
        raise ConfigError(
            f"{what} would replace what is in the topic, and a log only grows: "
            "use .mode('append') or .outputMode('append'); to start a topic over, delete it first "
            "(Client.delete_topic), and to keep the last state of an aggregate, write it with a "
            "key from foreachBatch"
        )
