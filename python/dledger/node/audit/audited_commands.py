"""Which commands are events of the audit log. Each command has a row here, or is named as one that
is none."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    AddAcls,
    AddPartitions,
    Admit,
    AdoptCommitLog,
    AlterQuotas,
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
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser


class Audited(NamedTuple):
    """How a command is written."""

    event: str
    details: tuple[str, ...] = ()
    """Its fields that are written with it."""
    is_reset: bool = False
    """Only with `ExecuteRequest.reset`."""


AUDITED: Final[dict[type[Any], Audited]] = {
    CreateTopic: Audited("create topic", ("name", "partitions", "settings")),
    DeleteTopic: Audited("delete topic", ("name",)),
    AddPartitions: Audited("add partitions", ("name", "partitions")),
    EvolveSchema: Audited("change schema", ("topic", "base_version")),
    DeleteGroup: Audited("delete group", ("consumer_group",)),
    CommitProgress: Audited("reset group", ("consumer_group", "offsets"), is_reset=True),
    HoldRetention: Audited("hold retention", ("consumer_group", "hold")),
    EnforceSecret: Audited("enforce secret"),
    SetUser: Audited("set user", ("name", "is_new")),
    RemoveUser: Audited("remove user", ("name", "token_id")),
    IssueToken: Audited("issue token", ("user", "token_id", "lifetime_ms")),
    AddAcls: Audited("add acls", ("rules",)),
    RemoveAcls: Audited("remove acls", ("rules",)),
    AlterQuotas: Audited("alter quotas", ("entity", "quotas")),
}
NOT_AUDITED: Final[frozenset[type[Any]]] = frozenset(
    {
        # records, and who reads them
        InitProducer,
        OpenStage,
        CommitTransaction,
        CommitWrite,
        AbortTransaction,
        CommitOffsets,
        JoinGroup,
        ReleasePartitions,
        LeaveGroup,
        CommitConsumed,
        CommitConsumedTransaction,
        # the node's own: `AdmitRequest` is what a client sends
        Admit,
        ChangeMembers,
        Expire,
        AdoptCommitLog,
    }
)

AGAIN: Final = frozenset(
    {
        Code.NOT_LEADER,
        Code.LEADER_PENDING_FULL,
        Code.LEADER_NOT_READY,
        Code.LEADER_TRANSFERRING,
        Code.DISK_FULL,
    }
)
"""Answers after which clients ask again, here or at another node, whose answer then counts."""
UNKNOWN: Final = frozenset({Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT, Code.DISK_ERROR})
"""Answers that leave open whether it was done."""


def audited(command: Command, *, is_reset: bool) -> Audited | None:
    """The row of a command that a client has sent; None: it is no event."""
    row = AUDITED.get(type(command))
    return row if row is not None and (is_reset or not row.is_reset) else None


def outcome(code: Code, message: str) -> dict[str, str] | None:
    """The outcome of a request as `AuditLog.record` takes it; None: it has none here."""
    if code is Code.SUCCESS:
        return {}
    if code in AGAIN:
        return None
    return {"unknown" if code in UNKNOWN else "refused": message or code.name}
