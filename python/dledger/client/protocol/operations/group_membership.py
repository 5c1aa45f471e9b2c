"""Requests of a consumer group's members, as generators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dledger.client.protocol.client_state import ATTEMPT_MS, ClientState, Operation, Request
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.operations.transaction_requests import committed
from dledger.client.protocol.results import Committed
from dledger.client.protocol.routing import CallPolicy
from dledger.protocol.messages.catalog_commands import (
    CommitConsumed,
    CommitConsumedTransaction,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
    StageSum,
)
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest, GroupHeartbeatResponse

SINCE: Final = "0.2.0"
"""The first release whose nodes know these requests."""


@dataclass(frozen=True, slots=True)
class MemberId:
    """A member and its group."""

    group: str
    member_id: str

    def __str__(self) -> str:
        return f"member {self.member_id} of group {self.group!r}"


def join_group(command: JoinGroup) -> Operation[None]:
    """Become a member, or read other topics; safe to repeat.

    Raises:
        ConfigError: the group's name, an id or the time-out cannot be.
        LimitReached: the group of nodes may have no more consumer groups.
        ProtocolError: the nodes know no members of consumer groups.
    """
    yield from execute(command, f"join group {command.consumer_group!r}", since=SINCE)


def leave_group(member: MemberId, *, temporarily: bool = False) -> Operation[None]:
    """End a membership: its partitions are free. One that has ended is no error."""
    command = LeaveGroup(
        consumer_group=member.group, member_ids=(member.member_id,), temporarily=temporarily
    )
    yield from execute(command, f"leave group {member.group!r}", since=SINCE)


def release_partitions(member: MemberId, epoch: int, keys: Iterable[int]) -> Operation[None]:
    """Give back partitions (topic id << 32 | number) that are another's as of ``epoch``."""
    command = ReleasePartitions(
        consumer_group=member.group,
        member_id=member.member_id,
        epoch=epoch,
        partitions=tuple(sorted(keys)),
    )
    yield from execute(command, f"release partitions of {member}")


def heartbeat(
    member: MemberId, known_at: int, session_ms: int
) -> Operation[GroupHeartbeatResponse]:
    """Tell that the member lives, and hear what it has; a node is waited for no longer than a part
    of the session.

    Raises:
        ConsumerFenced: it is a member no more.
    """
    request = GroupHeartbeatRequest(
        consumer_group=member.group, member_id=member.member_id, known_at=known_at
    )
    attempt_ms = min(ATTEMPT_MS, session_ms / 4)
    policy = CallPolicy(what=f"heartbeat of {member}")
    answer, _ = yield Request(request, policy, (), attempt_ms, session_ms)
    found: GroupHeartbeatResponse = answer
    return found


def commit_consumed(_: ClientState, command: CommitConsumed) -> Operation[None]:
    """The member has processed everything below these offsets.

    Raises:
        ConsumerFenced: it is a member no more, or a partition is another member's by now; nothing
            was noted.
        OffsetOutOfRange: an offset is behind the end of its partition; nothing was noted.
    """
    yield from execute(command, f"commit offsets of group {command.consumer_group!r}")


def commit_consumed_transaction(
    writer_id: str, sequence: int, stages: Sequence[StageSum], consumed: CommitConsumed
) -> Operation[Committed]:
    """Give the staged records their offsets and note what the member has processed, both or
    neither. Safe to repeat; raises as `commit_transaction` and `commit_consumed`."""
    command = CommitConsumedTransaction(
        writer_id=writer_id,
        sequence=sequence,
        stages=tuple(stages),
        consumed=replace(consumed, time_ms=0),
    )
    what = f"commit a transaction of group {consumed.consumer_group!r}"
    return committed((yield from execute(command, what)))
