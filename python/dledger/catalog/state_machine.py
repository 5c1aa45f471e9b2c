"""The state machine over committed entries: topics, offsets, producers, transactions, consumer
groups.

Every node applies the same entries in the same order and comes to the same state: this code asks no
clock, throws no dice and touches no file. Only the rows that each node has deleted for itself
(`drop_before`) differ, and are not in the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dledger.catalog import snapshot
from dledger.catalog.admission import malformed
from dledger.catalog.results import STAGED, CommandResult, DataResult
from dledger.catalog.state import CatalogState
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.schemas import refuse
from dledger.catalog.topics.table import TableFactory
from dledger.errors import CorruptStore
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    AddAcls,
    AddPartitions,
    Admit,
    AdoptCommitLog,
    AlterQuotas,
    AlterSettings,
    ChangeMembers,
    Command,
    CommitConsumed,
    CommitConsumedTransaction,
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
    JoinGroup,
    LeaveGroup,
    OpenStage,
    ReleasePartitions,
    RemoveAcls,
    UpgradeGroup,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.protocol.messages.group_version import check_supported
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser
from dledger.records.body.header import BodyHeader, BodyKind
from dledger.types import Index

_SUCCESS: Final = Code.SUCCESS
_flag = int.__and__  # the operator of IntFlag is ten times slower
_STAGED_FLAG: Final = 1


class Catalog(CatalogState):
    """Takes in entries in order, each with the method of its kind. Results are for the node that
    answers the client; the others ignore them."""

    def __init__(self, tables: TableFactory) -> None:
        """An empty catalog. Tables that are there belong to a life before; they are removed."""
        for name in tables.names():
            tables.remove(name)
        super().__init__(tables)

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

    def apply_batches(
        self,
        run: EntryRun,
        header: BodyHeader,
        counts_and_times: Sequence[tuple[int, int]],
    ) -> list[int] | None:
        """`apply_data` for entries whose bodies are batches like the first, which ``header``
        belongs to (see `plain_batches`); returns the first offset of each. None where
        each has to be looked at by itself: then nothing is applied."""
        key = header.topic_id << 32 | header.partition
        partition = self._used.get(key) or self.partitions.get(key)
        if partition is None or partition.newest_schema >= 0 or header.kind != BodyKind.DATA:
            return None
        if _flag(header.flags, _STAGED_FLAG):
            return None
        if run.index <= self.applied_index:
            self._advance(run.index)
        bases = partition.append_all(run, counts_and_times)
        self.applied_index = run.last
        self.partitions.grown.add(key)
        return bases

    def check_append(self, header: BodyHeader) -> DataResult | None:
        """For a leader, before it proposes a batch: an answer that is certain already, or None.

        Refusals that entries in flight could heal (a sequence ahead of its turn, a session or stage
        that is not there yet) are left to `apply_data`. A leader asks this only when it has applied
        all entries before its term.
        """
        key = header.topic_id << 32 | header.partition
        partition = self._used.get(key) or self.partitions.get(key)
        if partition is None or header.count <= 0 or header.kind != BodyKind.DATA:
            return self._refusal(header, partition)
        if header.schema_version or partition.newest_schema >= 0:
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
                Code.UNKNOWN_TOPIC, -1, self.no_partition(header.topic_id, header.partition)
            )
        if header.kind != BodyKind.DATA:
            return DataResult(
                Code.MALFORMED, -1, "the body is a command; send commands as commands"
            )
        return DataResult(
            Code.MALFORMED, -1, f"a batch has at least one record, not {header.count}"
        )

    def apply_command(self, index: int, command: Command) -> CommandResult:
        """A command is committed: carry it out, or tell why it cannot be.

        Raises:
            UnsupportedVersion: the group has a version from here on that this release does not
                support; the state is as before.
        """
        if isinstance(command, UpgradeGroup):
            check_supported(command.version, command.release)
        self._advance(index)
        self.clock_ms = max(self.clock_ms, getattr(command, "time_ms", 0))
        return malformed(command) or self._carry_out(index, command)

    def _carry_out(self, index: int, command: Command) -> CommandResult:
        match command:
            case CreateTopic():
                return self._create_topic(command)
            case DeleteTopic():
                return self._delete_topic(command)
            case AddPartitions():
                return self._add_partitions(command)
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
            case CommitOffsets() | CommitProgress() | CommitConsumed():
                return self.consumer_groups.commit(command)
            case CommitConsumedTransaction():
                return self._commit_consumed(index, command)
            case JoinGroup():
                return self.consumer_groups.join(index, command)
            case ReleasePartitions():
                return self.consumer_groups.release(index, command)
            case LeaveGroup():
                return self.consumer_groups.leave(index, command)
            case DeleteGroup():
                return self.consumer_groups.delete(command)
            case HoldRetention():
                return self.consumer_groups.hold(command)
            case Admit() | ChangeMembers():
                return self._change_members(command)
            case EvolveSchema():
                return self.schemas.evolve(command)
            case AdoptCommitLog():
                return self.queues.begin(index, command)
            case EnforceSecret():
                self.secret_enforced = True
                return CommandResult(_SUCCESS)
            case SetUser() | RemoveUser() | IssueToken():
                return self.refuses_user(command) or self.users.change(command, self.clock_ms)
            case AddAcls() | RemoveAcls():
                return self.acls.change(command)
            case AlterQuotas():
                return self.quotas.alter(command)
            case UpgradeGroup():
                return self.version.apply(command)
            case AlterSettings():
                return self.topics_state.no_setting(command) or self.settings.alter(command)
            case Expire():
                self.users.expire(self.clock_ms)
                self.transactions.expire(self.clock_ms)
                self.producers.expire(index, self.clock_ms)
                return CommandResult(_SUCCESS)

    def _create_topic(self, command: CreateTopic) -> CommandResult:
        result, created = self.topics_state.create(command)
        if created is not None:
            self.schemas.add(created)
            self.consumer_groups.topic_changed(self.applied_index, command.name)
        return result

    def _add_partitions(self, command: AddPartitions) -> CommandResult:
        result = self.topics_state.grow(command)
        if result.code is _SUCCESS:
            self.consumer_groups.topic_changed(self.applied_index, command.name)
        return result

    def _commit_consumed(self, index: int, command: CommitConsumedTransaction) -> CommandResult:
        """A transaction and the offsets that it was made from: both or neither."""
        writer = self.transactions.writers.find(command.writer_id)
        is_repeat = writer is not None and command.sequence <= writer.sequence
        refused = None if is_repeat else self.consumer_groups.refusal(command.consumed)
        if refused is not None:
            return refused
        plain = CommitTransaction(
            writer_id=command.writer_id, sequence=command.sequence, stages=command.stages
        )
        result = self.transactions.commit(index, plain)
        if result.code is _SUCCESS and not is_repeat:
            self.consumer_groups.note(command.consumed, command.time_ms)
        return result

    def _delete_topic(self, command: DeleteTopic) -> CommandResult:
        info = self.topics_state.delete(command.name)
        if info is None:
            return CommandResult(Code.UNKNOWN_TOPIC, f"there is no topic {command.name!r}")
        dropped = self.partitions.drop(info)
        self._dropped += [(self.applied_index, gone.name) for gone in dropped.values() if gone.rows]
        self.schemas.drop(info.topic_id)
        self.settings.topic_deleted(info.name)
        self.producers.drop_partitions(dropped.keys())
        self.consumer_groups.forget_topic(info.topic_id)
        self.consumer_groups.topic_changed(self.applied_index, command.name)
        return CommandResult(_SUCCESS)

    def _change_members(self, command: Admit | ChangeMembers) -> CommandResult:
        if command.after != self.members_index:
            return CommandResult(
                Code.INCONSISTENT_STATE, "the group's members were changed meanwhile; ask again"
            )
        if isinstance(command, Admit):
            self.members = dict(command.members)
            self.group_list.admit(command.node_id, command.members)
        else:
            self.members = {str(one.id): one.incarnation for one in command.members}
            self.group_list.change(command.members)
        self.members_index = self.applied_index
        return CommandResult(_SUCCESS)

    # ---- retention, time, checkpoints

    def drop_before(self, index: int, keys: Iterable[int] | None = None) -> None:
        """Entries below ``index`` are gone: begin offsets move, of all partitions or of these
        `used_keys`. Call it after each deletion and, after a restart, once all is replayed. Never
        above the last saved snapshot's applied index + 1."""
        for key in self._used if keys is None else keys:
            partition = self._used.get(key)
            if partition is not None:  # else its topic was deleted
                partition.drop_before(index)

    @property
    def used_keys(self) -> list[int]:
        """Of the partitions that have had a record: topic id << 32 | number."""
        return list(self._used)

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
        CatalogState.__init__(catalog, tables)
        snapshot.decode(data, catalog, tables)
        return catalog
