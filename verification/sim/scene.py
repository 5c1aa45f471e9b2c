"""A group without chance: for a test that says itself what goes wrong, and when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from dledger.client.aio.client import AsyncClient
from verification.invariants.broken import Broken
from verification.sim.cluster import Group, Node, World
from verification.sim.loop import SimLoop
from verification.sim.machine import Machine
from verification.sim.rng import Rng
from verification.sim.scheduler import MS
from verification.sim.settings import SeedPlan, addresses_of

T = TypeVar("T")
KIB = 1 << 10
LIMITS = {"segment_bytes": 64 * KIB, "index_file_bytes": 32 * KIB, "max_body_bytes": 16 * KIB}


class Scene:
    """Nodes and clients in virtual time; all faults are the caller's.

    Use it as a context manager. Times are in simulated ms.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        seed: int = 1,
        group: dict[str, Any] | None = None,
        node: dict[str, Any] | None = None,
    ) -> None:
        plan = SeedPlan(
            nodes=nodes,
            clients=0,
            topics=0,
            faults=(),
            safety_ms=0,
            group={**LIMITS, **(group or {})},
            node={"disk_reserve_bytes": 256 * KIB, **(node or {})},
        )
        self.world = World(seed, plan, 200)
        self.group = Group(self.world)
        self.network = self.world.network
        self.group.boot()

    @property
    def now_ms(self) -> int:
        return self.world.scheduler.now_ns // MS

    def node(self, name: str) -> Node:
        return next(node for node in self.group.nodes if node.name == name)

    def leader(self, within_ms: int = 20_000) -> Node:
        """The leader, once there is one that has committed an entry of its own term.

        Raises:
            Broken: there is none in time.
        """
        self.until(lambda: self._ready_leader() is not None, within_ms, "a leader")
        found = self._ready_leader()
        assert found is not None
        return found

    def _ready_leader(self) -> Node | None:
        leader = self.group.leader
        if leader is None or leader.server is None:
            return None
        raft = leader.server.raft
        return leader if raft.committed_index >= raft.noop_index >= 0 else None

    def client(self, name: str = "c0", **settings: Any) -> tuple[AsyncClient, SimLoop]:
        """A client in a process of its own."""
        loop = self.world.new_loop(name)
        machine = Machine(loop, Rng(7).fork(name))
        addresses = addresses_of(self.world.plan.names)
        return AsyncClient(addresses, environment=machine, **settings), loop

    def run(
        self, loop: SimLoop, call: Callable[[], Coroutine[Any, Any, T]], within_ms: int = 60_000
    ) -> T:
        """The result of the call in that process, or its error.

        Raises:
            Broken: it does not come back in time.
        """
        tasks: list[Any] = []
        loop.call_soon(lambda: tasks.append(loop.create_task(call())))
        self.until(lambda: bool(tasks) and tasks[0].done(), within_ms, "the call")
        result: T = tasks[0].result()
        return result

    def until(self, condition: Callable[[], bool], within_ms: int, what: str = "it") -> None:
        """Let time pass until then.

        Raises:
            Broken: that is not in time.
        """
        scheduler = self.world.scheduler
        end = scheduler.now_ns + within_ms * MS
        while not condition():
            if scheduler.now_ns >= end:
                raise Broken(
                    "liveness",
                    f"{what} does not come within {within_ms} ms\n{self.world.story.text()}",
                )
            scheduler.run(min(end, scheduler.now_ns + MS))
            if self.world.broken is not None:
                raise self.world.broken

    def wait(self, ms: int) -> None:
        """Let so much time pass."""
        end = self.world.scheduler.now_ns + ms * MS
        self.until(lambda: self.world.scheduler.now_ns >= end, ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.dispose()
