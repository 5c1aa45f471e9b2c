"""A leader that its peers cannot reach, and that some clients still can: while it does not know
that it was replaced, it must answer no client as if it led.

Each kind of its downfall gives another reason for two nodes to lead at the same time: its
connections break, so that its peers elect another one at once; its answers stay away, one way or
both; or its process stands still, and finds all questions of the meantime before it looks at the
clock. Each client is alone with it, apart from it, or sees both.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OperationKind
from verification.sim.broker_life import Asker
from verification.sim.cluster import Group, Node, World
from verification.sim.machine import Machine
from verification.sim.network import Path
from verification.sim.scheduler import MS
from verification.sim.settings import addresses_of
from verification.sim.workload import Workload

FAULT: Final = "deposed leader"
DOWNFALLS: Final = (
    "its connections break", "its connections break", "its connections break", "it stands still",
    "it stands still", "it is cut off", "it is not heard", "it hears nobody",
)  # fmt: skip
"""The likelier, the longer two lead after it."""


class Deposed:
    """Brings leaders down."""

    def __init__(self, world: World, group: Group, workload: Workload) -> None:
        self._world = world
        self._group = group
        self._workload = workload
        self._rng = world.rng.fork(FAULT)
        self._falls: list[Fall] = []

    def strike(self) -> str:
        """A witness comes, and soon the leader goes down. Returns the downfall in words, or ""
        where no node could follow as leader."""
        leader = self._group.leader
        if leader is None or leader.loop is None or len(self._group.nodes) < 3:
            return ""
        rng, election_ms = self._rng, self._world.plan.group["election_ms"]
        witness = Witness(self._world, self._workload, self._group, leader, len(self._falls))
        downfall = rng.pick(DOWNFALLS)
        fall = Fall(self._world, self._group, leader, witness, downfall, self._apart(leader))
        self._falls.append(fall)
        begin_ms = rng.spread(100, 1500)
        shortest = 20 if rng.chance(300_000) else election_ms // 2
        back_ms = begin_ms + rng.spread(shortest, 2 * election_ms)
        end_ms = back_ms + rng.spread(shortest, 2 * election_ms)
        for at_ms, turn in ((begin_ms, fall.begin), (back_ms, fall.go_on), (end_ms, fall.end)):
            self._world.scheduler.after(at_ms * MS, turn)
        return f"will bring {leader.name} down in {begin_ms} ms: {downfall}"

    def stop(self) -> None:
        """All are up again."""
        for fall in self._falls:
            fall.end()

    def _apart(self, leader: Node) -> list[Path]:
        """Paths to be cut between nodes and clients, each for itself."""
        paths: list[Path] = []
        peers = [str(node.name) for node in self._group.others(leader)]
        for client in self._workload.clients:
            side = self._rng.below(3)
            for node in ((), peers, [str(leader.name)])[side]:
                paths += [(client.name, node), (node, client.name)]
        return paths


class Fall:
    """One leader's downfall, from its beginning on."""

    def __init__(
        self,
        world: World,
        group: Group,
        leader: Node,
        witness: Witness,
        downfall: str,
        paths: list[Path],
    ) -> None:
        """``paths``: between nodes and clients, to be cut meanwhile."""
        assert leader.loop is not None
        self._network = world.network
        self._leader = leader
        self._loop = leader.loop
        self._witness = witness
        self._downfall = downfall
        self._over = False
        self._paths: list[Path] = []
        self._wanted = list(paths)
        self._peers = peers = [str(node.name) for node in group.others(leader)]
        if downfall not in {"it stands still", "it hears nobody"}:
            self._wanted += [(str(leader.name), peer) for peer in peers]
        if downfall not in {"it stands still", "it is not heard"}:
            self._wanted += [(peer, str(leader.name)) for peer in peers]

    def begin(self) -> None:
        """If it leads still."""
        if self._over or self._loop.dead or not self._leader.is_leader:
            return
        if self._downfall == "it stands still":
            self._loop.pause()
        if self._downfall == "its connections break":
            for stream in self._network.streams_of(self._leader.name):
                if stream.other in self._peers:
                    self._network.reset(stream)
        self._paths = self._wanted
        self._network.cut_all(self._paths)

    def go_on(self) -> None:
        """A process that stands still does so no more."""
        if self._loop.paused:
            self._loop.resume()

    def end(self) -> None:
        """All nodes and clients reach each other again."""
        if self._over:
            return
        self._over = True
        self.go_on()
        self._witness.end()
        self._network.heal_all(self._paths)


class Witness:
    """A client that asks how far the logs reach, again and again, without waiting for the answers.
    It is now alone with the leader that goes down, now apart from it."""

    def __init__(
        self, world: World, workload: Workload, group: Group, node: Node, number: int
    ) -> None:
        self._world = world
        self._workload = workload
        self._group = group
        self._node = node
        self._name = f"w{number}"
        others = [str(other.name) for other in group.others(node)]
        self._sides = (others, [str(node.name)])
        self._cut_off: list[Path] = []
        loop = self._loop = world.new_loop(self._name)
        rng = self._rng = world.rng.fork(f"witness {number}")
        self._client = AsyncClient(
            addresses_of([node.name, *others]),
            environment=Machine(loop, rng.fork("dice")),
            retry_max_ms=100,
            connect_timeout_ms=100,
            request_timeout_ms=rng.pick((200, 600, 2000)),
        )
        self._asker: Asker | None = None
        if world.queued is not None:
            self._asker = Asker(world, self._client, rng.fork("asker"), workload.topics, self._name)
        self._asking: dict[asyncio.Task[None], None] = {}
        self._change_sides()
        loop.call_soon(lambda: loop.create_task(self._work()))

    def _change_sides(self) -> None:
        if self._loop.dead:
            return
        before, now = self._sides
        self._sides = now, before
        self._world.network.heal_all(self._cut_off)
        self._cut_off = [
            path for node in before for path in ((self._name, node), (node, self._name))
        ]
        self._world.network.cut_all(self._cut_off)
        self._world.scheduler.after(self._rng.spread(50, 2000) * MS, self._change_sides)

    async def _work(self) -> None:
        while True:
            # it leads an old term while another one leads
            if self._node.is_leader and self._group.leader is not self._node:
                self._world.counts.bite(FAULT)
            task = self._loop.create_task(self._ask())
            self._asking[task] = None
            task.add_done_callback(self._asking.pop)
            await asyncio.sleep(self._rng.spread(10, 100) / 1000)

    async def _ask(self) -> None:
        if self._asker is not None:
            await self._asker.some()
            return
        topic, stale = self._rng.pick(self._workload.topics), self._rng.chance(300_000)
        recorder = self._workload.recorder
        partitions = range(topic.partitions)
        calls = [
            recorder.begin(OperationKind.END, self._name, topic.name, at, stale=stale)
            for at in partitions
        ]
        try:
            answer = await self._client.end_offsets(topic.name, stale=stale)
        except DLedgerError:
            for call in calls:
                call.failed()
        else:
            for at, call in enumerate(calls):
                call.ok(start=answer[at])

    def end(self) -> None:
        """It is killed."""
        self._loop.kill()
        self._world.network.died(self._name, self._loop, power=False)
        self._world.network.heal_all(self._cut_off)
