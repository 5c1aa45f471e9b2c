"""The members of a consumer group, and who reads which partition: in the manner of Kafka's KIP-848,
where the group itself assigns.

Two tables make the protocol. `target` is the assignment that shall be; it changes with members,
topics and partitions, and the epoch with it. `owners` is the assignment that is: a partition whose
target is another member stays its owner's until that one has released it, or is a member no more.
So no partition ever has two members. A commit counts while the partition is its sender's, and only
when the sender knows the epoch since which that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger.catalog.clients.assignment import assign
from dledger.protocol.messages.catalog_commands import JoinGroup

SESSION_MS: Final = range(1000, 30 * 60_000 + 1)
"""Time-outs that a member's session may have, in ms."""
MAX_NAME: Final = 1024
MAX_TOPICS: Final = 10_000
Partitions = Callable[[str], tuple[int, int]]
"""Name of a topic -> its id and number of partitions; (-1, 0) where there is none."""


@dataclass(slots=True)
class ConsumerMember:
    """One consumer, as it joined last."""

    member_id: str
    instance_id: str
    label: str
    topics: tuple[str, ...]
    session_ms: int
    version: int = 0
    committed: int = -1
    """The number of its last commit."""
    is_replaced: bool = False
    """Another one has joined under its instance id: it has no share, and what it still reads is to
    be released."""
    is_away: bool = False
    """It has left for a while, and reads nothing."""


class PartitionOwner(NamedTuple):
    """Who reads a partition, and the epoch in which it was given to that member."""

    member_id: str
    since: int


@dataclass(slots=True)
class GroupMembership:
    """The members of one group, by id in the order in which they joined."""

    epoch: int = 0
    changed_at: int = -1
    """The last entry that changed any of this."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[int, str] = field(default_factory=dict)
    """Topic id << 32 | number -> member."""
    owners: dict[int, PartitionOwner] = field(default_factory=dict)

    def join(self, index: int, command: JoinGroup, partitions: Partitions) -> None:
        """A new member, or other topics of one. One that takes over an instance id has the share of
        the member before, which is not its own before that one has released it."""
        known = self.members.get(command.member_id)
        if known is not None:
            if command.version <= known.version or known.is_replaced:
                return
            known.version, known.topics = command.version, command.topics
            known.session_ms = command.session_timeout_ms
        else:
            member = self.members[command.member_id] = ConsumerMember(
                command.member_id,
                command.instance_id,
                label=command.label,
                topics=command.topics,
                session_ms=command.session_timeout_ms,
                version=command.version,
            )
            self._take_over(member)
        self.rebalance(index, partitions)

    def _take_over(self, member: ConsumerMember) -> None:
        for former in list(self.members.values()):
            same = member.instance_id and former.instance_id == member.instance_id
            if former is member or not same or former.is_replaced:
                continue
            self.target = {
                key: member.member_id if owner == former.member_id else owner
                for key, owner in self.target.items()
            }
            former.is_replaced = True
            if former.is_away:
                del self.members[former.member_id]

    def leave(
        self, index: int, member_ids: Iterable[str], *, temporarily: bool, partitions: Partitions
    ) -> None:
        """Members are gone: what they read is free. Static ones that leave ``temporarily`` keep
        their share for who joins under their instance id."""
        named = dict.fromkeys(member_ids)  # a name may stand there twice
        known = [self.members[one] for one in named if one in self.members]
        for member in known:
            for key in self.owned_by(member.member_id):
                del self.owners[key]
            member.is_away = temporarily and bool(member.instance_id) and not member.is_replaced
            if not member.is_away:
                del self.members[member.member_id]
        if known:
            self.rebalance(index, partitions)

    def release(self, index: int, member_id: str, epoch: int, keys: Iterable[int]) -> None:
        """A member reads these no more, as far as it has had them since ``epoch`` or before."""
        for key in keys:
            owner = self.owners.get(key)
            if owner is not None and owner.member_id == member_id and owner.since <= epoch:
                del self.owners[key]
                self.changed_at = index
        self._give()

    def rebalance(self, index: int, partitions: Partitions) -> None:
        """Members, topics or partitions have changed: a new epoch, and the assignment for it."""
        self.epoch += 1
        self.changed_at = index
        topics: dict[int, int] = {}
        subscriptions: dict[str, list[int]] = {}
        for member in self.members.values():
            if not member.is_replaced:
                found = [partitions(name) for name in member.topics]
                topics |= {topic: count for topic, count in found if count}
                subscriptions[member.member_id] = [topic for topic, count in found if count]
        keys = [topic << 32 | at for topic in sorted(topics) for at in range(topics[topic])]
        self.target = assign(subscriptions, keys, self.target)
        self._give()

    def forget_topic(self, topic_id: int) -> None:
        """It was deleted, and its partitions are nobody's."""
        self.owners = {key: one for key, one in self.owners.items() if key >> 32 != topic_id}
        self.target = {key: one for key, one in self.target.items() if key >> 32 != topic_id}

    def _give(self) -> None:
        """Partitions that nobody reads go to the members that shall read them."""
        for key, member_id in self.target.items():
            if key not in self.owners and not self.members[member_id].is_away:
                self.owners[key] = PartitionOwner(member_id, self.epoch)

    def owned_by(self, member_id: str) -> list[int]:
        """The partitions that a member has."""
        return [key for key, owner in self.owners.items() if owner.member_id == member_id]

    def assigned_to(self, member_id: str) -> dict[int, int]:
        """The partitions that a member has and keeps -> the epoch in which it was given them."""
        return {
            key: owner.since
            for key, owner in self.owners.items()
            if owner.member_id == member_id and self.target.get(key) == member_id
        }

    def is_settled(self, member_id: str) -> bool:
        """Whether a member has all that it shall have."""
        return all(
            (owner := self.owners.get(key)) is not None and owner.member_id == member_id
            for key, wanted in self.target.items()
            if wanted == member_id
        )

    def state_of(self, member: ConsumerMember) -> str:
        """What a member does, in a word for people."""
        if member.is_replaced or member.is_away:
            return "replaced" if member.is_replaced else "away"
        return "reads" if self.is_settled(member.member_id) else "waits"

    def is_owner(self, member_id: str, epoch: int, key: int) -> bool:
        """Whether a partition is that member's, in ``epoch`` already."""
        owner = self.owners.get(key)
        return owner is not None and owner.member_id == member_id and owner.since <= epoch


def malformed_join(command: JoinGroup) -> str:
    """The fault of a join, or nothing."""
    texts = (command.member_id, command.instance_id, command.label, *command.topics)
    if not command.member_id or max(map(len, texts)) > MAX_NAME:
        return f"a member's id has 1 to {MAX_NAME} characters, and its other names up to as many"
    if not command.topics or len(command.topics) > MAX_TOPICS:
        return f"a member reads 1 to {MAX_TOPICS} topics, not {len(command.topics)}"
    if command.session_timeout_ms not in SESSION_MS:
        low, high = SESSION_MS.start, SESSION_MS.stop - 1
        return (
            f"session_timeout_ms is {low} to {high} ({high // 60_000} minutes), not "
            f"{command.session_timeout_ms}"
        )
    return ""
