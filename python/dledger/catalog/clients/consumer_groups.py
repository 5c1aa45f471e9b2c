"""Consumer groups: how far each has got in which topics, which of them hold retention back, and
their members (`dledger.catalog.clients.group_members`).

A group without members is anybody's, as that of a Spark query: whoever names it commits its
offsets. While it has members, they alone do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger.catalog.clients.group_members import GroupMembership
from dledger.catalog.results import CommandResult
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.topics import Topics
from dledger.protocol.messages.catalog_commands import (
    CommitConsumed,
    CommitOffsets,
    CommitProgress,
    DeleteGroup,
    HoldRetention,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
)
from dledger.protocol.messages.codes import Code

_DONE: Final = CommandResult(Code.SUCCESS)
Commit = CommitOffsets | CommitProgress | CommitConsumed


class Hold(NamedTuple):
    """The first records that a group still wants: no entry from ``index`` on can go."""

    index: int  # type: ignore[assignment]  # tuple.index is not needed here
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class ConsumerGroup:
    """The offsets that one group has processed."""

    offsets: dict[int, dict[int, int]] = field(default_factory=dict)
    """topic id -> partition -> next offset."""
    committed_ms: int = 0
    """When it said so last, in ms since 1970 by the leader's clock; 0: before that was noted."""
    holds: bool = False
    """Records that it has not processed are kept over their time, as far as an operator allows."""
    membership: GroupMembership = field(default_factory=GroupMembership)


