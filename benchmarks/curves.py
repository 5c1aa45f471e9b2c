"""How restart, look-ups, plans, connections and memory grow with the log: each figure at several
sizes or counts, each point with nodes that were started for it. A `Curve`
says what is drawn."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.appends import MIB, leader_address, memory_mib
from benchmarks.gaps import gaps
from benchmarks.groups import group
from benchmarks.load import append_load
from benchmarks.long_logs import grow
from benchmarks.pairs import processor_s
from benchmarks.planning import alone, feeder
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup

GIB: Final = 1 << 30
SIZE, ENTRIES, PARTITIONS, CONNECTIONS, WRITTEN = (
    "log of 1 MiB records, sparse, 1 replica",
    "log of records of 100 B, one an entry, 1 replica",
    "partitions of one topic, a record in each, 1 replica",
    "connections with one request of 1 KiB in flight each, 3 replicas",
    "1 MiB records written to a node, 1 replica, retention of 1 GiB",
)
RESTART = "from the start of a node that was killed under load to its next acknowledgement"
BY_OFFSET, BY_TIME = "read of one record at an offset", "look-up of an offset by time"
NODE_MIB, ON_DISK = "memory of the node (RSS)", "blocks on the disk"
PLAN, TRANSACTION = "plan of a micro-batch over all", "transaction with a record for each"
RATE, LEADER_US = "requests", "processor time at the leader, a request"
LOOK_UPS: Final = 40
BUSY: Final = (1024, 512)
"""Size and requests in flight of the load under which a node is killed."""


SAVED_S: Final = 60.0


@dataclass(frozen=True)
class Curve:
    """Figures of a section over the same points, by their labels."""

    section: str
    over: str
    points: dict[str, float]
    figures: tuple[str, ...]
    bounds: dict[str, float] = field(default_factory=dict)
    """What figures must not be above, in their units."""
    quick: int = 1
    """How many points are enough for a smoke test."""

    def some(self, quick: bool) -> dict[str, int]:
        """The points that are measured."""
        labels = list(self.points)[: self.quick if quick else None]
        return {label: int(self.points[label]) for label in labels}


def counted(*counts: int) -> dict[str, float]:
    """Points by their numbers."""
    return {f"{count:,}": count for count in counts}


BY_SIZE = Curve(
    SIZE,
    "size of the log, GiB",
    {f"{gib} GiB": gib for gib in (1, 10, 30, 100)},
    (RESTART, BY_OFFSET, BY_TIME, NODE_MIB),
)
BY_ENTRIES = Curve(
    ENTRIES,
    "entries",
    counted(10**5, 10**6, 10**7),
    (RESTART, BY_OFFSET, BY_TIME, NODE_MIB),
    {RESTART: 2},
)
BY_PARTITIONS = Curve(
    PARTITIONS,
    "partitions",
    counted(1, 100, 1_000, 10_000),
    (PLAN, TRANSACTION, RESTART, NODE_MIB),
    {PLAN: 80, TRANSACTION: 400},
    quick=2,
)
BY_CONNECTIONS = Curve(
    CONNECTIONS, "connections", counted(1, 50, 200, 500), (RATE, LEADER_US), quick=2
)
BY_WRITTEN = Curve(
    WRITTEN,
    "GiB written",
    {"0.1 GiB": 0.1, **{f"{gib} GiB": gib for gib in (1, 2, 5, 10, 20)}},
    (NODE_MIB,),
    {NODE_MIB: 150},
)


def curves(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All of them, and the longest gaps."""
    for part in PARTS.values():
        part(report, directory, repetitions, quick=quick)


