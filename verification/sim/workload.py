"""The clients: processes that use the product's `AsyncClient`, crash, and write down what they
asked and were told."""

from __future__ import annotations

import asyncio

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
    """Admits nodes that have another disk, as an operator does with ``dledger admit``."""

    def __init__(self, world: World, nodes: list[Node]) -> None:
        """``nodes``: those that have to be admitted; one that is, is taken out."""
        self._nodes = nodes
        self._story = world.story
        loop = world.new_loop("op")
        machine = Machine(loop, world.rng.fork("operator"))
        addresses = addresses_of(world.plan.names)
        self._client = AsyncClient(addresses, environment=machine, request_timeout_ms=5000)
        loop.call_soon(lambda: loop.create_task(self._work()))

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(1)
            for node in list(self._nodes):
                life = node.lives
                if not node.is_up:
                    continue
                try:
                    await self._client.admit(node.name)
                except DLedgerError as error:
                    self._story.tell("op", f"admit {node.name}: {error}")
                else:
                    self._story.tell("op", f"{node.name} is admitted")
                    if node.lives == life and node in self._nodes:
                        self._nodes.remove(node)


def final_reader(workload: Workload) -> tuple[ClientLife, SimLoop]:
    """A client of the liveness phase, whose calls the caller schedules."""
    client = Client(workload, 1_000)
    world = workload.world
    loop = client.loop = world.new_loop(client.name)
    return new_life(client, loop, world.rng.fork("last client"), "last"), loop
