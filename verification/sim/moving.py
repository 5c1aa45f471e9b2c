"""Members move to other addresses, one after the other, among all other faults: a node is stopped,
starts with its disk at another port, and an operator says so (``members readdress``).

A member may come to an address that another one had before: who asks there for the former meets
another node. Nodes and clients are told the addresses of the founding for as long as there are
faults, so that they have to learn the others from the log; one founding member never moves, and by
that one a client finds all others. When the faults end while a member has moved that the log does
not know of, all nodes start anew and are told where it is, as docs/operations.md has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.net.address import join_address
from dledger.node.node import NodeServer
from dledger.protocol.messages.membership import ids_of
from dledger.raft.raft_node import RaftNode
from dledger.types import NodeId
from verification.invariants.broken import Broken
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.late_version import LateVersion
from verification.sim.machine import Machine
from verification.sim.scheduler import MS
from verification.sim.settings import MOVES, PORT, addresses_of

AGAIN_S: Final = 0.3
"""Between two requests of the operator at the end."""
PATIENCE_MS: Final = 3000
"""For one request of the operator."""
ELSEWHERE: Final = "member at another one's former address"


class Moving:
    """The operator of one group."""

    def __init__(self, world: World, group: Group, damage: Damage) -> None:
        self._world = world
        self._group = group
        self._damage = damage
        self._rng = world.rng.fork(MOVES)
        self._nodes = [node for node in group.nodes if node is not damage.anchor]
        self._active = world.plan.has(MOVES) and bool(self._nodes)
        self.is_over = not self._active
        """The log has every member's address."""
        self._untold: Node | None = None
        """A member that has moved; no answer has said yet that the group knows."""
        self._ports = PORT
        self._version = LateVersion(world.plan)
        self._client: AsyncClient
        self._machine: Machine

    def start(self) -> None:
        if self._active:
            self._world.counts.inject(MOVES)
            self._world.scheduler.after(self._pause_ms() * MS, self._begin)

    def stop(self) -> None:
        """No member moves any more."""
        if self._active and (self._untold is not None or self._group.leader is None):
            world = self._world
            world.told_places.update(world.places)
            world.story.tell("moves", "all nodes start anew, and are told where the members are")
            for node in self._group.nodes:
                # committed: one that is cut again is no list that the group has had
                listed = () if node.server is None else node.server.raft.membership.listed
                node.peers = told(node, ids_of(listed))
                node.kill(power=False)
        self._active = False

    def _pause_ms(self) -> int:
        return self._rng.spread(50, 3 * self._world.plan.fault_every_ms)

    def _begin(self) -> None:
        world = self._world
        loop = world.new_loop("moves")
        self._machine = Machine(loop, self._rng.fork("dice"))
        self._client = self._new_client(addresses_of(world.plan.names))
        loop.call_soon(lambda: loop.create_task(self._work()))

    def _new_client(self, addresses: str) -> AsyncClient:
        return AsyncClient(addresses, environment=self._machine, request_timeout_ms=PATIENCE_MS)

    async def _work(self) -> None:
        while self._active:
            if self._untold is not None:
                await self._tell(self._untold)
            elif (raft := self._leading()) is not None and self._unknown(raft) is None:
                self._move(raft)
            await asyncio.sleep(self._pause_ms() / 1000)
        world = self._world
        # where the moved member leads, nobody can say where it is but who has moved it
        plan, places = world.plan, world.places
        moved = [name for name in plan.all_names[plan.nodes :] if places[name] != (name, PORT)]
        self._client = self._new_client(addresses_of([*plan.names, *moved], places))
        while not self.is_over:
            await asyncio.sleep(AGAIN_S)
            if (raft := self._leading()) is None:
                continue
            if (node := self._untold or self._unknown(raft)) is not None:
                await self._tell(node)
            else:
                self.is_over = raft.change is None

    def _leading(self) -> RaftNode | None:
        leader = self._group.leader
        return None if leader is None or leader.server is None else leader.server.raft

    def _listed(self, raft: RaftNode) -> dict[NodeId, tuple[str, int]]:
        """Where the leader's list has each member."""
        listed = {one.id: (one.host, one.port) for one in raft.members}
        return listed or {name: (str(name), PORT) for name in self._world.plan.names}

    def _unknown(self, raft: RaftNode) -> Node | None:
        """A member that is elsewhere than the leader's list says."""
        listed, places = self._listed(raft), self._world.places
        away = (n for n in self._nodes if listed.get(n.name, places[n.name]) != places[n.name])
        return next(away, None)

    def _move(self, raft: RaftNode) -> None:
        listed = self._listed(raft)
        may_move = [
            node
            for node in self._nodes
            if node.name in listed
            and node.server is not None
            and node.server.store.membership.group_id
            and node not in self._damage.in_turns
        ]
        if not may_move:
            return
        world, node = self._world, self._rng.pick(may_move)
        taken = set(world.places.values())
        former = [place for place in map(_founding, self._group.nodes) if place not in taken]
        if former and self._rng.chance(500_000):
            place = self._rng.pick(former)
            world.counts.bite(ELSEWHERE)
        else:
            self._ports += 1
            place = (str(node.name), self._ports)
        world.places[node.name] = place
        self._untold = node
        world.story.tell("moves", f"{node.name} moves to {join_address(*place)}")
        node.kill(power=False)
        self._group.restart_soon(node)

    async def _tell(self, node: Node) -> None:
        """The group is told where that member is, by a request."""
        place = join_address(*self._world.places[node.name])
        try:
            await self._version.upgrade(self._client)
            await self._client.readdress_member(node.name, place)
        except DLedgerError as error:
            self._world.story.tell("moves", f"{node.name} at {place}: {error}")
            self._version.refused(error)
            raft = self._leading()
            if raft is not None and node.name not in self._listed(raft):
                self._untold = None  # it was removed; when it is added, it is there
            return
        self._untold = None
        self._world.counts.bite(MOVES)
        self._world.story.tell("moves", f"{node.name} is known to be at {place}")


def told(node: Node, listed: Collection[NodeId]) -> tuple[NodeId, ...]:
    """The members that this node is told when it starts anew: those of its list, or it would not
    find those that came later. Without a list, or where that has removed it and it does not know
    for sure (`dledger.raft.roles.removal`), it is told the same ones as before."""
    if node.name in listed or (listed and node.joins):
        # one that joins does not know yet that it is a member
        return tuple(sorted({*listed, node.name}))
    return node.peers


def _founding(node: Node) -> tuple[str, int]:
    return str(node.name), PORT


def check_places(servers: Iterable[NodeServer], places: dict[str, tuple[str, int]]) -> None:
    """I17: every node reaches each member where it is."""
    for server in servers:
        known = server.parts.context.members.addresses()
        wanted = {node: join_address(*places[node]) for node in known}
        if known != wanted:
            raise Broken("I17", f"{server.node.node_id} has members at {known}, not at {wanted}")
