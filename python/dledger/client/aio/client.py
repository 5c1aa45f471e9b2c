"""The asyncio client: the names of `dledger.client.Client`, with await."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from dledger.client.aio.reading import fetch
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.appending import Appendable, append, records_of
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.consuming.settings import ConsumerSettings, commit_seconds
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.operations.methods import Operations
from dledger.client.protocol.operations.read_range import (
    AskedRange,
    ReadRange,
    asked_range,
    read_range,
)
from dledger.client.protocol.operations.schemas import of_body
from dledger.client.protocol.reading.damage import FAIL, DamagePolicy
from dledger.client.protocol.reading.fetching import FETCH_BYTES
from dledger.client.protocol.reading.reading import reader
from dledger.client.protocol.reading.resuming import (
    AsyncResuming,
    behind_bodies,
    behind_body,
)
from dledger.client.protocol.results import Appended, Committed, OnDelivery
from dledger.client.protocol.session import ProducerSession
from dledger.environment import REAL, Environment
from dledger.errors import DLedgerError, TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.fetched import FetchedBatch
from dledger.records.body.one_record import OneRecord
from dledger.tracing import API, begin_append

if TYPE_CHECKING:  # what loads Arrow
    import pyarrow as pa

    from dledger.client.aio.consumer import AsyncConsumer
    from dledger.client.aio.producer import AsyncProducer
    from dledger.client.aio.staging import AsyncStage, AsyncTransaction
    from dledger.client.protocol.consuming.callbacks import OnChange
    from dledger.client.protocol.operations.scanning import Place, Scan
    from dledger.client.protocol.reading.fetched import FetchedBodies
    from dledger.client.protocol.writing.pieces import Pieces
    from dledger.records.body.build import Headers, Times, Values
    from dledger.records.frames.frames import Rows


class _Holder:
    """A producer session; one append at a time has it."""

    session: ProducerSession | None = None


@checked
class AsyncClient(Operations):
    """As `dledger.client.Client`, for one event loop; every call is awaited and reads are
    asynchronous iterators.

    Args, Raises: see `Client`; ``environment`` is for tests. With a path, making it waits for the
    group there: a second or so where that has to be started.
    """

    def __init__(
        self,
        bootstrap_servers: str | os.PathLike[str],
        *,
        group: str = "",
        group_id: str = "",
        environment: Environment = REAL,
        **settings: Any,
    ) -> None:
        self.core = ClientState.make(bootstrap_servers, group, settings, environment, group_id)
        self._transport = AsyncTransport(self.core)
        self._holders: list[_Holder] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. A later call opens new ones."""
        await self._transport.close()

    async def _run(self, operation: Operation[T]) -> T:
        return await self._transport.run(operation)

    @property
    def bootstrap_servers(self) -> str:
        return self.core.bootstrap_servers

    # writing

    async def append(
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
        """See `Client.append`. Appends that overlap are in no order; for that, use `producer`."""
        if not isinstance(values, (bytes, str)):
            from dledger.client.protocol.writing.pieces import check_alone, pieces_of
            from dledger.records.frames.frames import is_frame

            if is_frame(values):
                check_alone(key=key, keys=keys, headers=headers, timestamps=timestamps)
                pieces = await self._run(pieces_of(self.core, topic, values, partition, evolve))
                return await self._append_all(pieces)
        span = begin_append(topic, headers) if API in sys.modules else None
        if span is not None:
            headers = span.headers
        records = records_of(
            self.core, values, key=key, keys=keys, headers=headers, timestamps=timestamps
        )
        if span is None:
            return await self._append(topic, partition, records)
        with span:
            return await self._append(topic, partition, records)

    async def append_batch(
        self, topic: str, partition: int | None, batch: pa.RecordBatch
    ) -> Appended:
        """See `Client.append_batch`."""
        return await self._append(topic, partition, batch)

    async def _append_all(self, pieces: Pieces) -> Appended:
        from dledger.client.aio.staging import AsyncStage
        from dledger.client.protocol.writing.pieces import appended_by, writer_of_one_append

        (partition, records), all_of_them = pieces.first_two()
        if all_of_them is None:
            return await self._append(pieces.info, partition, records)
        writer = writer_of_one_append(self.core)
        stage = await self.stage(writer, 0)
        assert isinstance(stage, AsyncStage)
        try:
            for partition, records in all_of_them.pieces:
                await stage.append_all([(pieces.info, partition, records)])
            total = await stage.close()
        except BaseException:
            stage.cancel()
            with suppress(DLedgerError):
                await self.abort_transaction(writer, 0, stage_ids=(stage.stage_id,))
            raise
        return appended_by(pieces.info, await self.commit_transaction(writer, 0, (total,)))

    async def _append(
        self, topic: str | TopicInfo, partition: int | None, records: Appendable
    ) -> Appended:
        if partition is None and isinstance(topic, str) and not isinstance(records, OneRecord):
            from dledger.client.protocol.writing.pieces import several_of

            several = await self._run(several_of(self.core, topic, records))
            if several is not None:
                return await self._append_all(several)
        holder = self._holders.pop() if self._holders else _Holder()
        try:
            return await self._run(append(self.core, holder, topic, partition, records))
        except BaseException as error:
            if not isinstance(error, DLedgerError):
                holder.session = None  # its number may be taken or not
            raise
        finally:
            self._holders.append(holder)

    async def producer(
        self,
        topic: str,
        *,
        partition: int | None = None,
        name: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> AsyncProducer:
        """See `Client.producer`."""
        from dledger.client.aio.producer import AsyncProducer

        opened = await self._run(transactions.open_producer(self.core, topic, name))
        return AsyncProducer(
            self.core,
            self._transport,
            opened=opened,
            partition=partition,
            on_delivery=on_delivery,
        )

    async def consumer(
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
    ) -> AsyncConsumer:
        """See `Client.consumer`; the callbacks may be coroutine functions."""
        from dledger.client.aio.consumer import AsyncConsumer
        from dledger.client.aio.consuming.engine import ConsumerEngine
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
        engine = ConsumerEngine(self.core, self._transport, settings=settings)
        await engine.open()
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        return AsyncConsumer(self.core, self._transport, engine=engine, callbacks=callbacks)

    async def transaction(
        self, writer_id: str, sequence: int, *, label: str = "", timeout_ms: int = 600_000
    ) -> AsyncTransaction:
        """See `Client.transaction`: ``async with await client.transaction(...) as transaction``."""
        from dledger.client.aio.staging import AsyncTransaction

        stage = await self.stage(writer_id, sequence, label, timeout_ms)
        return AsyncTransaction(
            self.core, self._transport, stage=stage, writer_id=writer_id, sequence=sequence
        )

    async def stage(
        self, writer_id: str, sequence: int, label: str = "", timeout_ms: int = 600_000
    ) -> AsyncStage | Committed:
        """See `Client.stage`."""
        from dledger.client.aio.staging import AsyncStage

        opened = await self._run(transactions.open_stage(writer_id, sequence, label, timeout_ms))
        if isinstance(opened, Committed):
            return opened
        what = f"stage {opened} of ({writer_id!r}, {sequence})"
        return AsyncStage(self.core, self._transport, stage_id=opened, what=what)

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
        with_metadata: bool = False,
        value_format: str = "",
        on_damage: str = FAIL,
    ) -> AsyncResuming[pa.RecordBatch]:
        """See `Client.read`. Its first turn asks for the end."""
        from dledger.client.protocol.operations.read_shape import ReadShape

        asked = AskedRange(topic, partition, start, end, follow)
        opened: ReadRange | None = None
        behind = start  # where the last batch ends
        shape = ReadShape(partition, with_metadata=with_metadata, value_format=value_format)
        damage = DamagePolicy(topic, partition, on_damage)

        async def read_on(position: int) -> AsyncGenerator[pa.RecordBatch, None]:
            nonlocal opened, behind
            if opened is None:
                opened = await self._run(read_range(self.core, asked))
            while True:
                known, info, last = opened, opened.info, opened.end
                await self._run(shape.begin(self.core, info))
                fetcher = reader(self.core, info, partition, position, last, max_bytes, damage)
                try:
                    async for found in fetch(self.core, self._transport, fetcher, replica, follow):
                        for one in found.singles() if info.typed else (found,):
                            columns = None
                            if info.typed:
                                columns = await self._run(of_body(self.core, info, one.payload))
                            for batch, stop in shape.rows(one, position, last, columns):
                                behind = stop
                                yield batch
                    return
                except TopicNotFound:
                    if not known.may_be_stale(asked, fetcher.position):
                        raise
                    opened = await self._run(asked_range(self.core, asked))

        return AsyncResuming(read_on, start, end_of=lambda _: behind)

    async def scan(
        self,
        topic: str,
        start: Place = "earliest",
        end: Place = "latest",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        on_damage: str = FAIL,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """See `Client.scan`: ``async for batch in client.scan(...)``."""
        from dledger.client.protocol.operations.scanning import plan_scan

        scan = await self._run(
            plan_scan(self.core, topic, start, end, partitions, columns, on_damage)
        )
        async for batch in self._scan(scan):
            yield batch

    async def table(
        self,
        topic: str,
        start: Place = "earliest",
        end: Place = "latest",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        on_damage: str = FAIL,
    ) -> pa.Table:
        """See `Client.table`."""
        import pyarrow as pa

        from dledger.client.protocol.operations.scanning import plan_scan

        scan = await self._run(
            plan_scan(self.core, topic, start, end, partitions, columns, on_damage)
        )
        return pa.Table.from_batches([batch async for batch in self._scan(scan)], scan.view.schema)

    async def _scan(self, scan: Scan) -> AsyncGenerator[pa.RecordBatch, None]:
        for one in scan.ranges:
            fetcher = reader(self.core, scan.info, *one, FETCH_BYTES, scan.damage(one.partition))
            async for bodies in fetch(self.core, self._transport, fetcher, None, follow=False):
                for batch in scan.batches(bodies, one):
                    yield batch

    def fetch_bodies(
        self,
        topic: str | int | TopicInfo,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES,
        replica: str | None = None,
    ) -> AsyncResuming[tuple[FetchedBatch, memoryview]]:
        """See `Client.fetch_bodies`."""

        async def read_on(position: int) -> AsyncGenerator[tuple[FetchedBatch, memoryview], None]:
            known = await self.known_topic(topic) if isinstance(topic, str) else topic
            fetcher = reader(self.core, known, partition, position, end, max_bytes)
            async for found in fetch(self.core, self._transport, fetcher, replica, follow=False):
                for one in found:
                    yield one

        return AsyncResuming(read_on, start, end_of=behind_body)

    def fetch(
        self,
        topic: str | int | TopicInfo,
        partition: int,
        start: int,
        end: int,
        *,
        damage: DamagePolicy | None = None,
    ) -> AsyncResuming[FetchedBodies]:
        """See `Client.fetch`."""

        async def read_on(position: int) -> AsyncGenerator[FetchedBodies, None]:
            known = await self.known_topic(topic) if isinstance(topic, str) else topic
            fetcher = reader(self.core, known, partition, position, end, FETCH_BYTES, damage)
            async for found in fetch(self.core, self._transport, fetcher, None, follow=False):
                yield found

        return AsyncResuming(read_on, start, end_of=behind_bodies)
