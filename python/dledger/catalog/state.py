"""The catalog's state, and the questions to it."""

from __future__ import annotations

from typing import ClassVar

from dledger.catalog.access.acls import Acls
from dledger.catalog.access.quotas import QuotaState
from dledger.catalog.access.users import Users
from dledger.catalog.clients.consumer_groups import Groups
from dledger.catalog.clients.producers import Producers
from dledger.catalog.clients.transactions import Transactions
from dledger.catalog.clients.writers import MAX_WRITERS
from dledger.catalog.group_list import GroupList
from dledger.catalog.results import BatchRef, CommandResult, RunRef
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.partitions import Partitions
from dledger.catalog.topics.queues import Queues
from dledger.catalog.topics.schemas import Schemas
from dledger.catalog.topics.table import TableFactory
from dledger.catalog.topics.topics import Topics
from dledger.errors import TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser
from dledger.types import NO_INDEX, Index


class CatalogState:
    """The meaning of the committed log, up to and including `applied_index`."""

    most_writers: ClassVar = MAX_WRITERS
    """Writers of transactions that are remembered by name. Nodes that differ in it have different
    catalogs."""

    def __init__(self, tables: TableFactory) -> None:
        """An empty state, with the given tables."""
        self._tables = tables
        self.applied_index: Index = NO_INDEX
        self.clock_ms = 0
        self.topics_state = Topics()
        self.partitions = Partitions(
            tables, self.topics_state, newest_schema=lambda topic_id: self.schemas.newest(topic_id)
        )
        self._used = self.partitions.used
        self.schemas = Schemas(self.topics_state, self._used)
        self.producers = Producers()
        self.transactions = Transactions(
            self.partitions.get, self.partitions.grown, max_writers=self.most_writers
        )
        self.members: dict[str, int] = {}
        """The incarnation of each member that counts, by the entry `members_index`; empty before
        the first `Admit`."""
        self.members_index: Index = NO_INDEX
        self.group_list = GroupList()
        self.secret_enforced = False
        """Whether the group has said that every member must prove its secret."""
        self.acls = Acls()
        self.consumer_groups = Groups(self.topics_state, self.partition_at)
        self.queues = Queues()
        self.quotas = QuotaState()
        self.users = Users()
        self._dropped: list[tuple[int, str]] = []

    @staticmethod
    def no_topic(topic_id: int) -> str:
        """The text for an id that is no topic's."""
        return f"there is no topic with id {topic_id}; it was deleted, or never created"

    def no_partition(self, topic_id: int, number: int) -> str:
        """The text for a partition that is not there."""
        info = self.topics_state.by_id.get(topic_id)
        if info is None:
            return self.no_topic(topic_id)
        return f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {number}"

    @property
    def access_is_checked(self) -> bool:
        """Whether a principal may do only what rules allow: from the first rule or user on."""
        return bool(self.acls.rules or self.users.by_name)

    @property
    def access_version(self) -> tuple[int, bool]:
        """It is another one whenever principals may do other things."""
        return self.acls.version, self.access_is_checked

    def refuses_user(self, command: SetUser | IssueToken | RemoveUser) -> CommandResult | None:
        """Why the present state cannot take a command about users, or None. The first one comes
        behind a rule on who may change the rules: without any, users could do nothing."""
        if isinstance(command, SetUser) and not self.access_is_checked:
            return CommandResult(
                Code.UNEXPECTED_ARGUMENT,
                "from the first user on, what no rule allows is denied: first name who may change "
                "the rules, dledger acl add allow User:NAME admin cluster",
            )
        return self.users.refusal(command)

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
            raise TopicNotFound(self.no_partition(topic_id, 0))
        return info

    def partition_at(self, topic_id: int, number: int) -> Partition:
        """One partition, to be read. Raises: TopicNotFound."""
        key = topic_id << 32 | number
        if number >> 32:
            raise TopicNotFound(self.no_partition(topic_id, number))
        found = self._used.get(key)
        if found is not None:
            return found
        if key not in self.partitions:
            raise TopicNotFound(self.no_partition(topic_id, number))
        return self.partitions.look(key)

    def begin_offset(self, topic_id: int, partition: int) -> int:
        """First offset that this node has kept. Raises: TopicNotFound."""
        return self.partition_at(topic_id, partition).begin_offset

    def end_offset(self, topic_id: int, partition: int) -> int:
        """The offset that the next record gets. Raises: TopicNotFound."""
        return self.partition_at(topic_id, partition).next_offset

    def edges(self, topic: TopicInfo) -> tuple[dict[int, int], dict[int, int]]:
        """Of every partition the first offset that this node has kept, and the next one."""
        first, numbers = topic.topic_id << 32, range(topic.partitions)
        found = list(map(self._used.get, range(first, first + topic.partitions)))
        begins = [0 if one is None else one.begin_offset for one in found]
        ends = [0 if one is None else one.next_offset for one in found]
        return dict(zip(numbers, begins, strict=True)), dict(zip(numbers, ends, strict=True))

    def find(
        self, topic_id: int, partition: int, offset: int, end_offset: int, max_bytes: int
    ) -> list[BatchRef]:
        """The batches that hold [offset, end_offset), consecutive, up to ``max_bytes`` but at least
        one.

        ``end_offset`` -1 is the end. Empty when ``offset`` is not there yet.

        Raises:
            TopicNotFound: no such topic or partition.
            OffsetOutOfRange: ``offset`` is below the first kept one.
        """
        return self.partition_at(topic_id, partition).find(offset, end_offset, max_bytes)

    def find_run(
        self, topic_id: int, partition: int, offset: int, end_offset: int, max_bytes: int
    ) -> RunRef | None:
        """As `find`, only batches whose entries lie one behind the other; None when these are few.

        Raises:
            TopicNotFound: no such topic or partition.
        """
        return self.partition_at(topic_id, partition).find_run(offset, end_offset, max_bytes)

    def offset_for_time(self, topic_id: int, partition: int, timestamp_us: int) -> int:
        """The base offset of the first batch with a record of that time or later, -1 when there is
        none: every kept record before it is older. Lower than need be where times fall back and the
        newest records were deleted.
        """
        return self.partition_at(topic_id, partition).offset_for_time(timestamp_us)

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
            for at in (
                self.transactions.next_expiry_ms(),
                self.producers.next_expiry_ms,
                self.users.next_expiry_ms(),
            )
            if at is not None
        ]
        return min(times, default=None)