def by_size(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """A log that grows to 100 GiB, most of it holes."""
    need(directory, 2 * GIB)
    with long_log(directory, segment_bytes=GIB) as log:
        for label, gib in BY_SIZE.some(quick).items():
            log.grow(MIB - 4096, end_pos=gib * GIB)
            log.measure(report, SIZE, label, 1 if quick else repetitions)


def by_entries(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """A log that grows to ten million entries, all of it on the disk."""
    need(directory, (1 if quick else 8) * GIB)
    with long_log(directory) as log:
        for label, count in BY_ENTRIES.some(quick).items():
            log.grow(100, end_index=count)
            log.measure(report, ENTRIES, label, 1 if quick else repetitions)


class LongLog:
    """A group of one node, which is stopped while its log is made longer."""

    def __init__(self, running: EmbeddedGroup) -> None:
        self._running = running
        self._began_us = int(time.time() * 1e6)
        with Client(running.bootstrap_servers) as client:
            self._topic_id = client.topic("bench").topic_id

    def grow(self, size: int, **to: int) -> None:
        self._running.stop()
        grow(self._running.path, self._topic_id, size, **to)
        self._running.start()

    def measure(self, report: Report, section: str, label: str, repetitions: int) -> None:
        """Each time in a process of its own, on what the last one left."""
        blocks = sum(p.stat().st_blocks for p in Path(self._running.path).rglob("*") if p.is_file())
        report.add(section, f"{ON_DISK}, {label}", "GiB", blocks * 512 / GIB)
        dice, end_us = random.Random(label), int(time.time() * 1e6)
        for _ in range(repetitions):
            took = restarted(self._running, self._topic_id)
            report.add(section, f"{RESTART}, {label}", "s", took)
            with Client(self._running.bootstrap_servers) as client:
                end = client.end_offsets("bench")[0]
                for _ in range(LOOK_UPS):
                    at = dice.randrange(end)
                    began = time.perf_counter()
                    list(client.fetch_bodies("bench", 0, at, at + 1))
                    took = (time.perf_counter() - began) * 1000
                    report.add(section, f"{BY_OFFSET}, {label}", "ms", took)
                for _ in range(LOOK_UPS):
                    at = dice.randrange(self._began_us, end_us)
                    began = time.perf_counter()
                    client.offsets_for_times("bench", at)
                    took = (time.perf_counter() - began) * 1000
                    report.add(section, f"{BY_TIME}, {label}", "ms", took)
            report.add(section, f"{NODE_MIB}, {label}", "MiB", rss(self._running))


@contextmanager
def long_log(directory: Path, **settings: Any) -> Iterator[LongLog]:
    """One that is short as yet."""
    with group(directory, 1, **settings) as running:
        yield LongLog(running)


def restarted(running: EmbeddedGroup, topic_id: int) -> float:
    """Kill the only node while it is busy; seconds from its start to the next acknowledgement."""
    append_load(leader_address(running), topic_id, *BUSY, 1.0)
    [node] = running.nodes
    running.kill(node)
    began = time.perf_counter()
    running.restart(node)
    with Client(running.bootstrap_servers) as client:
        client.append("bench", b"x", partition=0)
        return time.perf_counter() - began


def until_saved(client: Client, address: str, topic_id: int) -> None:
    """Append until the only node has saved a checkpoint with all that was there: the first one
    makes a file for each partition, and a start before its end would read the whole log."""
    [before] = client.status().values()
    deadline = time.monotonic() + SAVED_S
    while time.monotonic() < deadline:
        append_load(address, topic_id, *BUSY, 0.5)
        [now] = client.status().values()
        if now["checkpoint_index"] >= before["applied_index"]:
            return
    raise RuntimeError(f"no checkpoint in {SAVED_S:.0f} s: {now}")


def rss(running: EmbeddedGroup) -> float:
    """MiB of the leader."""
    return memory_mib(leader_pid(running))["VmRSS"]


def leader_pid(running: EmbeddedGroup) -> int:
    pid = running.nodes[running.leader].pid
    assert pid is not None
    return pid


def need(directory: Path, size: int) -> None:
    """Raises SystemExit where so many bytes would leave the disk nearly full."""
    usage = shutil.disk_usage(directory)
    if usage.free < size + usage.total // 10:
        raise SystemExit(
            f"{directory} has {usage.free / GIB:.1f} GiB free; this takes {size / GIB:.0f} GiB "
            "and leaves a tenth of the disk: name another place with --directory"
        )


def by_partitions(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """A group for each count."""
    for label, count in BY_PARTITIONS.some(quick).items():
        with group(directory, 1) as running, Client(running.bootstrap_servers) as client:
            client.create_topic("wide", count)
            feed = feeder(client, ["wide"], count)

            def timed(label: str = label, feed: Any = feed) -> None:
                began = time.perf_counter()
                feed()
                took = (time.perf_counter() - began) * 1000
                report.add(PARTITIONS, f"{TRANSACTION}, {label}", "ms", took)

            times = 1 if quick else repetitions
            for took, _ in alone(running, timed, times, subscribe="wide"):
                report.add(PARTITIONS, f"{PLAN}, {label}", "ms", took)
            report.add(PARTITIONS, f"{NODE_MIB}, {label}", "MiB", rss(running))
            topic_id = client.topic("bench").topic_id
            until_saved(client, leader_address(running), topic_id)
            for _ in range(times):
                took = restarted(running, topic_id)
                report.add(PARTITIONS, f"{RESTART}, {label}", "s", took)


def by_connections(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All counts in turn, in each repetition."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        topic_id, pid = client.topic("bench").topic_id, leader_pid(running)
        for _ in range(1 if quick else repetitions):
            for label, count in BY_CONNECTIONS.some(quick).items():
                before = processor_s(pid)
                load = append_load(
                    leader_address(running), topic_id, 1024, 1, 0.3 if quick else 1.5, count
                )
                spent_us = (processor_s(pid) - before) * 1e6
                report.add(CONNECTIONS, f"{RATE}, {label}", "/s", load.per_second)
                report.add(CONNECTIONS, f"{LEADER_US}, {label}", "µs", spent_us / load.requests)


def by_written(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """One node; what is written goes again, and the node with its memory stays. Once: it is 20
    GiB."""
    need(directory, 4 * GIB)
    with (
        group(directory, 1, retention_bytes=GIB) as running,
        Client(running.bootstrap_servers) as client,
    ):
        topic_id, sent = client.topic("bench").topic_id, 0
        for label, gib in list(BY_WRITTEN.points.items())[: 1 if quick else None]:
            while sent < gib * GIB:
                load = append_load(
                    leader_address(running), topic_id, MIB, 8, 0.2 if gib < 1 else 1.0
                )
                sent += load.requests * MIB
            report.add(WRITTEN, f"{NODE_MIB}, {label}", "MiB", rss(running))


PARTS: Final = {
    "size": by_size,
    "entries": by_entries,
    "partitions": by_partitions,
    "connections": by_connections,
    "written": by_written,
    "gaps": gaps,
}
"""Each is a section of its own too: ``BENCH=curves-size``."""
