"""The commands to the catalog, in entries that carry no records. Every node applies them alike, so
they hold every input: times are stamped by the leader, ids are made by the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.membership import Member
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser

WHOLE_GROUP: Final = "Group"
"""The entity of limits of the group in all."""
QUOTA_UNSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """A new topic with its own log id; ``if_absent`` makes an existing one with as many partitions
    a success."""

    name: str
    log_id: str
    partitions: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    if_absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """The topic has ``partitions`` from now on, which is no fewer than before: its records keep
    their places."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """Open a producer session, or with a known ``producer_name`` raise its epoch and fence the
    former holder."""

    producer_name: str
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStage:
    """A place for batches that get offsets only when (writer_id, sequence) commits it."""

    writer_id: str
    sequence: int
    label: str
    """The writer's name, for people: e.g. ``partition 3 attempt 0``."""
    timeout_ms: int
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSum:
    """The sum that a stage must hold to be committed."""

    stage_id: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransaction:
    """Give every staged batch its offsets at once, stage by stage in this order. A repeat is a
    success that changes nothing; the answer is the first one's."""

    writer_id: str
    sequence: int
    stages: tuple[StageSum, ...] = ()
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWrite:
    """As `CommitTransaction`, of a write that may be run again: a repeat must have the same rows,
    and an older sequence than the writer's last one is refused."""

    writer_id: str
    sequence: int
    stages: tuple[StageSum, ...] = ()
    records: int = 0
    """Rows of the whole write, also of tasks that have staged none because it is committed
    already."""
    digest: str = ""
    """Of these rows (`dledger.records.digest`), in 16 hexadecimal digits."""
    formerly: str = ""
    """The writer's name in an earlier release."""
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransaction:
    """Drop the stages of (writer_id, sequence); never undoes a commit. Without ``stage_ids``: all
    of them."""

    writer_id: str
    sequence: int
    stage_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The leader's clock says it is ``time_ms``: drop stages and sessions whose time is over."""

    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """A consumer group has processed everything below these offsets: topic -> partition ->
    offset."""

    consumer_group: str
    offsets: dict[str, dict[int, int]]
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProgress:
    """As `CommitOffsets`, and only where each topic in ``log_ids`` (topic -> log id) is still that
    one; the time is noted."""

    consumer_group: str
    offsets: dict[str, dict[int, int]]
    log_ids: dict[str, str] = field(default_factory=dict)
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Forget a consumer group: its offsets, and its retention hold."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRetention:
    """Records that a consumer group has not processed are to be kept over their time (``hold``), or
    no longer."""

    consumer_group: str
    hold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """The incarnation of ``node_id`` that counts from now on is the one in ``members``, which names
    those of all.

    It takes effect only where the entry ``after`` is the last one that said so (-1: none did), so
    that of two that cross neither undoes the other.
    """

    node_id: str
    members: dict[str, int]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMembers:
    """The members of the group are these, from when the entry is in a node's log.

    ``after`` as in `Admit`. The list differs by at most one voter from the one before.
    """

    after: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptCommitLog:
    """The first entry of a group that goes on behind an old RocketMQ commit log, the same on every
    member.

    It is there before the group is, so its checksums in the chain of entries keep out a member with
    another old log.
    """

    divided_offset: int
    """Where the old log ends and this one begins (dividedCommitlogOffset)."""
    fingerprint: int
    """Of the old log's last file."""
    store_ms: int
    """Store time of the old log's last message."""
    queues: dict[str, dict[int, int]]
    """topic -> queue id -> queue offset of the next message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveSchema:
    """The columns of a typed topic become these (`dledger.records.columns.types`), if
    ``base_version`` is still the newest one; 0 for the first ones."""

    topic: str
    log_id: str
    base_version: int
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforceSecret:
    """From here on no member is taken without a proof of the group's secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A consumer is a member of its group from now on, with a share of these topics. One that is a
    member gets other topics by it, unless its ``version`` is no newer than the last one's."""

    consumer_group: str
    member_id: str
    """Drawn by the consumer for this membership alone."""
    topics: tuple[str, ...]
    """A topic that is not there yet counts from its creation on."""
    session_timeout_ms: int
    instance_id: str = ""
    """Of a static member: whoever joins under it again has its share, the others keep theirs."""
    label: str = ""
    """The program, for people."""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePartitions:
    """A member reads these partitions no more, of which it learned in ``epoch`` that they are to be
    another's. One that it was given in a later epoch stays its own."""

    consumer_group: str
    member_id: str
    epoch: int
    partitions: tuple[int, ...]
    """Topic id << 32 | number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """These members are gone: they end, or their leader has not heard of them for their session's
    time. ``temporarily``: static members keep their share for their session's time."""

    consumer_group: str
    member_ids: tuple[str, ...]
    temporarily: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitConsumed:
    """As `CommitProgress`, of a member that has these partitions and knows the group's ``epoch``.
    Its commits are numbered; one that comes late, behind a newer one, changes nothing."""

    consumer_group: str
    member_id: str
    epoch: int
    sequence: int
    offsets: dict[str, dict[int, int]]
    log_ids: dict[str, str] = field(default_factory=dict)
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitConsumedTransaction:
    """`CommitTransaction` and `CommitConsumed` in one: both are done, or neither."""

    writer_id: str
    sequence: int
    stages: tuple[StageSum, ...]
    consumed: CommitConsumed
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotas:
    """Quotas of a principal, of `ALL_USERS` or of the `WHOLE_GROUP` become these
    (`dledger.catalog.access.quotas`), and with `QUOTA_UNSET` none; empty: it has none at all any
    more."""

    entity: str
    quotas: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAcls:
    """These rules hold from now on, all or none; those that are there already stay. ``force``: also
    where no principal could change rules any more."""

    rules: tuple[AclRule, ...]
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAcls:
    """These rules hold no longer, all or none; ``force`` as in `AddAcls`."""

    rules: tuple[AclRule, ...]
    force: bool = False


Command = (
    CreateTopic
    | DeleteTopic
    | InitProducer
    | OpenStage
    | CommitTransaction
    | AbortTransaction
    | Expire
    | CommitOffsets
    | Admit
    | AddPartitions
    | CommitProgress
    | HoldRetention
    | DeleteGroup
    | EvolveSchema
    | AdoptCommitLog
    | EnforceSecret
    | CommitWrite
    | JoinGroup
    | ReleasePartitions
    | LeaveGroup
    | CommitConsumed
    | CommitConsumedTransaction
    | AlterQuotas
    | SetUser
    | RemoveUser
    | IssueToken
    | AddAcls
    | RemoveAcls
    | ChangeMembers
)
