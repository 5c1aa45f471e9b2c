"""The clients: processes that use the product's `AsyncClient`, crash, and write down what they
asked and were told."""

from __future__ import annotations

import asyncio
from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from verification.sim.broker_life import BrokerLife
from verification.sim.cluster import Node, World
from verification.sim.life import ClientLife
from verification.sim.loop import SimLoop
from verification.sim.machine import Machine
from verification.sim.rng import Rng
from verification.sim.settings import addresses_of
from verification.sim.shared_history import SharedHistory

PAUSES_MS: Final = (20, 2000)
"""Of who admits nodes, between two looks at which have to be."""


class Workload(SharedHistory):
    """All clients of a run, and their history."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.clients = [Client(self, number) for number in range(world.plan.clients)]

    def boot(self) -> None:
        for client in self.clients:
            client.boot()


class Client:
    """One client process."""

    def __init__(self, workload: SharedHistory, number: int) -> None:
        self.workload = workload
        self.name = f"c{number}"
        self.lives = 0
        self.loop: SimLoop | None = None
        self.idle = False
        """It has done all it was asked to."""
        self._number = number

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    def boot(self) -> None:
        world = self.workload.world
        self.lives += 1
        self.idle = False
        loop = self.loop = world.new_loop(self.name)
        rng = world.rng.fork(f"client {self.name} {self.lives}")
        life = new_life(self, loop, rng, f"{self.name}.{self.lives}")
        loop.create_task(life.main())

    def ended(self) -> None:
        """It has done all it was asked to."""
        self.idle = True

    def crash(self) -> None:
        """SIGKILL; it comes again as another one."""
        loop, world = self.loop, self.workload.world
        if loop is not None:
            world.story.tell(self.name, "is killed")
            self.loop = None
            loop.kill()
            world.network.died(self.name, loop, power=False)


def new_life(client: Client, loop: SimLoop, rng: Rng, session: str) -> ClientLife:
    """A new life of a client, of the kind that fits the group's commit log."""
    history = client.workload
    kind = BrokerLife if history.world.plan.is_rocketmq else ClientLife
    return kind(history, loop, rng, session, client.ended)


class Operator:
    """Admits nodes that have another disk, as an operator does with ``dledger admit``: also as soon
    as one is there, when the leader may not have heard it yet."""

    def __init__(self, world: World, nodes: list[Node]) -> None:
        """``nodes``: those that have to be admitted; one that is, is taken out."""
        self._nodes = nodes
        self._world = world
        loop = world.new_loop("op")
        self._rng = world.rng.fork("operator's pauses")
        machine = Machine(loop, world.rng.fork("operator"))
        addresses = addresses_of(world.plan.names)
        self._client = AsyncClient(addresses, environment=machine, request_timeout_ms=5000)
        loop.call_soon(lambda: loop.create_task(self._work()))

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._rng.spread(*PAUSES_MS) / 1000)
            for node in list(self._nodes):
                if node.is_up:
                    await self._admit(node)

    async def _admit(self, node: Node) -> None:
        before = node.lives, _incarnation(node)
        try:
            await self._client.admit(node.name)
        except DLedgerError as error:
            self._world.story.tell("op", f"admit {node.name}: {error}")
            return
        self._world.story.tell("op", f"{node.name} is admitted")
        # one that is gone may come back with another disk
        if not node.is_up or before != (node.lives, _incarnation(node)):
            return
        if node in self._nodes:
            self._nodes.remove(node)
        if self._world.watch is not None and before[1] is not None:
            self._world.judged(self._world.watch.members.admitted, node.name, before[1])


def _incarnation(node: Node) -> int | None:
    """The one that this node says; None before it has started."""
    return None if node.server is None else node.server.raft.membership.incarnation


def final_reader(workload: Workload) -> tuple[ClientLife, SimLoop]:
    """A client of the liveness phase, whose calls the caller schedules."""
    client = Client(workload, 1_000)
    world = workload.world
    loop = client.loop = world.new_loop(client.name)
    return new_life(client, loop, world.rng.fork("last client"), "last"), loop
