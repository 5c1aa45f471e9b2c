"""The blocking client."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.background_loop import background
from dledger.client.blocking.reads import ReadingClient
from dledger.client.blocking.transport import BlockingTransport, IdleTransports
from dledger.client.protocol.appending import Appendable, append, records_of
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.consuming.settings import ConsumerSettings, commit_seconds
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.reading.damage import FAIL
from dledger.client.protocol.results import Appended, Committed, OnDelivery
from dledger.errors import DLedgerError
from dledger.interrupts import is_interrupt
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.one_record import OneRecord
from dledger.tracing import API, begin_append

if TYPE_CHECKING:  # what loads Arrow, which not every program with a client needs
    import pyarrow as pa

    from dledger.client.blocking.consumer import Consumer
    from dledger.client.blocking.producer import Producer
    from dledger.client.blocking.staging import Stage, Transaction
    from dledger.client.protocol.consuming.callbacks import OnChange
    from dledger.client.protocol.writing.pieces import Pieces
    from dledger.records.body.build import Headers, Times, Values
    from dledger.records.frames.frames import Rows


@checked
class Client(ReadingClient):
    """Talks to a group of nodes; finds the leader by itself and retries calls where that is safe.

    No connection is opened before the first call. Threads may share a client; each call takes
    connections of its own. A client survives pickling (as its settings) and fork (the child
    connects anew).

    Args:
        bootstrap_servers: ``host:port,...``: any nodes of the group; the others are learned from
            them. Or the path of a log, as for Spark and the command line: a directory with a slash
            in its name, or that is there. The group in it is joined, or started where it does not
            run, and stays for as long as this program or another one uses it; `close` does not end
            it.
        group: the group's name, to be refused by any other; empty: that of the first node that
            answers.
        group_id: the id drawn at the group's founding (`lineage`), to be refused by any other, a
            copy of it too.
        settings: those of `dledger.config.ClientConfig`.

    Raises:
        ConfigError, UnknownOption: an address or a setting cannot be.
        PathError, Unavailable: the directory cannot be used, or its group did not start.
    """

    def __init__(
        self,
        bootstrap_servers: str | os.PathLike[str],
        *,
        group: str = "",
        group_id: str = "",
        **settings: Any,
    ) -> None:
        self.core = ClientState.make(bootstrap_servers, group, settings, group_id=group_id)
        self._settings = {"group": group, "group_id": group_id, **settings}
        self._transports = IdleTransports()
        self._shared: AsyncTransport | None = None
        self._pid = os.getpid()

    def __reduce__(self) -> Any:
        return _restore, (self.core.bootstrap_servers, self._settings)

    def __repr__(self) -> str:
        return f"Client({self.core.bootstrap_servers!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; those of calls under way, as of readers in other threads, when
        these end. A later call opens new ones."""
        idle, self._transports = self._transports, IdleTransports()
        idle.close()
        shared, self._shared = self._shared, None
        if shared is not None and self._pid == os.getpid():
            background().run(shared.close)

    @property
    def bootstrap_servers(self) -> str:
        return self.core.bootstrap_servers

    def _transport(self) -> BlockingTransport:
        """A transport for this caller alone: a context, whose end gives it to the next call."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        try:
            # the last one used: its session and connections are warm; pop is atomic
            return self._transports.pop()
        except IndexError as error:
            if is_interrupt(error):
                raise
            return BlockingTransport(self.core, self._transports)

    def _leave_to_parent(self) -> None:
        """A child must not talk on its parent's connections; it may close its copies."""
        self._shared = None
        transports, self._transports = self._transports, IdleTransports()
        for transport in transports:
            transport.close()
        # last: an interrupt before it leaves all of it to the next call
        self._pid = os.getpid()

    def _async_transport(self) -> AsyncTransport:
        """Connections of the background loop, on which pipelines run."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        if self._shared is None:
            self._shared = AsyncTransport(self.core)
        return self._shared

    def _run(self, operation: Operation[T]) -> T:
        with self._transport() as transport:
            return transport.run(operation)

    # writing

    def append(
        self,
        topic: str,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> Appended:
        """Append records; returns when a quorum has them on disk. Either all of them are there, or
        none.

        Without ``partition`` each record goes where the hash of its key says, as with Kafka;
        records without keys go to one partition, another one for each call.

        Args:
            values: one record's bytes or text, a list of them, or an Arrow array; ``keys``
                likewise, of the same length, and ``key`` for one record. Text is stored as UTF-8.
                Or a table: of pyarrow, Polars, pandas, DuckDB, or any object with
                ``__arrow_c_stream__``; a list of dicts or dataclass instances; a dict of columns.
                A typed topic takes tables of its columns, and its first one says what they are;
                one of keys and values takes tables of ``value`` and any of ``key``, ``headers``,
                ``timestamp`` and ``partition``.
            headers: (text, bytes) pairs for all, or one list of pairs for each record.
            timestamps: microseconds since 1970 UTC or datetimes; without them, now.
            evolve: let new and wider columns of the table become a typed topic's.

        Raises:
            TopicNotFound, RecordTooLarge, ConfigError, DiskFull, Unavailable: nothing was written.
            SchemaMismatch: likewise; the table does not fit the topic, or the topic has no tables.
            OutcomeUnknown: it may have been written.
        """
        if not isinstance(values, (bytes, str)):
            from dledger.client.protocol.writing.pieces import check_alone, pieces_of
            from dledger.records.frames.frames import is_frame

            if is_frame(values):
                check_alone(key=key, keys=keys, headers=headers, timestamps=timestamps)
                return self._append_all(
                    self._run(pieces_of(self.core, topic, values, partition, evolve))
                )
        span = begin_append(topic, headers) if API in sys.modules else None
        if span is not None:
            headers = span.headers
        records = records_of(
            self.core, values, key=key, keys=keys, headers=headers, timestamps=timestamps
        )
        if span is None:
            return self._append(topic, partition, records)
        with span:
            return self._append(topic, partition, records)

    def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> Appended:
        """Append a batch of ``value`` and any of ``key``, ``timestamp``, ``headers``; see
        `append`."""
        return self._append(topic, partition, batch)

    def _append(
        self, topic: str | TopicInfo, partition: int | None, records: Appendable
    ) -> Appended:
        if partition is None and isinstance(topic, str) and not isinstance(records, OneRecord):
            from dledger.client.protocol.writing.pieces import several_of

            several = self._run(several_of(self.core, topic, records))
            if several is not None:
                return self._append_all(several)
        with self._transport() as transport:
            return transport.run(append(self.core, transport, topic, partition, records))

    def _append_all(self, pieces: Pieces) -> Appended:
        """Pieces for several partitions, or too large for one entry, become visible together."""
        from dledger.client.blocking.staging import Stage
        from dledger.client.protocol.writing.pieces import appended_by, writer_of_one_append

        (partition, records), all_of_them = pieces.first_two()
        if all_of_them is None:
            return self._append(pieces.info, partition, records)
        writer = writer_of_one_append(self.core)
        stage = self.stage(writer, 0)
        assert isinstance(stage, Stage)
        try:
            for partition, records in all_of_them.pieces:
                stage.append_all([(pieces.info, partition, records)])
            total = stage.close()
        except BaseException:
            stage.cancel()
            with suppress(DLedgerError):  # it times out by itself; the first error is to be told
                self.abort_transaction(writer, 0, stage_ids=(stage.stage_id,))
            raise
        return appended_by(pieces.info, self.commit_transaction(writer, 0, (total,)))

    def producer(
        self,
        topic: str,
        *,
        partition: int | None = None,
        name: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Producer:
        """A pipelined, idempotent, ordered producer for one topic.

        Args:
            partition: where all records go; None: as `append` does.
            name: a name that stays: opening it again fences its former producer, so that a zombie
                cannot write.
            on_delivery: called with a `Delivery` for each batch that is answered, in the thread
                that takes the answers: it must not wait. Its exceptions are logged.
        """
        from dledger.client.blocking.producer import Producer

        opened = self._run(transactions.open_producer(self.core, topic, name))
        return Producer(
            self.core,
            self._async_transport(),
            run=self._run,
            opened=opened,
            partition=partition,
            on_delivery=on_delivery,
        )

    def consumer(
        self,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        max_poll_interval_ms: int = 300_000,
        auto_offset_reset: str = "earliest",
        commit: str | float = "manual",
        max_bytes: int = 32 << 20,
        on_damage: str = FAIL,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> Consumer:
        """A member of a consumer group: it reads its share of these topics, and no other member
        reads it at that time.

        Args:
            group: the group's name; its committed offsets outlive its members.
            topics: those to read, which must be there.
            pattern: a regular expression of whole names in their place, also of later topics.
            instance_id: makes a static member: it has its partitions again when it comes back
                under this name within its session's time-out.
            session_timeout_ms: a member that is not heard of for so long is gone, 1000 or more.
            max_poll_interval_ms: a program that asks for nothing for so long is taken for stuck,
                and its consumer leaves the group until it asks again.
            auto_offset_reset: where to begin when the group has committed nothing, or the records
                there are not kept any more: "earliest", "latest", or "error".
            commit: "manual", or seconds between commits, which come when the program asks for more.
            max_bytes: stored bytes that are fetched ahead of the program, over all partitions.
            on_damage: "fail", or "skip" records that nobody can open, with a warning.
            on_assigned: called with partitions that this member was given, before any record.
            on_revoked: called with those that it is to give back, still able to commit.
            on_lost: called with those that others may have already; without it, ``on_revoked``.

        Raises:
            TopicNotFound, ConfigError: no such topic, or an argument cannot be.
        """
        from dledger.client.blocking.consumer import Consumer
        from dledger.client.protocol.consuming.callbacks import Callbacks

        settings = ConsumerSettings(
            group=group,
            topics=tuple(topics),
            pattern=pattern or "",
            instance_id=instance_id or "",
            session_timeout_ms=session_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            auto_offset_reset=auto_offset_reset,
            commit_s=commit_seconds(commit),
            max_bytes=max_bytes,
            on_damage=on_damage,
        )
        callbacks, transport = Callbacks(on_assigned, on_revoked, on_lost), self._async_transport()
        return Consumer(
            self.core, self._run, transport=transport, settings=settings, callbacks=callbacks
        )

    def transaction(
        self, writer_id: str, sequence: int, *, label: str = "", timeout_ms: int = 600_000
    ) -> Transaction:
        """A transaction: appends that become visible together. Safe to repeat as a whole after any
        failure.

        Args:
            writer_id: the writer's name; its sequences only grow.
            label: for people.
            timeout_ms: dropped when not committed by then.
        """
        from dledger.client.blocking.staging import Transaction

        stage = self.stage(writer_id, sequence, label, timeout_ms)
        return Transaction(
            self.core, self._run, stage=stage, writer_id=writer_id, sequence=sequence
        )

    def stage(
        self, writer_id: str, sequence: int, label: str = "", timeout_ms: int = 600_000
    ) -> Stage | Committed:
        """A stage of the transaction (writer_id, sequence), for one of several writers;
        `commit_transaction` commits them all. The result, when it is committed already."""
        from dledger.client.blocking.staging import Stage

        opened = self._run(transactions.open_stage(writer_id, sequence, label, timeout_ms))
        if isinstance(opened, Committed):
            return opened
        what = f"stage {opened} of ({writer_id!r}, {sequence})"
        return Stage(
            self.core, self._run, transport=self._async_transport(), stage_id=opened, what=what
        )


def _restore(bootstrap_servers: str, settings: dict[str, Any]) -> Client:
    return Client(bootstrap_servers, **settings)
