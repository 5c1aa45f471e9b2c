"""The asyncio client: the names of `dledger.client.Client`, with await."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from dledger.client.aio.producer import AsyncProducer, AsyncStage, AsyncTransaction
from dledger.client.aio.reading import fetch
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.reading import check_partition, out_of_range, reader, records
from dledger.client.protocol import group_state as state
from dledger.client.protocol import offsets_by_time as times
from dledger.client.protocol import requests as operations
from dledger.client.protocol import schemas
from dledger.client.protocol.appending import append
from dledger.client.protocol.arguments import Time, checked
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.group_state import CommitState, EntryState, Lag, PartitionState
from dledger.client.protocol.messages import AsyncMessages
from dledger.client.protocol.results import Appended, Committed, GroupOffsets, Lineage, Range, Span
from dledger.client.protocol.resuming import AsyncResuming, behind_body, behind_records
from dledger.client.protocol.schemas import Evolved
from dledger.client.protocol.session import ProducerSession
from dledger.environment import REAL, Environment
from dledger.errors import DLedgerError
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.protocol.messages.client import FetchedBatch, OffsetKind, OffsetsResponse, TopicInfo
from dledger.records.body.build import Headers, Times, Values
from dledger.records.body.records import make_records
from dledger.records.columns.types import Columns
from dledger.types import NodeId

if TYPE_CHECKING:
    from dledger.records.digest import RowsSum


class _Holder:
    """A producer session; one append at a time has it."""

    session: ProducerSession | None = None


@checked
class AsyncClient(AsyncMessages):
    """As `dledger.client.Client`, for one event loop; every call is awaited and reads are
    asynchronous iterators.

    Args, Raises: see `Client`; ``environment`` is for tests.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        group: str = "",
        group_id: str = "",
        environment: Environment = REAL,
        **settings: Any,
    ) -> None:
        self.core = ClientState.make(bootstrap_servers, group, settings, environment)
        self.core.routes.lineage = Lineage(group_id)
        self._channel = AsyncTransport(self.core)
        self._run = self._channel.run
        self._holders: list[_Holder] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. A later call opens new ones."""
        await self._channel.close()

    @property
    def bootstrap_servers(self) -> str:
        return self.core.bootstrap_servers

    # topics

    async def create_topic(
        self, name: str, partitions: int = 1, *, if_absent: bool = False, **topic_settings: Any
    ) -> TopicInfo:
        """See `Client.create_topic`."""
        return await self._run(
            operations.create_topic(self.core, name, partitions, if_absent, topic_settings)
        )

    async def add_partitions(self, name: str, partitions: int) -> TopicInfo:
        """See `Client.add_partitions`."""
        return await self._run(operations.add_partitions(self.core, name, partitions))

    async def delete_topic(self, name: str) -> None:
        """See `Client.delete_topic`."""
        await self._run(operations.delete_topic(self.core, name))

    async def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return await self._run(operations.topics(self.core))

    async def topic(self, name: str) -> TopicInfo:
        """One topic as it is now."""
        return await self._run(operations.topic(self.core, name))

    async def described(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """See `Client.described`."""
        return await self._run(operations.described(self.core, names))

    async def known_topic(self, name: str, partition: int | None = None) -> TopicInfo:
        """See `Client.known_topic`."""
        return await self._run(operations.known_topic(self.core, name, partition))

    async def schemas(self, topic: TopicInfo) -> list[Columns]:
        """See `Client.schemas`."""
        return list(
            await self._run(schemas.load(self.core, topic.name, topic.topic_id, topic.log_id))
        )

    async def schema(self, topic: TopicInfo, version: int) -> Columns:
        """See `Client.schema`."""
        return await self._run(
            schemas.at(self.core, topic.name, topic.topic_id, topic.log_id, version)
        )

    async def evolve_schema(self, topic: TopicInfo, base_version: int, columns: Columns) -> Evolved:
        """See `Client.evolve_schema`."""
        return await self._run(schemas.evolve(self.core, topic, base_version, columns))

    # writing

    async def append(
        self,
        topic: str,
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> Appended:
        """See `Client.append`. Appends that overlap are in no order; for that, use `producer`."""
        batch = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
        return await self.append_batch(topic, partition, batch)

    async def append_batch(
        self, topic: str, partition: int | None, batch: pa.RecordBatch
    ) -> Appended:
        """See `Client.append_batch`."""
        holder = self._holders.pop() if self._holders else _Holder()
        try:
            return await self._run(append(self.core, holder, topic, partition, batch))
        except BaseException as error:
            if not isinstance(error, DLedgerError):
                holder.session = None  # its number may be taken or not
            raise
        finally:
            self._holders.append(holder)

    async def producer(
        self, topic: str, *, partition: int | None = None, name: str | None = None
    ) -> AsyncProducer:
        """See `Client.producer`."""
        info = await self.topic(topic)
        name = name or self.core.environment.unique()
        session = await self._run(operations.init_producer(self.core, name))
        return AsyncProducer(self.core, self._channel, info, partition, name, session)

    async def transaction(
        self, writer_id: str, sequence: int, *, label: str = "", timeout_ms: int = 600_000
    ) -> AsyncTransaction:
        """See `Client.transaction`: ``async with await client.transaction(...) as transaction``."""
        stage = await self.stage(writer_id, sequence, label, timeout_ms)
        return AsyncTransaction(self, self.core, stage, writer_id, sequence)

    async def stage(
        self, writer_id: str, sequence: int, label: str = "", timeout_ms: int = 600_000
    ) -> AsyncStage | Committed:
        """See `Client.stage`."""
        opened = await self._run(operations.open_stage(writer_id, sequence, label, timeout_ms))
        if isinstance(opened, Committed):
            return opened
        return AsyncStage(
            self, self.core, self._channel, opened, f"stage {opened} of ({writer_id!r}, {sequence})"
        )

    async def commit_transaction(
        self,
        writer_id: str,
        sequence: int,
        stages: Sequence[StageSum],
        rows: RowsSum | None = None,
        formerly: str = "",
    ) -> Committed:
        """See `Client.commit_transaction`."""
        return await self._run(
            operations.commit_transaction(writer_id, sequence, stages, rows, formerly)
        )

    async def abort_transaction(
        self, writer_id: str, sequence: int, stage_ids: Sequence[int] = ()
    ) -> None:
        """See `Client.abort_transaction`."""
        await self._run(operations.abort_transaction(writer_id, sequence, stage_ids))

    # reading

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        follow: bool = False,
        max_bytes: int = 4 << 20,
        replica: str | None = None,
    ) -> AsyncResuming[pa.RecordBatch]:
        """See `Client.read`. Its first turn asks for the end."""
        opened: list[tuple[TopicInfo, int | None]] = []

        async def read_on(position: int) -> AsyncGenerator[pa.RecordBatch, None]:
            if not opened:
                opened.append(await self._open(topic, partition, start, end, follow))
            info, last = opened[0]
            known = self.core, info.name, info.topic_id, info.log_id
            fetcher = reader(self.core, info, partition, position, last, max_bytes)
            async for batch, body in fetch(self.core, self._channel, fetcher, replica, follow):
                columns = await self._run(schemas.of_body(*known, body)) if info.typed else None
                yield records(batch, body, position, last, columns)

        return AsyncResuming(read_on, start, behind_records)

    async def _open(
        self, topic: str, partition: int, start: int, end: int | None, follow: bool
    ) -> tuple[TopicInfo, int | None]:
        info = await self._run(operations.topic(self.core, topic))
        if follow and end is None and start >= 0:
            return info, end
        return info, await self._check_range(topic, partition, start, end)

    async def _check_range(self, topic: str, partition: int, start: int, end: int | None) -> int:
        ends = await self._run(operations.topic_offsets(self.core, topic, OffsetKind.END))
        check_partition(topic, partition, ends)
        last = ends[partition] if end is None else end
        if not 0 <= start <= ends[partition] or last > ends[partition]:
            begins = await self._run(operations.topic_offsets(self.core, topic, OffsetKind.BEGIN))
            raise out_of_range(topic, partition, start, end, begins[partition], ends[partition])
        return last

    def fetch_bodies(
        self,
        topic: str | int | TopicInfo,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = 4 << 20,
        replica: str | None = None,
    ) -> AsyncResuming[tuple[FetchedBatch, memoryview]]:
        """See `Client.fetch_bodies`."""

        async def read_on(position: int) -> AsyncGenerator[tuple[FetchedBatch, memoryview], None]:
            known = (
                await self._run(operations.known_topic(self.core, topic))
                if isinstance(topic, str)
                else topic
            )
            fetcher = reader(self.core, known, partition, position, end, max_bytes)
            async for found in fetch(self.core, self._channel, fetcher, replica, follow=False):
                yield found

        return AsyncResuming(read_on, start, behind_body)

    async def begin_offsets(self, topic: str, *, stale: bool = False) -> dict[int, int]:
        """See `Client.begin_offsets`."""
        return await self._run(
            operations.topic_offsets(self.core, topic, OffsetKind.BEGIN, stale=stale)
        )

    async def end_offsets(
        self,
        topic: str,
        *,
        stale: bool = False,
        newer_than: Mapping[int, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[int, int]:
        """See `Client.end_offsets`."""
        wanted = None if newer_than is None else {topic: newer_than}
        more = {"stale": stale, "newer_than": wanted, "wait_ms": wait_ms}
        return await self._run(operations.topic_offsets(self.core, topic, OffsetKind.END, **more))

    async def offsets_for_times(
        self, topic: str, timestamp_us: Time, *, stale: bool = False
    ) -> dict[int, int]:
        """See `Client.offsets_for_times`."""
        return await self._run(times.offsets_for_time(self.core, topic, timestamp_us, stale))

    async def offsets_at(
        self, times_us: Mapping[str, Mapping[int, Time]], *, stale: bool = False
    ) -> OffsetsResponse:
        """See `Client.offsets_at`."""
        return await self._run(times.offsets_at(self.core, times_us, stale))

    async def offsets(
        self,
        topics: Sequence[str],
        kind: OffsetKind = OffsetKind.END,
        *,
        timestamp_us: Time = 0,
        stale: bool = False,
        newer_than: Mapping[str, Mapping[int, int]] | None = None,
        wait_ms: int = 0,
    ) -> OffsetsResponse:
        """See `Client.offsets`."""
        return await self._run(
            operations.offsets(
                self.core,
                topics,
                kind,
                timestamp_us=timestamp_us,
                stale=stale,
                newer_than=newer_than,
                wait_ms=wait_ms,
            )
        )

    async def split(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        target_bytes: int,
        *,
        max_pieces: int = 10_000,
    ) -> list[Range]:
        """See `Client.split`."""
        span = Span(topic, partition, start, end, target_bytes, max_pieces)
        return (await self._run(operations.split(self.core, [span])))[0]

    async def split_many(self, spans: Sequence[Span]) -> list[list[Range]]:
        """See `Client.split_many`."""
        return await self._run(operations.split(self.core, spans))

    async def partitions(self) -> list[PartitionState]:
        """See `Client.partitions`."""
        return await self._run(state.partitions(self.core))

    async def commits(self, start: int = 0) -> list[CommitState]:
        """See `Client.commits`."""
        return await self._run(state.commits(start))

    async def entries(self, start: int = 0, end: int | None = None) -> list[EntryState]:
        """See `Client.entries`."""
        return await self._run(state.entries(start, end))

    # consumer groups, nodes

    async def lineage(self) -> Lineage:
        """See `Client.lineage`."""
        return await self._run(operations.lineage(self.core))

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        log_ids: Mapping[str, str] | None = None,
    ) -> None:
        """See `Client.commit_offsets`."""
        await self._run(operations.commit_offsets(group, offsets, log_ids))

    async def hold_retention(self, group: str, hold: bool = True) -> None:
        """See `Client.hold_retention`."""
        await self._run(operations.hold_retention(group, hold))

    async def delete_group(self, group: str) -> None:
        """See `Client.delete_group`."""
        await self._run(operations.delete_group(group))

    async def lag(self, group: str) -> list[Lag]:
        """See `Client.lag`."""
        return await self._run(state.lag(self.core, group))

    async def group(self, name: str) -> GroupOffsets:
        """See `Client.group`."""
        return await self._run(operations.group(name))

    async def groups(self) -> list[str]:
        """Names of all consumer groups."""
        return await self._run(operations.groups())

    async def status(self) -> dict[NodeId, dict[str, Any]]:
        """See `Client.status`."""
        return await self._run(operations.status(self.core))

    async def transfer(self, node_id: str) -> None:
        """See `Client.transfer`."""
        await self._run(operations.transfer(self.core, node_id))

    async def admit(self, node_id: str) -> None:
        """See `Client.admit`."""
        await self._run(operations.admit(self.core, node_id))

    async def enforce_secret(self) -> None:
        """See `Client.enforce_secret`."""
        await self._run(operations.enforce_secret())
