"""A `World` whose group changes its members: machines join, and lists are proposed.

Checked after every step, besides what `World` checks:
- a node counts the voters of the newest list in its log, as its disk has it, or of a later one that
  it was told to be committed;
- a leader counts those voters and nobody else;
- any two majorities of lists that can still decide meet;
- at most one change is uncommitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dledger.config import GroupConfig
from dledger.errors import NotLeader
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.membership import (
    Change,
    Member,
    MemberRole,
    Membership,
    pack_list,
    unpack_list,
)
from dledger.raft import RaftNode
from dledger.raft.roles.member_change import MembersRefused, Refusal
from dledger.raft.state.saved_state import RaftOptions
from dledger.types import NO_INDEX, Index, NodeId, Role
from tests.raft.raft_harness import Member as Machine
from tests.raft.raft_harness import SimDisk, World
from tests.raft.raft_harness import change_of as admission_of

MEMBERS = b"members "
VOTER, LEARNER, OBSERVER = MemberRole
List = tuple[Member, ...]


def body_of(after: Index, members: List) -> bytes:
    return MEMBERS + json.dumps([after, pack_list(members)]).encode()


def change_of(entry: Entry) -> Change | None:
    if bytes(entry.body[: len(MEMBERS)]) != MEMBERS:
        return admission_of(entry)
    after, members = json.loads(bytes(entry.body[len(MEMBERS) :]))
    return Change(entry.position, Index(after), NodeId(""), 0, unpack_list(members))


def member(node: NodeId, role: MemberRole, incarnation: int = 0) -> Member:
    return Member(node, f"{node}.example", 20911, role, incarnation)


def with_role(members: Iterable[Member], node: NodeId, role: MemberRole, **more: Any) -> List:
    return tuple(replace(one, role=role, **more) if one.id == node else one for one in members)


def without(members: Iterable[Member], node: NodeId) -> List:
    return tuple(one for one in members if one.id != node)


def majorities_meet(one: set[NodeId], other: set[NodeId]) -> bool:
    return len(one) // 2 + 1 + len(other) // 2 + 1 > len(one | other)


class ChangingWorld(World):
    """See the head of this file."""

    def __init__(self, count: int = 3, *arguments: Any, **settings: Any) -> None:
        self.joined: set[NodeId] = set()
        self._seen: dict[tuple[int, int, int], list[Change]] = {}
        """The changes in a log, by its disk, length and last checksum."""
        disks = [SimDisk(membership=Membership(100 + number)) for number in range(count)]
        super().__init__(count, *arguments, disks=disks, **settings)

    def told(self, member: NodeId) -> tuple[GroupConfig, RaftOptions]:
        config, joins = self.config, member in self.joined
        if joins and member not in config.members:
            config = replace(config, members=(*config.members, member))
        return config, RaftOptions(
            self.cache_bytes, change_of, change_prefix=b"", body_of=body_of, joins=joins
        )

    def quorum_of(self, member: NodeId) -> int:
        return len(self.node(member).voters) // 2 + 1

    # ---- what an operator does

    def boot(self, node: NodeId, incarnation: int) -> None:
        """A machine with an empty disk starts, to join the group under that name."""
        self.joined.add(node)
        disk = SimDisk(membership=Membership(incarnation))
        self._disks.append((node, disk))
        if node in self.members:
            self._disks.append((node, self.members[node].disk))
            self.put(node, disk)
        else:
            self.members[node] = Machine(disk)
            self.start(node)

    def list_at(self, leader: NodeId) -> List:
        """The list that the leader has, to be changed."""
        node = self.node(leader)
        bound = dict(node.membership.bound)
        return node.members or tuple(member(one, VOTER, bound[one]) for one in self.config.members)

    def change(self, leader: NodeId, members: List) -> Refusal | None:
        """Propose the list; why it is not."""
        refusal: Refusal | None = None

        def propose(node: RaftNode) -> Any:
            return node.propose_members(members, self.now_ms)

        try:
            self.call(leader, propose)
        except MembersRefused as error:
            refusal = error.reason
        except NotLeader:
            refusal = Refusal.HANDING_OVER
        return refusal

    def changed(self, members: List) -> None:
        """Have the group change to this list, and wait until that is committed and known."""
        leader = self.elect()
        self.run_until(lambda: self.change(leader, members) is None)
        index = self.node(leader).end_index
        self.run_until(lambda: len(self.committed) > index)
        self.run_until(lambda: self.knows_all(index))

    def knows_all(self, index: int) -> bool:
        """Whether every living member knows the list of that entry."""
        leader = self.leader
        if leader is None or not self.is_open(leader):
            return False
        there = [one.id for one in self.node(leader).members if (leader, one.id) not in self.cuts]
        nodes = [self.members[one].node for one in there]
        return all(node is None or node.membership.index >= index for node in nodes)

    def add(self, node: NodeId, incarnation: int, role: MemberRole = LEARNER) -> None:
        """A new machine is added, and has everything."""
        leader = self.elect()
        self.boot(node, incarnation)
        self.changed((*self.list_at(leader), member(node, role)))
        self.run_until(lambda: self.has_caught_up(node))

    def has_caught_up(self, node: NodeId) -> bool:
        leader, joined = self.leader, self.members[node].node
        return leader is not None and joined is not None and joined.end == self.node(leader).end

    def promote(self, node: NodeId) -> None:
        leader = self.elect()
        heard = self.node(leader).heard[node]
        self.changed(with_role(self.list_at(leader), node, VOTER, incarnation=heard))

    def remove(self, node: NodeId) -> None:
        self.changed(without(self.list_at(self.elect()), node))

    # ---- checks

    def check(self, member: NodeId) -> None:
        super().check(member)
        node = self.members[member].node
        if node is None or not node.membership.founded:
            return
        expected = self._voters_by_log(member, node)
        assert set(node.voters) == expected, f"{member} counts {node.voters}, not {expected}"
        if node.role is Role.LEADER:
            assert node.leader is not None
            assert set(node.leader.acks.watermarks) == expected, f"{member} counts others"
        self._check_majorities()

    def _changes(self, disk: SimDisk) -> list[Change]:
        seen = (id(disk), len(disk.entries), disk.entries[-1].chain_crc if disk.entries else 0)
        if seen in self._seen:
            return self._seen[seen]
        found = [change_of(entry) for entry in disk.entries if entry.body[:1] == b"m"]
        changes = [change for change in found if change is not None and change.members]
        self._seen[seen] = changes
        return changes

    def _voters_by_log(self, name: NodeId, node: RaftNode) -> set[NodeId]:
        changes = self._changes(self.members[name].disk)
        index, listed = node.membership.index, node.membership.listed
        if changes and changes[-1].index > index:
            listed = changes[-1].members
        if not listed:
            return set(self.config.members)
        return {one.id for one in listed if one.role is VOTER}

    def _check_majorities(self) -> None:
        """Lists from before the last one that is committed decide nothing any more."""
        committed, lists = len(self.committed), [set(self.config.members)]
        newest = NO_INDEX
        flying: set[tuple[int, int]] = set()
        for state in self.members.values():
            if state.node is None:
                continue
            changes = self._changes(state.disk)
            later = [change for change in changes if change.index >= committed]
            assert len(later) <= 1, f"{later} are under way at once"
            for change in changes:
                voters = {one.id for one in change.members if one.role is VOTER}
                entry = state.disk.entries[change.index]
                is_committed = change.index < committed and self.committed[change.index] == (
                    entry.term,
                    entry.chain_crc,
                )
                if is_committed and change.index > newest:
                    newest, lists[0] = change.index, voters
                elif change.index >= committed and ((entry.term, change.index) not in flying):
                    flying.add((entry.term, change.index))
                    lists.append(voters)
        for one in lists[1:]:
            assert majorities_meet(lists[0], one), f"{lists[0]} and {one} may decide at once"
