"""The history that all clients of a run share, with their topics and the values they wrote."""

from __future__ import annotations

from dledger.testing.checkers.history import Recorder
from verification.sim.cluster import World


class Topic:
    """A topic that the clients use."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self.ends = [0] * partitions
        """The highest end offset that a client was told."""


class SharedHistory:
    """Topics, calls and values of all clients of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        rng = world.rng.fork("workload")
        self.topics = [
            Topic(f"t{number}", rng.between(1, 3)) for number in range(world.plan.topics)
        ]
        self.recorder = Recorder(lambda: world.scheduler.now_ns)
        self.acknowledged = 0
        self.records = 0
        self.working = True
        self.known: dict[bytes, int] = {}
        """The bytes of every value that was to be written, and its number."""
        self._writers = 0

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
            watch.check(watch.applied_log.acknowledged, topic, partition, start, end)
