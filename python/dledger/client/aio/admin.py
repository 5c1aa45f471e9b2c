"""What the asyncio client asks about topics, offsets, consumer groups and nodes: `Admin`, with
await."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dledger.client.protocol import group_state as state
from dledger.client.protocol import offsets_by_time as times
from dledger.client.protocol import requests as operations
from dledger.client.protocol import schemas
from dledger.client.protocol.arguments import Time, checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.group_state import CommitState, EntryState, Lag, PartitionState
from dledger.client.protocol.results import GroupOffsets, Lineage, Range, Span
from dledger.client.protocol.schemas import Evolved
from dledger.protocol.messages.client import OffsetKind, OffsetsResponse, TopicInfo
from dledger.records.columns.types import Columns
from dledger.types import NodeId

if TYPE_CHECKING:
    pass


@checked
class AsyncAdmin(ABC):
    """The part of `dledger.client.AsyncClient` that neither writes nor reads records."""

    core: ClientState

    @abstractmethod
    async def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

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


__all__ = ["AsyncAdmin"]
