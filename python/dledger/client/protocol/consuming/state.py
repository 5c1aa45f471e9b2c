"""A consumer's membership as it knows it: what it was given, what it reads, what it gives back.

The group's answers say what a member may read (`heard`). The program learns of a change when it
asks for records (`changes`), so that its callbacks run in its own thread, and what it was handed
before is processed by then. Partitions that are to be another's are given back only behind that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dledger.client.protocol.consuming.partitions import HeldPartition
from dledger.client.protocol.consuming.settings import TopicPartition
from dledger.client.protocol.operations.group_membership import MemberId
from dledger.errors import ConsumerFenced, SessionEnded
from dledger.protocol.messages.catalog_commands import CommitConsumed
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatResponse

LEASE: Final = 0.8
"""The part of its session's time-out for which a member hands out records behind a heartbeat that
was answered: the leader's clock may be a tenth too fast, and its own a tenth too slow."""


class ShareChangeKind(Enum):
    """What has become of some partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    """Another member is to have them, and waits."""
    LOST = "lost"
    """Another member may have them already."""


@dataclass(frozen=True, slots=True)
class ShareChange:
    """Partitions that were given to this consumer or taken from it, until it is carried out."""

    kind: ShareChangeKind
    keys: tuple[int, ...]
    places: list[TopicPartition]


@dataclass(slots=True)
class ConsumerState:
    """Of one consumer, over all its memberships."""

    group: str
    member: MemberId | None = None
    epoch: int = -1
    known_at: int = -1
    is_settled: bool = True
    lease_ms: float = 0.0
    """Until when records are handed out, by this machine's monotonic clock."""
    assigned: dict[int, int] = field(default_factory=dict)
    """Partition -> the epoch in which it was given, as last heard."""
    topics: dict[int, TopicInfo] = field(default_factory=dict)
    """By id, as last heard; an id is never another topic's."""
    held: dict[int, HeldPartition] = field(default_factory=dict)
    releasing: dict[int, int] = field(default_factory=dict)
    """Partitions that the program has done with -> the epoch in which they were revoked."""
    sequence: int = 0
    order: deque[int] = field(default_factory=deque)
    """In which held partitions have their turns."""

    # --- membership

    def joined(self, member: MemberId) -> None:
        """A new membership begins, and what an earlier one had is over."""
        self.ended()
        self.member = member

    def ended(self) -> None:
        """The group goes on without this member."""
        self.member = None
        self.epoch = self.known_at = -1
        self.is_settled = False
        self.lease_ms = 0.0
        self.assigned, self.releasing = {}, {}
        for held in self.held.values():
            held.is_over = True

    def heard(self, answer: GroupHeartbeatResponse, lease_ms: float) -> None:
        """A heartbeat was answered, and counts up to ``lease_ms``."""
        self.lease_ms = lease_ms
        self.epoch = answer.epoch
        if answer.changed_at == self.known_at:
            return
        self.known_at, self.is_settled = answer.changed_at, answer.is_settled
        self.assigned = dict(answer.assigned)
        self.topics.update({info.topic_id: info for info in answer.topics})
        for key, held in self.held.items():
            held.is_over = held.is_over or self.assigned.get(key, held.since) != held.since
        for key in answer.revoked:
            # the program never had it: it came and went between two of its calls
            if key not in self.held or self.held[key].is_over:
                self.releasing[key] = self.epoch

    def released(self, keys: set[int]) -> None:
        """The group knows that this member reads these no more."""
        for key in keys:
            self.releasing.pop(key, None)
            self.assigned.pop(key, None)
        self.known_at = -1

    def membership(self) -> MemberId:
        """Raises: SessionEnded: there is none at the moment."""
        if self.member is None:
            raise SessionEnded(
                f"this consumer is no member of group {self.group!r} at the moment: its session "
                f"ended, and it joins again when it asks for records"
            )
        return self.member

    def may_deliver(self, now_ms: float) -> bool:
        """Whether it is certain that no other member was given what this one has."""
        return self.member is not None and now_ms < self.lease_ms

    # --- changes

    def changes(self) -> ShareChange | None:
        """The next change that the program is to hear of; the same one until `carried_out`."""
        lost = [key for key, held in self.held.items() if held.is_over]
        if lost:
            return self._change(ShareChangeKind.LOST, lost)
        revoked = [key for key in self.held if key not in self.assigned]
        if revoked and self.member is not None:
            return self._change(ShareChangeKind.REVOKED, revoked)
        given = [key for key in self.assigned if self._is_given(key)]
        return self._change(ShareChangeKind.ASSIGNED, given) if given else None

    def _is_given(self, key: int) -> bool:
        held = self.held.get(key)
        return key not in self.releasing if held is None else held.is_new

    def _change(self, kind: ShareChangeKind, keys: list[int]) -> ShareChange:
        places = [TopicPartition(self._info(key).name, key & 0xFFFFFFFF) for key in sorted(keys)]
        return ShareChange(kind, tuple(sorted(keys)), places)

    def _info(self, key: int) -> TopicInfo:
        held = self.held.get(key)
        return self.topics[key >> 32] if held is None else held.info

    def given_up(self, change: ShareChange) -> None:
        """The program has heard that it has these no more."""
        for key in change.keys:
            held = self.held.pop(key, None)
            if held is not None:
                self.order.remove(key)
                if not held.is_over:
                    self.releasing[key] = self.epoch
                held.is_over = True

    def hold(self, held: HeldPartition) -> None:
        """A partition is read from now on."""
        self.held[held.key] = held
        self.order.append(held.key)

    # --- records

    def ready(self) -> HeldPartition | None:
        """The next partition that has records to hand out; each has its turn."""
        for _ in range(len(self.order)):
            held = self.held[self.order[0]]
            if not (held.is_paused or held.is_over or held.is_new) and held.is_ready:
                return held
            self.order.rotate(-1)
        return None

    def find(self, topic: str, partition: int) -> HeldPartition:
        """Raises: ConsumerFenced: this consumer does not have that partition."""
        for held in self.held.values():
            if (held.info.name, held.number) == (topic, partition) and not held.is_over:
                return held
        raise ConsumerFenced(
            f"{topic}/{partition} is not assigned to this consumer of group {self.group!r}"
        )

    # --- commits

    def positions(self) -> dict[int, int]:
        """Partition -> position, of those that moved since the last commit."""
        return {
            key: held.position
            for key, held in self.held.items()
            if not held.is_over and held.position != held.committed
        }

    def commit(self, positions: dict[int, int]) -> CommitConsumed:
        """The command that commits these; raises as `membership`."""
        member = self.membership()
        self.sequence += 1
        offsets: dict[str, dict[int, int]] = {}
        log_ids: dict[str, str] = {}
        for key, offset in positions.items():
            info = self._info(key)
            offsets.setdefault(info.name, {})[key & 0xFFFFFFFF] = offset
            log_ids[info.name] = info.log_id
        return CommitConsumed(
            consumer_group=self.group,
            member_id=member.member_id,
            epoch=self.epoch,
            sequence=self.sequence,
            offsets=offsets,
            log_ids=log_ids,
        )

    def committed(self, positions: dict[int, int]) -> None:
        """The group has noted these."""
        for key, offset in positions.items():
            if key in self.held:
                self.held[key].committed = offset
