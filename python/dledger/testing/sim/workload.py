"""The clients: processes that use the product's `AsyncClient`, crash, and write down what they
asked and were told."""

from __future__ import annotations

import asyncio

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.testing.checkers.history import Recorder
from dledger.testing.sim.broker_life import BrokerLife
from dledger.testing.sim.cluster import Node, World
from dledger.testing.sim.life import ClientLife
from dledger.testing.sim.loop import US, Clock, SimLoop
from dledger.testing.sim.machine import Machine
from dledger.testing.sim.rng import Rng
from dledger.testing.sim.settings import PORT


class Topic:
    """A topic that the clients use."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self.ends = [0] * partitions
        """The highest offset that anybody has heard of."""


class Workload:
    """All clients of a run, and the history."""

    def __init__(self, world: World) -> None:
        self.world = world
        rng = world.rng.fork("workload")
        self.topics = [
            Topic(f"t{number}", rng.between(1, 3)) for number in range(world.plan.topics)
        ]
        self.recorder = Recorder(lambda: world.scheduler.now_ns)
        self.clients = [Client(self, number) for number in range(world.plan.clients)]
        self.acknowledged = 0
        self.records = 0
        self.working = True
        self.known: dict[bytes, int] = {}
        """The bytes of every value that was to be written, and its number."""
        self._writers = 0

    def boot(self) -> None:
        for client in self.clients:
            client.boot()

    def new_writer(self) -> int:
        """A number that no other producer of values has."""
        self._writers += 1
        return self._writers

    def done(self, topic: str, partition: int, start: int, end: int, records: int) -> None:
        """A write was acknowledged: its records lie in [start, end), perhaps with others between
        them."""
        self.acknowledged += 1
        self.records += records
        watch = self.world.watch
        if watch is not None:
            watch.acknowledged(topic, partition, start, end)


class Client:
    """One client process."""

    def __init__(self, workload: Workload, number: int) -> None:
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
        loop = self.loop = world.new_loop(self.name, Clock(world.scheduler))
        rng = world.rng.fork(f"client {self.name} {self.lives}")
        loop.latency_ns = lambda: 50 * US
        life = new_life(self, loop, rng, f"{self.name}.{self.lives}")
        loop.create_task(life.main())

    def crash(self) -> None:
        """SIGKILL; it comes again as another one."""
        loop, world = self.loop, self.workload.world
        if loop is not None:
            world.story.tell(self.name, "is killed")
            self.loop = None
            loop.kill()
            world.network.died(self.name, loop, power=False)


def new_life(client: Client, loop: SimLoop, rng: Rng, session: str) -> ClientLife:
    """What a process does depends on what the group keeps."""
    kind = BrokerLife if client.workload.world.plan.is_rocketmq else ClientLife
    return kind(client, loop, rng, session)


class Operator:
    """Admits nodes that have another disk, as somebody would with ``dledger admit``."""

    def __init__(self, world: World, nodes: list[Node]) -> None:
        """``nodes``: those that have to be admitted; one that is, is taken out."""
        self._nodes = nodes
        self._story = world.story
        self._loop = world.new_loop("op", Clock(world.scheduler))
        machine = Machine(self._loop, world.rng.fork("operator"), 0, lambda: None)
        addresses = ",".join(f"{name}:{PORT}" for name in world.plan.names)
        self._client = AsyncClient(addresses, environment=machine, request_timeout_ms=5000)
        self._loop.call_soon(lambda: self._loop.create_task(self._work()))

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
    loop = client.loop = world.new_loop(client.name, Clock(world.scheduler))
    return new_life(client, loop, world.rng.fork("last client"), "last"), loop


__all__ = ["Client", "Operator", "Topic", "Workload", "final_reader"]