class Groups:
    """All consumer groups by name."""

    def __init__(self, topics: Topics, partition: Callable[[int, int], Partition]) -> None:
        """``partition(topic id, number)`` raises where there is none."""
        self._topics = topics
        self._partition = partition
        self.by_name: dict[str, ConsumerGroup] = {}
        self.with_members: dict[str, ConsumerGroup] = {}
        """Those that have any: few of very many."""

    # ---- members

    def join(self, index: int, command: JoinGroup) -> CommandResult:
        """A consumer is a member from now on; the group is there with its first one."""
        group = self.by_name.setdefault(command.consumer_group, ConsumerGroup())
        group.membership.join(index, command, self._partitions)
        self.with_members[command.consumer_group] = group
        return _DONE

    def leave(self, index: int, command: LeaveGroup) -> CommandResult:
        """Members are gone; those that were none are no error."""
        group = self.by_name.get(command.consumer_group)
        if group is not None:
            group.membership.leave(
                index,
                command.member_ids,
                temporarily=command.temporarily,
                partitions=self._partitions,
            )
            if not group.membership.members:
                self.with_members.pop(command.consumer_group, None)
        return _DONE

    def release(self, index: int, command: ReleasePartitions) -> CommandResult:
        """A member has given partitions back."""
        group = self.by_name.get(command.consumer_group)
        if group is not None:
            group.membership.release(index, command.member_id, command.epoch, command.partitions)
        return _DONE

    def topic_changed(self, index: int, name: str) -> None:
        """A topic was created or deleted, or has more partitions: its readers get other shares."""
        for group in self.with_members.values():
            members = group.membership.members.values()
            if any(name in member.topics for member in members):
                group.membership.rebalance(index, self._partitions)

    def _partitions(self, name: str) -> tuple[int, int]:
        info = self._topics.by_name.get(name)
        return (-1, 0) if info is None else (info.topic_id, info.partitions)

    # ---- offsets

    def commit(self, command: Commit) -> CommandResult:
        """All or nothing: a refused commit changes nothing."""
        refused = self.refusal(command)
        if refused is None:
            self.note(command)
        return refused or _DONE

    def refusal(self, command: Commit) -> CommandResult | None:
        """Why a commit is refused, or None."""
        refused = self.no_partition(command) or self._fenced(command)
        if refused is not None:
            return refused
        for name, offsets in command.offsets.items():
            info = self._topics.by_name[name]
            for number, offset in offsets.items():
                end = self._partition(info.topic_id, number).next_offset
                if not 0 <= offset <= end:
                    text = (
                        f"{name}/{number} ends at offset {end}; {offset} cannot have been processed"
                    )
                    return CommandResult(Code.OFFSET_OUT_OF_RANGE, text)
        return None

    def note(self, command: Commit, time_ms: int = 0) -> None:
        """The offsets of a commit that is not refused, made at ``time_ms`` where it has no time of
        its own."""
        group = self.by_name.setdefault(command.consumer_group, ConsumerGroup())
        if isinstance(command, CommitConsumed):
            member = group.membership.members[command.member_id]
            if command.sequence <= member.committed:
                return
            member.committed = command.sequence
        for name, offsets in command.offsets.items():
            group.offsets.setdefault(self._topics.by_name[name].topic_id, {}).update(offsets)
        # the older command never noted it, and a replay must not either
        if not isinstance(command, CommitOffsets):
            group.committed_ms = command.time_ms or time_ms

    def _fenced(self, command: Commit) -> CommandResult | None:
        """The answer where the offsets are another's to commit."""
        name = command.consumer_group
        group = self.by_name.get(name)
        membership = GroupMembership() if group is None else group.membership
        if not isinstance(command, CommitConsumed):
            return self.in_use(name)
        if command.member_id not in membership.members:
            text = f"group {name!r} has no member {command.member_id}: its session has ended"
            return CommandResult(Code.UNKNOWN_CONSUMER, text)
        for topic, offsets in command.offsets.items():
            topic_id = self._topics.by_name[topic].topic_id
            for number in offsets:
                key = topic_id << 32 | number
                if not membership.is_owner(command.member_id, command.epoch, key):
                    owner = membership.owners.get(key)
                    text = (
                        f"{topic}/{number} is {'nobody' if owner is None else owner.member_id}'s "
                        f"in group {name!r}, not {command.member_id}'s of epoch {command.epoch}"
                    )
                    return CommandResult(Code.CONSUMER_FENCED, text)
        return None

    def in_use(self, name: str) -> CommandResult | None:
        """The answer to one that is no member, while there are any."""
        group = self.by_name.get(name)
        if group is None or not group.membership.members:
            return None
        some = ", ".join(one.label or one.member_id for one in group.membership.members.values())
        text = (
            f"consumer group {name!r} has {len(group.membership.members)} members ({some[:200]}), "
            f"which alone commit its offsets: end them, or use another group"
        )
        return CommandResult(Code.GROUP_IN_USE, text)

    def no_partition(self, command: Commit) -> CommandResult | None:
        """The answer where a topic or partition is not there, or another one by now."""
        log_ids = {} if isinstance(command, CommitOffsets) else command.log_ids
        for name, offsets in command.offsets.items():
            info = self._topics.by_name.get(name)
            if info is None:
                return CommandResult(Code.UNKNOWN_TOPIC, f"there is no topic {name!r}")
            log_id = log_ids.get(name, info.log_id)
            if log_id != info.log_id:
                text = (
                    f"topic {name!r} was deleted and created again: its log id is "
                    f"{info.log_id}, not {log_id}"
                )
                return CommandResult(Code.UNKNOWN_TOPIC, text)
            for number in offsets:
                if not 0 <= number < info.partitions:
                    text = f"topic {name!r} has partitions 0 to {info.partitions - 1}, not {number}"
                    return CommandResult(Code.UNKNOWN_TOPIC, text)
        return None

    def hold(self, command: HoldRetention) -> CommandResult:
        """A group holds retention back, or lets go; a group that does not exist can only let go."""
        if command.hold:
            self.by_name.setdefault(command.consumer_group, ConsumerGroup()).holds = True
        elif command.consumer_group in self.by_name:
            self.by_name[command.consumer_group].holds = False
        return _DONE

    def delete(self, command: DeleteGroup) -> CommandResult:
        """Forget a group that has no members; without effect when there is none."""
        refused = self.in_use(command.consumer_group)
        if refused is None:
            self.by_name.pop(command.consumer_group, None)
        return refused or _DONE

    def forget_topic(self, topic_id: int) -> None:
        for group in self.by_name.values():
            group.offsets.pop(topic_id, None)
        for group in self.with_members.values():
            group.membership.forget_topic(topic_id)

    def offsets(self, name: str) -> dict[str, dict[int, int]]:
        """topic -> partition -> offset; empty when there is no such group."""
        group = self.by_name.get(name)
        if group is None:
            return {}
        by_id = self._topics.by_id
        return {
            by_id[topic_id].name: dict(sorted(spans.items()))
            for topic_id, spans in group.offsets.items()
        }

    def holds(self) -> list[Hold]:
        """The first records that each group with a retention hold still wants, the oldest entry
        first. This node's view: it knows nothing of records that it has not kept."""
        found: list[Hold] = []
        for name, group in self.by_name.items():
            needed: list[Hold] = []
            for topic_id, spans in group.offsets.items() if group.holds else ():
                topic = self._topics.by_id[topic_id].name
                for number, offset in spans.items():
                    index = self._partition(topic_id, number).needed_from(offset)
                    if index is not None:
                        needed.append(Hold(index, name, topic, number, offset))
            if needed:
                found.append(min(needed))
        return sorted(found)
