"""What the blocking client asks about topics, offsets, consumer groups and nodes: each a question
and its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

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


@checked
class Admin(ABC):
    """The part of `dledger.client.Client` that neither writes nor reads records."""

    core: ClientState

    @abstractmethod
    def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

    # topics

    def create_topic(
        self, name: str, partitions: int = 1, *, if_absent: bool = False, **topic_settings: Any
    ) -> TopicInfo:
        """Create a topic; with ``if_absent`` one that exists with as many partitions is a success.

        Raises:
            TopicExists: it exists.
            ConfigError: the name, the number of partitions or a setting cannot be.
        """
        return self._run(
            operations.create_topic(self.core, name, partitions, if_absent, topic_settings)
        )

    def add_partitions(self, name: str, partitions: int) -> TopicInfo:
        """Let a topic have ``partitions`` of them from now on, no fewer than it has.

        Records stay where they are, so from then on a key may go to another partition than before.
        Whoever writes by key goes by the number that it saw first, until it starts anew; streams
        read the new partitions from their first record on.

        Raises:
            TopicNotFound: there is none.
            ConfigError: it has more, or so many cannot be.
        """
        return self._run(operations.add_partitions(self.core, name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            TopicNotFound: there is none.
            OutcomeUnknown: asked and not answered; see `topics`.
        """
        self._run(operations.delete_topic(self.core, name))

    def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return self._run(operations.topics(self.core))

    def known_topic(self, name: str, partition: int | None = None) -> TopicInfo:
        """One topic as last seen by this client; asks only for one, or a ``partition`` of it, that
        it has not seen."""
        info = self.core.topics.get(name)
        if info is not None and (partition or 0) < info.partitions:
            return info
        return self._run(operations.known_topic(self.core, name, partition))

    def topic(self, name: str) -> TopicInfo:
        """One topic as it is now.

        Raises:
            TopicNotFound: there is none.
        """
        return self._run(operations.topic(self.core, name))

    def described(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """Several topics as they are now, by one question; raises as `topic`."""
        return self._run(operations.described(self.core, names))

    def schemas(self, topic: TopicInfo) -> list[Columns]:
        """The columns of a typed topic, version 1 first, as they are now.

        Raises:
            TopicNotFound: it was deleted, or is raw.
        """
        return list(self._run(schemas.load(self.core, topic.name, topic.topic_id, topic.log_id)))

    def schema(self, topic: TopicInfo, version: int) -> Columns:
        """The columns of one version of a typed topic; asks only for one that it has not seen.

        Raises:
            ProtocolError: the topic does not have that version.
        """
        return self._run(schemas.at(self.core, topic.name, topic.topic_id, topic.log_id, version))

    def evolve_schema(self, topic: TopicInfo, base_version: int, columns: Columns) -> Evolved:
        """Make these the columns of a typed topic, if ``base_version`` (0: none yet) still is its
        newest version.

        Raises:
            TopicNotFound: it was deleted.
            SchemaMismatch: these columns cannot follow those of ``base_version``
                (`dledger.records.columns.evolution`).
        """
        return self._run(schemas.evolve(self.core, topic, base_version, columns))

    # offsets

    def begin_offsets(self, topic: str, *, stale: bool = False) -> dict[int, int]:
        """First kept offset of each partition. Linearizable unless ``stale``."""
        return self._run(operations.topic_offsets(self.core, topic, OffsetKind.BEGIN, stale=stale))

    def end_offsets(
        self,
        topic: str,
        *,
        stale: bool = False,
        newer_than: Mapping[int, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[int, int]:
        """The offset behind the last record of each partition. Linearizable unless ``stale``:
        everything that was acknowledged before the call is below it. ``stale``: the leader's
        applied state or, where no leader is known, any node's; never below what this client has
        seen already.

        With ``newer_than`` (partition -> offset): wait up to ``wait_ms`` for any partition to end
        above.
        """
        wanted = None if newer_than is None else {topic: newer_than}
        more = {"stale": stale, "newer_than": wanted, "wait_ms": wait_ms}
        return self._run(operations.topic_offsets(self.core, topic, OffsetKind.END, **more))

    def offsets_for_times(
        self, topic: str, timestamp_us: Time, *, stale: bool = False
    ) -> dict[int, int]:
        """First offset of each partition whose record has a time at or after ``timestamp_us``, in
        microseconds since 1970 UTC or as a datetime (one without a time zone is UTC); -1 where none
        has.

        Exact to the record. Times are the writers' and may fall back: later records can be older
        than this one.
        """
        return self._run(times.offsets_for_time(self.core, topic, timestamp_us, stale))

    def offsets_at(
        self, times_us: Mapping[str, Mapping[int, Time]], *, stale: bool = False
    ) -> OffsetsResponse:
        """`offsets_for_times` for several topics (topic -> partition -> time), with the topics' log
        ids."""
        return self._run(times.offsets_at(self.core, times_us, stale))

    def offsets(
        self,
        topics: Sequence[str],
        kind: OffsetKind = OffsetKind.END,
        *,
        timestamp_us: Time = 0,
        stale: bool = False,
        newer_than: Mapping[str, Mapping[int, int]] | None = None,
        wait_ms: int = 0,
    ) -> OffsetsResponse:
        """Offsets of several topics at one moment, with the topics' log ids. By TIME, those of
        whole batches; see `offsets_at`."""
        return self._run(
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

    def split(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        target_bytes: int,
        *,
        max_pieces: int = 10_000,
    ) -> list[Range]:
        """Cut [start, end) between stored batches into pieces of about ``target_bytes`` stored
        bytes."""
        span = Span(topic, partition, start, end, target_bytes, max_pieces)
        return self._run(operations.split(self.core, [span]))[0]

    def split_many(self, spans: Sequence[Span]) -> list[list[Range]]:
        """Cut many ranges as `split` does, by one question; the pieces of each."""
        return self._run(operations.split(self.core, spans))

    def partitions(self) -> list[PartitionState]:
        """All partitions of all topics, with what they hold."""
        return self._run(state.partitions(self.core))

    def commits(self, start: int = 0) -> list[CommitState]:
        """The committed transactions that the log still has, oldest first, from the entry ``start``
        on: whose they are, and the offsets that they gave their records."""
        return self._run(state.commits(start))

    def entries(self, start: int = 0, end: int | None = None) -> list[EntryState]:
        """Committed entries [start, end) of the log, without the records in them."""
        return self._run(state.entries(start, end))

    # consumer groups, nodes

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        log_ids: Mapping[str, str] | None = None,
    ) -> None:
        """The group has processed everything below these offsets: topic -> partition -> offset.

        Args:
            log_ids: of topics (topic -> log id); one that is another topic by now is refused.

        Raises:
            TopicNotFound: a topic or partition is not there, or another one; nothing was noted.
            OffsetOutOfRange: an offset is behind the end of its partition; nothing was noted.
        """
        self._run(operations.commit_offsets(group, offsets, log_ids))

    def hold_retention(self, group: str, hold: bool = True) -> None:
        """What the group has not processed is kept over its time, up to the nodes' settings
        ``hold_retention_ms`` and ``hold_retention_bytes``; with False no longer. Only partitions of
        which it has committed an offset."""
        self._run(operations.hold_retention(group, hold))

    def delete_group(self, group: str) -> None:
        """Forget a consumer group: its offsets, and that it held retention back. One that is not
        there is no error; a query that runs in it makes it anew with its next micro-batch."""
        self._run(operations.delete_group(group))

    def lag(self, group: str) -> list[Lag]:
        """How far a consumer group is behind, by partition, in rows, stored bytes and seconds;
        empty for a group that has committed nothing."""
        return self._run(state.lag(self.core, group))

    def group(self, name: str) -> GroupOffsets:
        """What a consumer group has processed; empty for one that committed nothing."""
        return self._run(operations.group(name))

    def groups(self) -> list[str]:
        """Names of all consumer groups."""
        return self._run(operations.groups())

    def lineage(self) -> Lineage:
        """Which group it is that this client talks to, and of which ones that is a copy. It never
        becomes another one but a copy of itself; asks only when this client has met none yet."""
        return self._run(operations.lineage(self.core))

    def status(self) -> dict[NodeId, dict[str, Any]]:
        """What each node says of itself; ``{"error": reason}`` for one that does not answer."""
        return self._run(operations.status(self.core))

    def transfer(self, node_id: str) -> None:
        """Hand leadership to a node.

        Raises:
            Unavailable: it was given up; the former leader leads on.
        """
        self._run(operations.transfer(self.core, node_id))

    def admit(self, node_id: str) -> None:
        """Let a node that lost its disk, or has an older copy of it, vote and count again. It has
        to run."""
        self._run(operations.admit(self.core, node_id))

    def enforce_secret(self) -> None:
        """Take no member any more that does not prove the group's secret, for ever.

        Raises:
            DLedgerError: the leader has no secret, does not reach a member, or one has not proved
                it; with the names.
        """
        self._run(operations.enforce_secret())


__all__ = ["Admin"]
