"""The blocking client."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.background_loop import background
from dledger.client.blocking.reading import BlockingReader
from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.appending import append, records_of
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.operations.methods import Operations
from dledger.client.protocol.operations.read_range import AskedRange, asked_range, read_range
from dledger.client.protocol.operations.schemas import of_body
from dledger.client.protocol.reading.fetching import FETCH_BYTES, Fetcher
from dledger.client.protocol.reading.reading import (
    Replicas,
    find_nodes,
    preferred_address,
    reader,
    records,
)
from dledger.client.protocol.reading.resuming import (
    Resuming,
    behind_bodies,
    behind_body,
)
from dledger.client.protocol.results import Appended, Committed, OnDelivery
from dledger.errors import TopicNotFound
from dledger.interrupts import is_interrupt
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.fetched import FetchedBatch

if TYPE_CHECKING:  # what loads Arrow, which not every program with a client needs
    import pyarrow as pa

    from dledger.client.blocking.producer import Producer
    from dledger.client.blocking.staging import Stage, Transaction
    from dledger.client.protocol.reading.fetched import FetchedBodies
    from dledger.records.body.build import Headers, Times, Values


@checked
class Client(Operations):
    """Talks to a group of nodes; finds the leader by itself and retries calls where that is safe.

    No connection is opened before the first call. Threads may share a client; each call takes
    connections of its own. A client survives pickling (as its settings) and fork (the child
    connects anew).

    Args:
        bootstrap_servers: ``host:port,...``: any nodes of the group; the others are learned from
            them.
        group: the group's name, to be refused by any other; empty: that of the first node that
            answers.
        group_id: the id drawn at the group's founding (`lineage`), to be refused by any other but a
            copy of it.
        settings: those of `dledger.config.ClientConfig`.

    Raises:
        ConfigError, UnknownOption: an address or a setting cannot be.
    """

    def __init__(
        self, bootstrap_servers: str, *, group: str = "", group_id: str = "", **settings: Any
    ) -> None:
        self.core = ClientState.make(bootstrap_servers, group, settings, group_id=group_id)
        self._settings = {"group": group, "group_id": group_id, **settings}
        self._transports: deque[BlockingTransport] = deque()
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
        """Close all connections. A later call opens new ones."""
        while self._transports:
            self._transports.pop().close()
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
        transports, self._transports = self._transports, deque()
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
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> Appended:
        """Append records to one partition as one entry; returns when a quorum has them on disk.

        Without ``partition``: by the hash of the keys, which must agree, or else one partition
        after the other.

        Args:
            values: bytes, a list of bytes, or an Arrow array; ``keys`` likewise, of the same
                length.
            headers: (text, bytes) pairs for all, or one list of pairs for each record.
            timestamps: microseconds since 1970 UTC or datetimes; without them, now.

        Raises:
            TopicNotFound, RecordTooLarge, ConfigError, DiskFull, Unavailable: nothing was written.
            OutcomeUnknown: it may have been written.
        """
        records = records_of(self.core, values, keys=keys, headers=headers, timestamps=timestamps)
        with self._transport() as transport:
            return transport.run(append(self.core, transport, topic, partition, records))

    def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> Appended:
        """Append a batch of ``value`` and any of ``key``, ``timestamp``, ``headers``; see
        `append`."""
        with self._transport() as transport:
            return transport.run(append(self.core, transport, topic, partition, batch))

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
            opened=opened,
            partition=partition,
            on_delivery=on_delivery,
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

    # reading

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        follow: bool = False,
        max_bytes: int = FETCH_BYTES,
        replica: str | None = None,
    ) -> Resuming[pa.RecordBatch]:
        """Records of [start, end) as batches in the READ_SCHEMA: offset, timestamp, key, value,
        headers. Rows of a typed topic come with the text of their key column and as JSON.

        Without ``end``: up to the end at the time of the call, or with ``follow`` for ever, waiting
        for new records. Behind an exception, as a signal handler's, the next turn goes on with the
        first record that was not given.

        Args:
            max_bytes: stored bytes of one fetch.
            replica: the node to read from first; any one else.

        Raises:
            OffsetOutOfRange: with ``begin`` and ``end`` of the kept offsets.
            TopicNotFound, TopicRecreated, Unavailable, CorruptEntry: as they say.
        """
        asked = AskedRange(topic, partition, start, end, follow)
        known = self._run(read_range(self.core, asked))
        behind = start  # where the last batch ends

        def read_on(position: int) -> Generator[pa.RecordBatch, None, None]:
            nonlocal known, behind
            while True:
                info, last = known.info, known.end
                fetcher = reader(self.core, info, partition, position, last, max_bytes)
                try:
                    for found in self._fetch(fetcher, replica, follow):
                        for one in found.singles() if info.typed else (found,):
                            columns = None
                            if info.typed:
                                columns = self._run(of_body(self.core, info, one.payload))
                            for batch, stop in records(one, position, last, columns):
                                behind = stop
                                yield batch
                    return
                except TopicNotFound:
                    if not known.may_be_stale(asked, fetcher.position):
                        raise
                    known = self._run(asked_range(self.core, asked))

        return Resuming(read_on, start, end_of=lambda _: behind)

    def fetch_bodies(
        self,
        topic: str | int | TopicInfo,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES,
        replica: str | None = None,
    ) -> Resuming[tuple[FetchedBatch, memoryview]]:
        """Stored bodies that cover [start, end), byte for byte as on disk, checked against their
        CRCs.

        The first may begin before ``start`` and the last end behind ``end``. ``topic`` by name, id,
        or as described.

        Raises:
            DLedgerError: as `read`; but an ``end`` that is not there yet is waited for, up to
                request_timeout_ms.
        """
        known = self.known_topic(topic) if isinstance(topic, str) else topic

        def read_on(position: int) -> Generator[tuple[FetchedBatch, memoryview], None, None]:
            fetcher = reader(self.core, known, partition, position, end, max_bytes)
            for found in self._fetch(fetcher, replica, follow=False):
                yield from found

        return Resuming(read_on, start, end_of=behind_body)

    def fetch(
        self, topic: str | int | TopicInfo, partition: int, start: int, end: int
    ) -> Resuming[FetchedBodies]:
        """As `fetch_bodies`, the bodies of each answer together."""
        known = self.known_topic(topic) if isinstance(topic, str) else topic

        def read_on(position: int) -> Generator[FetchedBodies, None, None]:
            fetcher = reader(self.core, known, partition, position, end, FETCH_BYTES)
            return self._fetch(fetcher, None, follow=False)

        return Resuming(read_on, start, end_of=behind_bodies)

    def _fetch(
        self, fetcher: Fetcher, replica: str | None, follow: bool
    ) -> Generator[FetchedBodies, None, None]:
        if fetcher.done:
            return
        with self._transport() as transport:
            transport.run(find_nodes(self.core))
            replicas = Replicas(self.core, preferred_address(self.core, replica, follow))
            yield from BlockingReader(transport, fetcher, replicas=replicas)


def _restore(bootstrap_servers: str, settings: dict[str, Any]) -> Client:
    return Client(bootstrap_servers, **settings)
