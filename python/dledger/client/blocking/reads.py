"""The reads of the blocking client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from dledger.client.blocking.reading import BlockingReader
from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import Operation, T
from dledger.client.protocol.operations.methods import Operations
from dledger.client.protocol.operations.read_range import AskedRange, asked_range, read_range
from dledger.client.protocol.operations.schemas import of_body
from dledger.client.protocol.reading.damage import FAIL, DamagePolicy
from dledger.client.protocol.reading.fetching import FETCH_BYTES, Fetcher
from dledger.client.protocol.reading.reading import reader
from dledger.client.protocol.reading.replicas import Replicas, find_nodes, preferred_address
from dledger.client.protocol.reading.resuming import (
    Resuming,
    behind_bodies,
    behind_body,
)
from dledger.client.protocol.reading.watching import ReplicaWatch
from dledger.errors import TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.fetched import FetchedBatch
from dledger.records.columns.types import Columns

if TYPE_CHECKING:  # what loads Arrow
    import pyarrow as pa

    from dledger.client.protocol.operations.scanning import Place, Scan
    from dledger.client.protocol.reading.fetched import FetchedBodies


@checked
class ReadingClient(Operations):
    """The part of a client that reads records."""

    @abstractmethod
    def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

    @abstractmethod
    def _transport(self) -> BlockingTransport:
        """A transport for this caller alone, as a context."""

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
        with_metadata: bool = False,
        value_format: str = "",
        on_damage: str = FAIL,
    ) -> Resuming[pa.RecordBatch]:
        """Records of [start, end) of a partition as batches: of offset, timestamp, key, value and
        headers, or of a typed topic's columns, new ones from their first row on.

        Without ``end``: up to the end at the time of the call, or with ``follow`` for ever. Behind
        an exception, as a signal handler's, the next turn goes on with the next record.

        Args:
            max_bytes: stored bytes of one fetch.
            replica: the node to read from first; any one else.
            with_metadata: with ``partition``, ``offset`` and ``timestamp`` in front, as in `scan`.
            value_format: ``json`` gives rows as keys and values: their key column's text, and JSON.
            on_damage: ``fail``, or ``skip`` batches that nobody can open, with a warning.

        Raises:
            OffsetOutOfRange: with ``begin`` and ``end`` of the kept offsets.
            UnreadableBatch: with ``begin`` and ``end`` of the batch.
            TopicNotFound, TopicRecreated, Unavailable, CorruptEntry: as they say.
        """
        from dledger.client.protocol.operations.read_shape import ReadShape

        asked = AskedRange(topic, partition, start, end, follow)
        known = self._run(read_range(self.core, asked))
        behind = start  # where the last batch ends
        shape = ReadShape(partition, with_metadata=with_metadata, value_format=value_format)
        damage = DamagePolicy(topic, partition, on_damage)

        def read_on(position: int) -> Generator[pa.RecordBatch, None, None]:
            nonlocal known, behind
            while True:
                self._run(shape.begin(self.core, known.info))
                info, last = known.info, known.end
                fetcher = reader(self.core, info, partition, position, last, max_bytes, damage)
                try:
                    with closing(self._fetch(fetcher, replica, follow)) as answers:
                        for one in _singles(answers) if info.typed else answers:
                            columns = self._columns(info, one)
                            for batch, stop in shape.rows(one, position, last, columns):
                                behind = stop
                                yield batch
                    return
                except TopicNotFound:
                    if not known.may_be_stale(asked, fetcher.position):
                        raise
                    known = self._run(asked_range(self.core, asked))

        return Resuming(read_on, start, end_of=lambda _: behind)

    def _columns(self, info: TopicInfo, one: FetchedBodies) -> Columns | None:
        """Under which a body of a typed topic was written."""
        return self._run(of_body(self.core, info, one.payload)) if info.typed else None

    def scan(
        self,
        topic: str,
        start: Place = "earliest",
        end: Place = "latest",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        on_damage: str = FAIL,
    ) -> pa.RecordBatchReader:
        """Records of all partitions, one partition after the other, as a stream of batches with
        ``partition``, ``offset`` and ``timestamp`` in front of the topic's own columns (``_offset``
        and so on where the topic has a column of that name). Polars, DuckDB and pandas take it as
        it is, by ``__arrow_c_stream__``.

        Args:
            start: ``earliest``, ``latest``, an offset for each partition (a dict; others begin at
                the earliest, and end at the latest), or a datetime: the first record of that time
                or later.
            end: likewise; the first record that is left out.
            partitions: their numbers; None: all.
            columns: names of columns, in the order that is wanted; None: all.
            on_damage: as of `read`.

        Raises:
            TopicNotFound, OffsetOutOfRange, ConfigError: as they say.
            Those of `read`, while the batches are taken.
        """
        import pyarrow as pa

        from dledger.client.blocking.read_ahead import read_ahead
        from dledger.client.protocol.operations.scanning import plan_scan

        scan = self._run(plan_scan(self.core, topic, start, end, partitions, columns, on_damage))
        batches = read_ahead(self._scan(scan))
        return pa.RecordBatchReader.from_batches(scan.view.schema, batches)

    def table(
        self,
        topic: str,
        start: Place = "earliest",
        end: Place = "latest",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        on_damage: str = FAIL,
    ) -> pa.Table:
        """`scan` as one table in memory."""
        import pyarrow as pa

        from dledger.client.protocol.operations.scanning import plan_scan

        scan = self._run(plan_scan(self.core, topic, start, end, partitions, columns, on_damage))
        return pa.Table.from_batches(self._scan(scan), scan.view.schema)

    def _scan(self, scan: Scan) -> Generator[pa.RecordBatch, None, None]:
        for one in scan.ranges:
            fetcher = reader(self.core, scan.info, *one, FETCH_BYTES, scan.damage(one.partition))
            with closing(self._fetch(fetcher, None, follow=False)) as answers:
                for bodies in answers:
                    yield from scan.batches(bodies, one)

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
            As `read`; but an ``end`` that is not there yet is waited for, up to request_timeout_ms.
        """
        known = self.known_topic(topic) if isinstance(topic, str) else topic

        def read_on(position: int) -> Generator[tuple[FetchedBatch, memoryview], None, None]:
            fetcher = reader(self.core, known, partition, position, end, max_bytes)
            for found in self._fetch(fetcher, replica, follow=False):
                yield from found

        return Resuming(read_on, start, end_of=behind_body)

    def fetch(
        self,
        topic: str | int | TopicInfo,
        partition: int,
        start: int,
        end: int,
        *,
        damage: DamagePolicy | None = None,
    ) -> Resuming[FetchedBodies]:
        """As `fetch_bodies`, the bodies of each answer together. ``damage``: what is done about one
        that cannot be opened, by whoever opens it."""
        known = self.known_topic(topic) if isinstance(topic, str) else topic

        def read_on(position: int) -> Generator[FetchedBodies, None, None]:
            fetcher = reader(self.core, known, partition, position, end, FETCH_BYTES, damage)
            return self._fetch(fetcher, None, follow=False)

        return Resuming(read_on, start, end_of=behind_bodies)

    def _fetch(
        self, fetcher: Fetcher, replica: str | None, follow: bool
    ) -> Generator[FetchedBodies, None, None]:
        if fetcher.done:
            return
        with self._transport() as transport:
            transport.run(find_nodes(self.core))
            replicas = Replicas(self.core, partial(preferred_address, self.core, replica, follow))
            watch = (
                ReplicaWatch(self.core, replicas, fetcher=fetcher) if self.core.racks.own else None
            )
            yield from BlockingReader(transport, fetcher, replicas=replicas, watch=watch)


def _singles(answers: Iterator[FetchedBodies]) -> Iterator[FetchedBodies]:
    for bodies in answers:
        yield from bodies.singles()
