"""The state machine over committed entries: topics, offsets, producers, transactions, consumer
groups.

Every node applies the same entries in the same order and comes to the same state: nothing here asks
a clock, throws dice or touches a file. Only what each node has deleted for itself (`drop_before`)
differs, and is not in the snapshot.
"""

from __future__ import annotations

from typing import ClassVar, Final

from dledger.catalog import snapshot
from dledger.catalog.clients.consumer_groups import Groups
from dledger.catalog.clients.producers import Producers
from dledger.catalog.clients.transactions import Transactions
from dledger.catalog.clients.writers import MAX_WRITERS
from dledger.catalog.results import STAGED, BatchRef, CommandResult, DataResult
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.partitions import Partitions
from dledger.catalog.topics.queues import Queues
from dledger.catalog.topics.schemas import Schemas, refuse
from dledger.catalog.topics.table import TableFactory
from dledger.catalog.topics.topics import Topics
from dledger.errors import ConfigError, CorruptStore, TopicNotFound
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    AddPartitions,
    Admit,
    AdoptCommitLog,
    Command,
    CommitOffsets,
    CommitProgress,
    CommitTransaction,
    CommitWrite,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EnforceSecret,
    EvolveSchema,
    Expire,
    HoldRetention,
    InitProducer,
    OpenStage,
)
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader, BodyKind
from dledger.types import NO_INDEX, Index

_SUCCESS: Final = Code.SUCCESS
_flag = int.__and__  # the operator of IntFlag is ten times slower
_STAGED_FLAG: Final = 1


