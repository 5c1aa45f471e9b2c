"""Consumer groups with members, followed apart from any catalog and any consumer.

The clients of the simulator tell what their consumers were handed, asked to commit, and were told;
the watch tells each command as the first node applies it. G1 to G6 in `verification.invariants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger.catalog.results import CommandResult
from dledger.protocol.messages.catalog_commands import (
    Command,
    CommitConsumed,
    CommitConsumedTransaction,
    LeaveGroup,
    ReleasePartitions,
)
from dledger.protocol.messages.codes import Code
from verification.invariants.broken import Broken
from verification.invariants.view import WatchedNode

LEAST_SHARE: Final = 0.85
"""Of a session's time-out that passes at least: a leader's monotonic clock may be a tenth too
fast."""
SLACK_MS: Final = 200
Place = tuple[str, int]
"""A group, and topic id << 32 | partition."""


@dataclass(slots=True)
class Handed:
    """One partition of a group: who was handed its records last, and up to where."""

    since: int = -1
    member: str = ""
    following: int | None = None
    """The offset that comes next for that member; None: it begins at a committed one."""
    acked: int = 0
    """The largest offset of a commit that was acknowledged."""
    asked: int = 0
    """The largest offset that a member asked to commit."""


class Consumed:
    """All groups of a run."""

    def __init__(self, *, follows_catalogs: bool = False) -> None:
        """``follows_catalogs``: it is told each command (`applied`)."""
        self._follows_catalogs = follows_catalogs
        self._places: dict[Place, Handed] = {}
        self._heard_ms: dict[str, tuple[int, int]] = {}
        """Member -> when its last answered heartbeat was sent, and its time-out."""
        self._left: set[str] = set()
        self._offsets: dict[Place, int] = {}
        """As the first catalog has them."""
        self._owners: dict[str, dict[int, tuple[str, int]]] = {}
        """Group -> partition -> its member, and the epoch in which it was given."""
        self._members: dict[str, set[str]] = {}

    def _at(self, group: str, key: int) -> Handed:
        return self._places.setdefault((group, key), Handed())

    # --- what consumers do

    def handed(self, group: str, key: int, owner: tuple[str, int], first: int, count: int) -> None:
        """A member was handed records of a partition that it has since that epoch."""
        at, (member, since) = self._at(group, key), owner
        name = f"{member} of group {group}, epoch {since}: partition {key >> 32}/{key & 0xFFFFFFFF}"
        if since < at.since or (since == at.since and member != at.member):
            text = f"is handed {first} after {at.member} of epoch {at.since} was handed records"
            raise Broken("G1", f"{name} {text}")
        if since > at.since:
            at.since, at.member, at.following = since, member, None
        if at.following is None and not at.acked <= first <= at.asked:
            text = f"begins at {first}, committed are {at.acked} to {at.asked}"
            raise Broken("G2", f"{name} {text}")
        if at.following is not None and first != at.following:
            raise Broken("G2", f"{name} is handed {first} where {at.following} comes next")
        at.following = first + count

    def rewound(self, group: str, member: str) -> None:
        """A member goes on behind its last commit."""
        for (name, _), at in self._places.items():
            if name == group and at.member == member:
                at.following = None

    def asked(self, group: str, member: str, positions: dict[int, int]) -> None:
        """A member asks to commit these."""
        for key, offset in positions.items():
            at = self._at(group, key)
            if at.member == member and at.following is not None and offset > at.following:
                text = f"{member} commits {offset} and was handed records up to {at.following}"
                raise Broken("G2", f"group {group}, partition {key >> 32}/{key & 0xFFFF}: {text}")
            at.asked = max(at.asked, offset)

    def acked(self, group: str, positions: dict[int, int]) -> None:
        """A member was told that these are committed."""
        for key, offset in positions.items():
            at = self._at(group, key)
            at.acked = max(at.acked, offset)
            if self._follows_catalogs and self._offsets.get((group, key), -1) < offset:
                text = f"{offset} is acknowledged, committed is {self._offsets.get((group, key))}"
                raise Broken("G3", f"group {group}, partition {key >> 32}/{key & 0xFFFF}: {text}")

    def heard(self, member: str, sent_ms: int, session_ms: int) -> None:
        """A heartbeat that was sent then is answered."""
        self._heard_ms[member] = sent_ms, session_ms

    def left(self, member: str) -> None:
        """A member has ended, by its own will or by what it was told."""
        self._left.add(member)

    # --- what the group does

    def applied(
        self, view: WatchedNode, command: Command, result: CommandResult, now_ms: int
    ) -> None:
        """The first node has applied a command."""
        for name, group in view.catalog.consumer_groups.by_name.items():
            membership = group.membership
            if not membership.epoch:
                continue
            self._gone(name, set(membership.members), now_ms)
            self._owned(name, membership.owners, command)
            for topic_id, spans in group.offsets.items():
                for number, offset in spans.items():
                    self._committed(name, topic_id << 32 | number, offset, command, result)

    def _gone(self, name: str, members: set[str], now_ms: int) -> None:
        """G6: a session ends when its time is over, or its member says so."""
        for member in self._members.get(name, set()) - members - self._left:
            sent_ms, session_ms = self._heard_ms.get(member, (0, 0))
            if now_ms - sent_ms < LEAST_SHARE * session_ms - SLACK_MS:
                text = f"{now_ms - sent_ms} ms after its heartbeat; its time-out is {session_ms} ms"
                raise Broken("G6", f"{member} of group {name} is ended {text}")
        self._members[name] = members

    def _owned(self, name: str, owners: Mapping[int, tuple[str, int]], command: Command) -> None:
        """G5: a partition is given away by who has it, or when that one is gone."""
        for key, (member, since) in self._owners.get(name, {}).items():
            if owners.get(key) == (member, since):
                continue
            is_released = (
                isinstance(command, ReleasePartitions)
                and command.member_id == member
                and key in command.partitions
                and command.epoch >= since
            )
            is_gone = isinstance(command, LeaveGroup) and member in command.member_ids
            if not (is_released or is_gone):
                text = f"is taken from {member} by {command}"
                raise Broken("G5", f"group {name}: partition {key >> 32}/{key & 0xFFFFFFFF} {text}")
        self._owners[name] = {key: (one[0], one[1]) for key, one in owners.items()}

    def _committed(
        self, name: str, key: int, offset: int, command: Command, result: CommandResult
    ) -> None:
        before = self._offsets.get((name, key), 0)
        self._offsets[name, key] = offset
        if offset == before:
            return
        text = f"group {name}: partition {key >> 32}/{key & 0xFFFFFFFF} goes from {before} to"
        if offset < before:
            raise Broken("G3", f"{text} {offset} by {command}")
        commits = isinstance(command, CommitConsumed | CommitConsumedTransaction)
        if not commits or result.code is not Code.SUCCESS:
            raise Broken("G4", f"{text} {offset} by {command}, which says {result}")
        consumed = command.consumed if isinstance(command, CommitConsumedTransaction) else command
        assert isinstance(consumed, CommitConsumed)
        owner = self._owners.get(name, {}).get(key)
        if owner is None or owner[0] != consumed.member_id or consumed.epoch < owner[1]:
            raise Broken("G4", f"{text} {offset} by {command}; it is {owner}'s")
