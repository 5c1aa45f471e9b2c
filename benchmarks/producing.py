"""Values that a program appends one by one with `Producer.append`, each result asked for, beside
what the same run allows at most: the same calls where nothing is sent, and the same group where
nothing is done for each record."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.groups import group, pids_of
from benchmarks.pairs import processor_s
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.client import RecordFuture
from dledger.client.blocking.outflow import Flow
from dledger.client.blocking.producer import Producer
from dledger.compiled import native

PRODUCING: Final = "values appended one by one, each result asked for, 3 replicas"
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
EACH, NOWHERE, ARRAYS = "one by one", "the same calls, nothing sent", "Arrow arrays of 10,000"
CLIENT, LEADER, FOLLOWER = (
    f": processor time {where}" for where in ("of the client", "of the leader", "of a follower")
)
KEPT: Final = 100_000
"""Handles that wait to be asked."""
ARRAY: Final = 10_000
AT_ONCE: Final = 500

Way = Callable[[Producer, bytes, float], int]
"""Append for so many seconds; how many records that were."""


class Nowhere(Flow):
    """Answers each batch as soon as it is ready."""

    def wake(self, size: int) -> None:
        """There is room for each batch, and an offset."""
        with suppress(IndexError):  # of a thread that finds the last one taken
            while True:
                for item in self.ready.popleft().items:
                    item.done(0)

    def take(self) -> None:
        """As `wake`, of what is over its time."""
        self.wake(0)

    def wait_empty(self) -> None:
        """It is."""
        self.wake(0)


def one_by_one(producer: Producer, value: bytes, seconds: float) -> int:
    """Each result is asked for, at most KEPT records later."""
    count, append = 0, producer.append
    until = time.perf_counter() + seconds
    waiting = deque[RecordFuture]()
    while time.perf_counter() < until:
        waiting.extend([append(value) for _ in range(AT_ONCE)])
        while len(waiting) > KEPT:
            count += waiting.popleft().result().end > 0
    producer.flush()
    return count + sum(one.result().end > 0 for one in waiting)


def nowhere(producer: Producer, value: bytes, seconds: float) -> int:
    """`one_by_one` of a producer whose batches go nowhere."""
    producer._flow.__class__ = Nowhere
    try:
        return one_by_one(producer, value, seconds)
    finally:
        producer._flow.__class__ = Flow


def arrays(producer: Producer, value: bytes, seconds: float) -> int:
    """No handle, and no call, for each record."""
    values, until, waiting = (
        pa.array([value] * ARRAY, pa.binary()),
        time.perf_counter() + seconds,
        [],
    )
    while time.perf_counter() < until:
        waiting.append(producer.append(values))
    written: int = ARRAY * sum(one.result().end > 0 for one in waiting)
    return written


WAYS: Final[dict[str, Way]] = {EACH: one_by_one, NOWHERE: nowhere, ARRAYS: arrays}


def producing(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All ways in turn. A first turn of each, which warms it, is left out."""
    seconds = 0.2 if quick else 1.5
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        for turn in range(repetitions + (not quick)):
            for label, size in SIZES.items():
                for name, way in WAYS.items():
                    found = spent(running, client, way, os.urandom(size), seconds)
                    if turn or quick:
                        for what, unit, value in found:
                            report.add(PRODUCING, f"{label}, {name}{what}", unit, value)


def spent(
    running: EmbeddedGroup, client: Client, way: Way, value: bytes, seconds: float
) -> list[tuple[str, str, float]]:
    """Rate, and processor time a record of each process."""
    pids = pids_of(running)
    before = {name: processor_s(pid) for name, pid in pids.items()}
    own, began = time.process_time(), time.perf_counter()
    with client.producer("bench") as producer:
        records = way(producer, value, seconds)
    rate, own = records / (time.perf_counter() - began), time.process_time() - own
    nodes = {name: (processor_s(pid) - before[name]) * 1e6 / records for name, pid in pids.items()}
    found = [("", "records/s", rate), (CLIENT, "µs", own * 1e6 / records)]
    if way is not nowhere:
        leader = nodes.pop(running.leader)
        found += [(LEADER, "µs", leader), (FOLLOWER, "µs", sum(nodes.values()) / len(nodes))]
    return found


def main() -> None:
    """A short look, without the rest of a run."""
    import tempfile

    report = Report({})
    with tempfile.TemporaryDirectory(prefix="dledger-producing-") as scratch:
        producing(report, Path(scratch), 5, quick=False)
    for case in report.cases.values():
        print(f"{case.name}: {case.median:,.2f} {case.unit} ({case.low:,.2f} to {case.high:,.2f})")
    print("with" if native else "without", "the compiled functions")


if __name__ == "__main__":
    main()