class Catalog:
    """What the committed log means, up to and including `applied_index`.

    Apply entries in order, each with the method of its kind. Results are for the node that answers
    the client; the others ignore them.
    """

    most_writers: ClassVar = MAX_WRITERS
    """Writers of transactions that are remembered by name. Nodes that differ in it have different
    catalogs."""

    def __init__(self, tables: TableFactory) -> None:
        """An empty catalog. Tables that are there belong to a life before; they are removed."""
        for name in tables.names():
            tables.remove(name)
        self._setup(tables)

    def _setup(self, tables: TableFactory) -> None:
        self._tables = tables
        self.applied_index: Index = NO_INDEX
        self.clock_ms = 0
        self.topics_state = Topics()
        self.partitions = Partitions(
            tables, self.topics_state, lambda topic_id: self.schemas.newest(topic_id)
        )
        self._used = self.partitions.used
        self.schemas = Schemas(self.topics_state, self._used)
        self.producers = Producers()
        self.transactions = Transactions(
            self.partitions.get, self.partitions.grown, self.most_writers
        )
        self.members: dict[str, int] = {}
        """The incarnation of each member that counts, by the entry `members_index`; empty before
        the first `Admit`."""
        self.members_index: Index = NO_INDEX
        self.secret_enforced = False
        """Whether the group has said that every member must prove its secret."""
        self.consumer_groups = Groups(self.topics_state, self._at)
        self.queues = Queues()
        self._dropped: list[tuple[int, str]] = []

    # ---- applying

    def _advance(self, index: int) -> None:
        if index <= self.applied_index:
            raise CorruptStore(
                f"entry {index} comes after entry {self.applied_index}: the log is applied out of "
                f"order"
            )
        self.applied_index = Index(index)

    def apply_other(self, index: int) -> None:
        """An entry that says nothing to the catalog: a leader's NOOP, or another program's."""
        self._advance(index)

    def apply_message(
        self, index: int, topic: str, queue_id: int, queue_offset: int, store_ms: int
    ) -> None:
        """A message of a RocketMQ commit log is committed; see `Queues.add`."""
        if index <= self.applied_index:
            self._advance(index)
        self.applied_index = index  # type: ignore[assignment]
        self.queues.add(topic, queue_id, queue_offset, store_ms)

    def apply_data(
        self, index: int, pos: int, size: int, header: BodyHeader, crc: int
    ) -> DataResult:
        """A batch is committed: give it its offsets, or tell why it has none.

        Args:
            index: the entry's.
            pos: the entry's, in bytes.
            size: of the body, in bytes.
            header: of the body.
            crc: CRC-32 of the body, 0 when unverified.
        """
        if index <= self.applied_index:
            self._advance(index)
        self.applied_index = index  # type: ignore[assignment]
        key = header.topic_id << 32 | header.partition
        partition = self._used.get(key) or self.partitions.get(key)
        count = header.count
        if partition is None or count <= 0 or header.kind != BodyKind.DATA:
            return self._refusal(header, partition)
        if header.schema_version or partition.newest_schema >= 0:
            wrong = refuse(header, partition.newest_schema, partition.topic)
            if wrong is not None:
                return wrong
        if _flag(header.flags, _STAGED_FLAG):
            refused = self.transactions.check(header)
            if refused is None:
                self.transactions.add(index, pos, size, header, crc, key)
                return STAGED
            return refused
        if header.producer_id:
            refused = self.producers.check(header, key)
            if refused is not None:
                return refused
            base = partition.append(index, pos, size, crc, count, header.last_time_us, index)
            self.producers.remember(index, header, key, base)
        else:
            base = partition.append(index, pos, size, crc, count, header.last_time_us, index)
        self.partitions.grown.add(key)
        return DataResult(_SUCCESS, base)

    def check_append(self, header: BodyHeader) -> DataResult | None:
        """For a leader, before it proposes a batch: an answer that is certain already, or None.

        Refusals that what is in flight could heal (a sequence ahead of its turn, a session or stage
        that is not there yet) are left to `apply_data`. A leader asks this only when it has applied
        all entries before its term.
        """
        key = header.topic_id << 32 | header.partition
        partition = self._used.get(key) or self.partitions.get(key)
        if partition is None or header.count <= 0 or header.kind != BodyKind.DATA:
            return self._refusal(header, partition)
        refused = refuse(header, partition.newest_schema, partition.topic)
        if refused is not None:
            return refused
        if _flag(header.flags, _STAGED_FLAG):
            if header.producer_id > self.applied_index:
                return None
            known = self.transactions.check(header)
        elif header.producer_id:
            if header.producer_id >= self.producers.next_id:
                return None
            known = self.producers.check(header, key)
        else:
            return None
        return None if known is None or self._may_heal(header, known) else known

    def _may_heal(self, header: BodyHeader, known: DataResult) -> bool:
        if known.code is Code.MALFORMED:  # an epoch that is not applied yet
            return True
        if known.code is not Code.OUT_OF_ORDER_SEQUENCE:
            return False
        if _flag(header.flags, _STAGED_FLAG):
            return True
        session = self.producers.sessions[header.producer_id]
        window = session.windows.get(header.topic_id << 32 | header.partition)
        return window is None or header.sequence > window.next_sequence

    def _refusal(self, header: BodyHeader, partition: Partition | None) -> DataResult:
        if partition is None:
            return DataResult(
                Code.UNKNOWN_TOPIC, -1, self._no_partition(header.topic_id, header.partition)
            )
        if header.kind != BodyKind.DATA:
            return DataResult(
                Code.MALFORMED, -1, "the body is a command; send commands as commands"
            )
        return DataResult(
            Code.MALFORMED, -1, f"a batch has at least one record, not {header.count}"
        )

    def _no_partition(self, topic_id: int, number: int) -> str:
        info = self.topics_state.by_id.get(topic_id)
        if info is None:
            return f"there is no topic with id {topic_id}; it was deleted, or never created"
        return f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {number}"

    def apply_command(self, index: int, command: Command) -> CommandResult:
        """A command is committed: carry it out, or tell why it cannot be."""
        self._advance(index)
        self.clock_ms = max(self.clock_ms, getattr(command, "time_ms", 0))
        match command:
            case CreateTopic():
                return self._create_topic(command)
            case DeleteTopic():
                return self._delete_topic(command)
            case AddPartitions():
                return self.topics_state.grow(command)
            case InitProducer():
                return self.producers.open(index, command, self.clock_ms)
            case OpenStage():
                return self.transactions.open(index, command, self.clock_ms)
            case CommitTransaction():
                return self.transactions.commit(index, command)
            case CommitWrite():
                return self.transactions.commit_write(index, command, self.clock_ms)
            case AbortTransaction():
                return self.transactions.abort(command)
            case CommitOffsets() | CommitProgress():
                return self.consumer_groups.commit(command)
            case DeleteGroup():
                return self.consumer_groups.delete(command)
            case HoldRetention():
                return self.consumer_groups.hold(command)
            case Admit():
                return self._admit(command)
            case EvolveSchema():
                return self.schemas.evolve(command)
            case AdoptCommitLog():
                return self.queues.begin(index, command)
            case EnforceSecret():
                self.secret_enforced = True
                return CommandResult(_SUCCESS)
            case Expire():
                self.transactions.expire(self.clock_ms)
                self.producers.expire(index, self.clock_ms)
                return CommandResult(_SUCCESS)

    def _create_topic(self, command: CreateTopic) -> CommandResult:
        result, created = self.topics_state.create(command)
        if created is not None:
            self.schemas.add(created)
        return result

    def _delete_topic(self, command: DeleteTopic) -> CommandResult:
        info = self.topics_state.delete(command.name)
        if info is None:
            return CommandResult(Code.UNKNOWN_TOPIC, f"there is no topic {command.name!r}")
        dropped = self.partitions.drop(info)
        self._dropped += [(self.applied_index, gone.name) for gone in dropped.values() if gone.rows]
        self.schemas.drop(info.topic_id)
        self.producers.drop_partitions(dropped.keys())
        self.consumer_groups.forget_topic(info.topic_id)
        return CommandResult(_SUCCESS)

    def _admit(self, command: Admit) -> CommandResult:
        if command.after != self.members_index:
            return CommandResult(
                Code.INCONSISTENT_STATE, "another member was admitted meanwhile; ask again"
            )
        self.members, self.members_index = dict(command.members), self.applied_index
        return CommandResult(_SUCCESS)

    # ---- asking

    def topics(self) -> list[TopicInfo]:
        """All topics by name."""
        return sorted(self.topics_state.by_name.values(), key=lambda info: info.name)

    def topic(self, name: str) -> TopicInfo:
        """Raises: TopicNotFound."""
        info = self.topics_state.by_name.get(name)
        if info is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        return info

    def topic_by_id(self, topic_id: int) -> TopicInfo:
        """Raises: TopicNotFound."""
        info = self.topics_state.by_id.get(topic_id)
        if info is None:
            raise TopicNotFound(self._no_partition(topic_id, 0))
        return info

    def _at(self, topic_id: int, number: int) -> Partition:
        key = topic_id << 32 | number
        if number >> 32 or key not in self.partitions:
            raise TopicNotFound(self._no_partition(topic_id, number))
        return self.partitions.look(key)

    def begin_offset(self, topic_id: int, partition: int) -> int:
        """First offset that this node has kept. Raises: TopicNotFound."""
        return self._at(topic_id, partition).begin_offset

    def end_offset(self, topic_id: int, partition: int) -> int:
        """The offset that the next record gets. Raises: TopicNotFound."""
        return self._at(topic_id, partition).next_offset

    def find(
        self, topic_id: int, partition: int, offset: int, end_offset: int, max_bytes: int
    ) -> list[BatchRef]:
        """The batches that hold [offset, end_offset), consecutive, up to ``max_bytes`` but at least
        one.

        ``end_offset`` -1 is the end. Nothing when ``offset`` is not there yet.

        Raises:
            TopicNotFound: no such topic or partition.
            OffsetOutOfRange: ``offset`` is below what is kept.
        """
        return self._at(topic_id, partition).find(offset, end_offset, max_bytes)

    def offset_for_time(self, topic_id: int, partition: int, timestamp_us: int) -> int:
        """The base offset of the first batch with a record of that time or later, -1 when there is
        none: every kept record before it is older. Lower than need be where times fall back and the
        newest records were deleted.
        """
        return self._at(topic_id, partition).offset_for_time(timestamp_us)

    def split(
        self,
        topic_id: int,
        partition: int,
        start: int,
        end: int,
        target_bytes: int,
        max_pieces: int = 10_000,
    ) -> list[tuple[int, int]]:
        """Cut [start, end) at batch borders into (end offset, stored bytes) of about
        ``target_bytes`` each.

        The last end is the asked one unless ``max_pieces`` came first.

        Raises:
            TopicNotFound: no such topic or partition.
            OffsetOutOfRange: the range is not all there.
        """
        if target_bytes < 1 or max_pieces < 1:
            raise ConfigError(
                f"target_bytes {target_bytes} and max_pieces {max_pieces} must be 1 or more"
            )
        return self._at(topic_id, partition).split(start, end, target_bytes, max_pieces)

    def records_of(self, first: int, last: int) -> list[tuple[str, int, int, int]]:
        """The applied records in the entries ``first`` to ``last``: (topic, partition, first
        offset, count)."""
        return [
            (info.name, number, base, count)
            for info in self.topics()
            for number in range(info.partitions)
            if (partition := self._used.get(info.topic_id << 32 | number)) is not None
            for base, count in partition.batches_of(first, last)
        ]

    def group(self, name: str) -> dict[str, dict[int, int]]:
        """A consumer group's offsets, topic -> partition -> offset; empty when it has none."""
        return self.consumer_groups.offsets(name)

    def groups(self) -> tuple[str, ...]:
        """All consumer groups by name."""
        return tuple(sorted(self.consumer_groups.by_name))

    # ---- retention, time, checkpoints

    def drop_before(self, index: int) -> None:
        """Entries below ``index`` are gone: begin offsets move. Call it after each deletion and,
        after a restart, once all is replayed. Never above the last saved snapshot's applied index +
        1."""
        for partition in self._used.values():
            partition.drop_before(index)

    def retention_floor(self) -> Index:
        """Entries from here on must be kept, because an open stage needs them or they are not
        applied."""
        first = self.transactions.first_index()
        return Index(self.applied_index + 1 if first is None else first)

    def next_expiry_ms(self) -> int | None:
        """When an `Expire` has something to do, in the clock of the commands' ``time_ms``; None:
        nothing waits."""
        times = [
            at
            for at in (self.transactions.next_expiry_ms(), self.producers.next_expiry_ms)
            if at is not None
        ]
        return min(times, default=None)

    def snapshot(self) -> bytes:
        """The state but for the tables' rows, whose numbers it holds: equal bytes on all nodes with
        equal history.

        Sync the tables before it is saved.
        """
        return snapshot.encode(self)

    def digest(self) -> int:
        """CRC-32 of the state, the rows' contents included: equal on all nodes that have applied as
        much."""
        return snapshot.checksum(self.snapshot())

    def saved(self, index: int) -> None:
        """A snapshot whose applied index is ``index`` is durable: tables of topics deleted before
        it can go."""
        for deleted_at, name in self._dropped:
            if deleted_at <= index:
                self._tables.remove(name)
        self._dropped = [item for item in self._dropped if item[0] > index]

    @classmethod
    def restore(cls, data: bytes, tables: TableFactory) -> Catalog:
        """The catalog of a snapshot; rows that its tables got later are cut off. Apply from
        `applied_index` + 1 on.

        Raises:
            CorruptStore: the snapshot is damaged or does not fit the tables: start with an empty
                catalog and apply all.
        """
        catalog = cls.__new__(cls)
        catalog._setup(tables)
        snapshot.decode(data, catalog, tables)
        return catalog


__all__ = ["BatchRef", "Catalog", "CommandResult", "DataResult"]
