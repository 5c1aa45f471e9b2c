"""The group's members change, among all other faults: an operator demotes, removes, adds and
promotes nodes by requests, one after the other, or replaces one by another.

A node that was removed comes back with its disk, or without it, as a new machine that joins. Where
a seed takes disks, only the nodes whose disks may be lost leave the list: so those that stay are
enough to have everything. A seed may have machines that are no founding members: the group grows by
them, shrinks again, or moves to them. At the end all founding members are voters, by what an
operator does, and some of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.net.address import join_address
from dledger.protocol.messages.membership import MemberRole
from dledger.raft.raft_node import RaftNode
from dledger.types import NodeId
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.late_version import LateVersion
from verification.sim.machine import Machine
from verification.sim.reckless import Reckless
from verification.sim.renewed import Renewed
from verification.sim.replacing import Replacing
from verification.sim.scheduler import MS
from verification.sim.settings import CHANGES, addresses_of

Step = Callable[[RaftNode], Awaitable[None]]
AGAIN_S: Final = 0.2
"""Between two steps at the end."""
SOON_MS: Final = 500
"""Between two steps of a replacement."""
PATIENCE_MS: Final = 3000
"""For one request of the operator."""
WITHOUT_DISK: Final = "member back without its disk"
WITH_DISK: Final = "member back with its disk"


class Changing:
    """The operator of one group."""

    def __init__(self, world: World, group: Group, damage: Damage) -> None:
        self._world = world
        self._group = group
        self._damage = damage
        self._leaving = damage.may_leave()
        self._rng = world.rng.fork(CHANGES)
        self._active = bool(self._leaving)
        self.is_over = not self._active
        """All nodes that are wanted are voters, and nobody else is a member."""
        spares = [node for node in self._leaving if node not in group.founders]
        self.wanted = [*group.founders, *(node for node in spares if self._rng.chance(300_000))]
        """The voters of the end: the founding members, and some of the others."""
        self._reckless = Reckless(world, group, [node.name for node in self._leaving])
        self._replacing = Replacing(world, group, self._rng.fork("replacing"), self._empty)
        self._renewed = Renewed(world, damage)
        self._version = LateVersion(world.plan)
        self._client: AsyncClient

    def start(self) -> None:
        if self._active:
            self._world.counts.inject(CHANGES)
            self._world.scheduler.after(self._pause_ms() * MS, self._begin)
            for node in self._group.nodes:
                node.on_lead = self._reckless.leads

    def stop(self) -> None:
        """From now on all nodes that are wanted become voters, one step after the other."""
        self._active = self._reckless.active = self._renewed.active = False
        self._replacing.end()

    def _pause_ms(self) -> int:
        return self._rng.spread(50, 2 * self._world.plan.fault_every_ms)

    def _begin(self) -> None:
        world = self._world
        loop = world.new_loop("members")
        machine = Machine(loop, self._rng.fork("dice"))
        self._client = AsyncClient(
            addresses_of(world.plan.names), environment=machine, request_timeout_ms=PATIENCE_MS
        )
        loop.call_soon(lambda: loop.create_task(self._work()))

    async def _work(self) -> None:
        while self._active:
            await self._tried(self._change)
            most_ms = SOON_MS if self._replacing.is_under_way else 1 << 30
            await asyncio.sleep(min(self._pause_ms(), most_ms) / 1000)
        while not self.is_over:
            await asyncio.sleep(AGAIN_S)
            await self._tried(self._step_back)

    async def _tried(self, step: Step) -> None:
        """A step, if somebody leads. What is refused or comes to nothing is tried again, or not."""
        if (raft := self._leading()) is None:
            return
        try:
            await self._version.upgrade(self._client)
            await step(raft)
        except DLedgerError as error:
            self._version.refused(error)
            self._tell(f"{type(error).__name__}: {error}")

    def _leading(self) -> RaftNode | None:
        leader = self._group.leader
        return None if leader is None or leader.server is None else leader.server.raft

    def _roles(self, raft: RaftNode) -> dict[NodeId, MemberRole]:
        listed = {one.id: one.role for one in raft.members}
        return listed or dict.fromkeys(self._world.plan.names, MemberRole.VOTER)

    # --- any change -------------------------------------------------------------------------------

    async def _change(self, raft: RaftNode) -> None:
        """One request, sensible or not, or some that no command makes."""
        rng, node = self._rng, self._rng.pick(self._leaving)
        role = self._roles(raft).get(node.name)
        if self._replacing.is_under_way and rng.chance(700_000):
            await self._replacing.go_on(self._client, self._is_another)
        elif rng.chance(200_000):
            self._reckless.strike()
        elif rng.chance(250_000) and self._begins_to_replace(raft):
            return
        elif role is None:
            is_observer = rng.chance(200_000)
            await self._let_in(node, empty=rng.chance(500_000), observer=is_observer)
        elif role is MemberRole.LEARNER and rng.chance(700_000):
            await self._promote(node)
        elif role is MemberRole.VOTER and rng.chance(400_000):
            await self._client.demote_member(node.name)
            self._done(f"{node.name} is demoted")
        else:
            await self._remove(node)

    def _begins_to_replace(self, raft: RaftNode) -> bool:
        roles = self._roles(raft)
        free = [node for node in self._leaving if not self._is_another(node)]
        return not self._replacing.is_under_way and self._replacing.begin(free, roles)

    async def _promote(self, node: Node) -> None:
        await self._client.promote_member(node.name)
        self._done(f"{node.name} is promoted")

    async def _remove(self, node: Node) -> None:
        await self._client.remove_member(node.name)
        self._done(f"{node.name} is removed")
        self._renewed.removed(node)

    async def _let_in(self, node: Node, *, empty: bool, observer: bool = False) -> None:
        """A node that is in no list becomes a member. ``empty``: with an empty directory, which it
        has to have where it does not start since it was removed."""
        empty = empty or node.disk.is_out
        if empty:
            await self._remove(node)  # what the leader of before said may be another list by now
        if self._is_another(node):
            return
        is_first = self._rng.chance(500_000)
        if empty and is_first:
            self._empty(node)
        place = join_address(*self._world.places[node.name])
        await self._client.add_member(node.name, place, observer=observer)
        self._done(f"{node.name} is added {'without' if empty else 'with'} its disk")
        self._world.counts.bite(WITHOUT_DISK if empty else WITH_DISK)
        if empty and not is_first and not self._is_another(node):
            self._empty(node)
        self._renewed.added(node)

    def _is_another(self, node: Node) -> bool:
        """Another machine answers in its place."""
        return node in self._damage.in_turns

    def _empty(self, node: Node) -> None:
        """The directory is emptied, and the node started with ``--join`` and the members of
        today."""
        self._tell(f"empties {node.name}, and starts it with --join")
        node.kill(power=False)
        node.disk.put_back({})
        node.joins = True
        raft = self._leading()
        known = self._world.plan.names if raft is None else self._roles(raft)
        node.peers = tuple(sorted({*known, node.name}))
        if self._world.watch is not None:
            self._world.watch.lost_disk(node.name)
        self._damage.is_new(node)
        self._group.restart_soon(node)

    # --- the end ----------------------------------------------------------------------------------

    async def _step_back(self, raft: RaftNode) -> None:
        """One step on the way to the list that is wanted."""
        roles = self._roles(raft)
        for node in self._group.nodes:
            role = roles.get(node.name)
            if node not in self.wanted and role is None:
                node.disk.is_out = True
                node.kill(power=False)  # by hand: where it was away, nobody has told it
                continue
            if role is None:
                await self._let_in(node, empty=False)
            elif role is MemberRole.OBSERVER or node.disk.is_out or node not in self.wanted:
                await self._remove(node)
            elif role is MemberRole.LEARNER:
                await self._promote(node)
            else:
                continue
            return
        self.is_over = raft.change is None

    def _done(self, what: str) -> None:
        self._world.counts.bite(CHANGES)
        self._tell(what)

    def _tell(self, text: str) -> None:
        self._world.story.tell("members", text)
