"""The group's list of members changes: its nodes are demoted, removed, added again and promoted,
among all other faults.

A node that is removed keeps its disk, and comes back with it. Where a seed takes disks, only the
nodes whose disks may be lost leave the list: so those that stay are enough to have everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dledger.errors import NotLeader
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.raft.raft_node import RaftNode
from dledger.raft.roles.member_change import MembersRefused
from dledger.types import NodeId, Role
from verification.sim.cluster import Group, Node, World
from verification.sim.scheduler import MS
from verification.sim.settings import CHANGES, PORT

Members = tuple[Member, ...]
AGAIN_MS: Final = 200
"""Between two steps by which all nodes become voters again."""


class Changing:
    """Proposes changes to whoever leads, sensible or not."""

    def __init__(self, world: World, group: Group, leaving: list[Node]) -> None:
        """``leaving``: the nodes that may leave the list."""
        self._world = world
        self._group = group
        self._leaving = [node.name for node in leaving]
        self._rng = world.rng.fork(CHANGES)
        self._active = bool(leaving)

    def start(self) -> None:
        if self._active:
            self._world.counts.inject(CHANGES)
            self._later(self._rng.spread(50, 2 * self._world.plan.fault_every_ms))

    def stop(self) -> None:
        """From now on all nodes become voters again, one step after the other."""
        if self._active:
            self._active = False
            self._later(AGAIN_MS)

    def _later(self, wait_ms: int) -> None:
        self._world.scheduler.after(wait_ms * MS, self._strike)

    def _strike(self) -> None:
        raft = self._raft()
        if self._active:
            if raft is not None:
                self._change(raft, self._drawn(raft))
            self._later(self._rng.spread(50, 2 * self._world.plan.fault_every_ms))
        else:
            if raft is not None and raft.members:
                self._change(raft, self._step_back(raft))
            self._later(AGAIN_MS)

    def _raft(self) -> RaftNode | None:
        leader = self._group.leader
        if leader is None or leader.server is None or leader.loop is None or leader.loop.paused:
            return None
        return None if leader.stopping else leader.server.raft

    def _list(self, raft: RaftNode) -> Members:
        return raft.members or tuple(
            self._member(raft, name, MemberRole.VOTER) for name in self._world.plan.names
        )

    def _member(self, raft: RaftNode, name: NodeId, role: MemberRole) -> Member:
        return Member(name, str(name), PORT, role, raft.membership.of(name) or 0)

    def _drawn(self, raft: RaftNode) -> Members:
        members, rng = self._list(raft), self._rng
        name = rng.pick(self._leaving)
        roles = {one.id: one.role for one in members}
        if name not in roles:
            role = rng.pick((MemberRole.LEARNER, MemberRole.LEARNER, MemberRole.OBSERVER))
            return (*members, self._member(raft, name, role))
        if rng.chance(400_000):
            return tuple(one for one in members if one.id != name)
        if roles[name] is MemberRole.VOTER:
            return self._with(members, name, rng.pick((MemberRole.LEARNER, MemberRole.OBSERVER)))
        return self._promoted(raft, members, name)

    def _step_back(self, raft: RaftNode) -> Members:
        members = self._list(raft)
        roles = {one.id: one.role for one in members}
        for name in self._world.plan.names:
            if name not in roles:
                return (*members, self._member(raft, name, MemberRole.LEARNER))
            if roles[name] is not MemberRole.VOTER:
                return self._promoted(raft, members, name)
        return members

    def _promoted(self, raft: RaftNode, members: Members, name: NodeId) -> Members:
        role = next(one.role for one in members if one.id == name)
        if role is MemberRole.OBSERVER:
            return self._with(members, name, MemberRole.LEARNER)
        heard = raft.membership.incarnation if name == raft.node_id else raft.heard.get(name, 0)
        promoted = self._with(members, name, MemberRole.VOTER)
        return tuple(replace(one, incarnation=heard) if one.id == name else one for one in promoted)

    @staticmethod
    def _with(members: Members, name: NodeId, role: MemberRole) -> Members:
        return tuple(replace(one, role=role) if one.id == name else one for one in members)

    def _change(self, raft: RaftNode, members: Members) -> None:
        """Propose it on the loop of the leader, if that still leads and takes it."""
        node = self._group.leader
        if node is None or node.loop is None or node.server is None or raft.members == members:
            return
        loop, ready_loop = node.loop, node.server.parts.ready_loop

        def propose() -> None:
            if ready_loop.failed or raft.role is not Role.LEADER:
                return
            try:
                ready = raft.propose_members(members, ready_loop._now_ms())
            except (MembersRefused, NotLeader) as refused:
                self._world.story.tell("operator", f"is refused a change of members: {refused}")
                return
            shown = ", ".join(f"{one.id} {one.role.name.lower()}" for one in members)
            self._world.story.tell("operator", f"changes the members to {shown}")
            self._world.counts.bite(CHANGES)
            ready_loop.carry_out(ready)

        loop.call_soon(propose)
