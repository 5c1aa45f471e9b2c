"""Lists of members that no command asks for, proposed at a leader's core, often just when it begins
to lead: most of them it has to refuse, and what it takes must be safe all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dledger.errors import NotLeader
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.raft.raft_node import RaftNode
from dledger.raft.roles.member_change import MembersRefused
from dledger.types import NodeId, Role
from verification.sim.cluster import Group, Node, World
from verification.sim.rng import Rng
from verification.sim.scheduler import MS

Members = tuple[Member, ...]
FAULT: Final = "list of members by force"
LATE_NS: Final = 50 * MS
"""A leader that gets to it later than this, since it was paused, is not asked any more."""


class Reckless:
    """Proposes lists to leaders."""

    def __init__(self, world: World, group: Group, leaving: Sequence[NodeId]) -> None:
        """``leaving``: the nodes whose part in the group may change. None is added: that is the
        operator's to do, who empties directories of nodes that are out."""
        self._world = world
        self._group = group
        self._leaving = leaving
        self._rng = world.rng.fork(FAULT)
        self.active = True

    def leads(self, node: Node) -> None:
        """A node begins to lead."""
        if self.active and self._rng.chance(300_000):
            self._propose(node, self._rng.between(1, 2))

    def strike(self) -> None:
        """Whoever leads is asked, once or twice at the same moment."""
        leader = self._group.leader
        if leader is not None:
            self._propose(leader, self._rng.between(1, 2))

    def _propose(self, node: Node, times: int) -> None:
        loop, server, now_ns = node.loop, node.server, self._world.scheduler.now_ns
        if loop is None or server is None or node.stopping:
            return
        raft, ready_loop = server.raft, server.parts.ready_loop

        def propose() -> None:
            is_late = self._world.scheduler.now_ns - now_ns > LATE_NS
            if ready_loop.failed or is_late or raft.role is not Role.LEADER or not raft.members:
                return
            wanted = drawn(self._rng, raft, self._leaving)
            if wanted == raft.members:
                return
            try:
                ready = raft.propose_members(wanted, ready_loop._now_ms())
            except (MembersRefused, NotLeader) as refused:
                self._world.story.tell(node.name, f"refuses a list of members: {refused}")
                return
            shown = ", ".join(f"{one.id} {one.role.name.lower()}" for one in wanted)
            self._world.story.tell(node.name, f"takes the members {shown}")
            self._world.counts.bite(FAULT)
            ready_loop.carry_out(ready)

        for _ in range(times):
            loop.call_soon(propose)


def drawn(rng: Rng, raft: RaftNode, leaving: Sequence[NodeId]) -> Members:
    """A list that differs from the present one in one or two members, or in an incarnation."""
    members = raft.members
    for _ in range(rng.pick((1, 1, 2))):
        name = rng.pick(leaving)
        known = next((one for one in members if one.id == name), None)
        if known is None:
            continue
        if rng.chance(300_000):
            members = tuple(one for one in members if one.id != name)
            continue
        if known.role is MemberRole.VOTER and rng.chance(300_000):
            other = replace(known, incarnation=known.incarnation + 1)
        else:
            role = rng.pick([one for one in MemberRole if one is not known.role])
            heard = raft.heard.get(name, known.incarnation)
            other = replace(known, role=role, incarnation=heard)
        members = tuple(other if one.id == name else one for one in members)
    return members
