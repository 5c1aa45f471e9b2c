"""Single requests of 1 KiB, 512 in flight, with the compiled functions and in plain Python, and the
most that the processors allow: all cores over the processor time that a request takes in all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.appends import leader_address
from benchmarks.groups import group, pids_of
from benchmarks.load import append_load
from benchmarks.pairs import processor_s
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.compiled import native

REQUESTS: Final = "requests of 1 KiB, 512 in flight, 3 replicas"
COMPILED, PYTHON = "with the compiled functions", "in plain Python"
MOST: Final = ", at most by processor time"
SIZE: Final = 1024
IN_FLIGHT: Final = 512
SWITCH: Final = "DLEDGER_COMPILED"


@contextmanager
def without_compiled(is_off: bool) -> Iterator[None]:
    """Nodes that start meanwhile go without the compiled functions, if so."""
    before = os.environ.get(SWITCH)
    if is_off:
        os.environ[SWITCH] = "no"
    try:
        yield
    finally:
        os.environ.pop(SWITCH, None)
        if before is not None:
            os.environ[SWITCH] = before


def many_requests(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Two groups side by side, of which one works at a time. A first turn of each, which warms it,
    is left out."""
    seconds = 0.3 if quick else 2.0
    names = [PYTHON] if native is None else [COMPILED, PYTHON]
    with ExitStack() as stack:
        groups: dict[str, tuple[EmbeddedGroup, int]] = {}
        for name in names:
            with without_compiled(name == PYTHON):
                running = stack.enter_context(group(directory, 3))
            with Client(running.bootstrap_servers) as client:
                groups[name] = running, client.topic("bench").topic_id
        for turn in range(repetitions + (not quick)):
            for name, (running, topic_id) in groups.items():
                for what, unit, value in spent(running, topic_id, seconds):
                    if turn or quick:
                        report.add(REQUESTS, f"{name}{what}", unit, value)


def spent(running: EmbeddedGroup, topic_id: int, seconds: float) -> list[tuple[str, str, float]]:
    """Rate, processor time a request of each process, and what follows from both."""
    pids, address = pids_of(running), leader_address(running)
    before, own = {name: processor_s(pid) for name, pid in pids.items()}, time.process_time()
    load = append_load(address, topic_id, SIZE, IN_FLIGHT, seconds)
    each = 1e6 / load.requests
    client = (time.process_time() - own) * each
    nodes = {name: (processor_s(pid) - before[name]) * each for name, pid in pids.items()}
    all_us, leader = client + sum(nodes.values()), nodes.pop(running.leader)
    most = (os.cpu_count() or 1) * 1e6 / all_us
    return [
        ("", "requests/s", load.per_second),
        (MOST, "requests/s", most),
        (": cores busy", "cores", all_us * load.per_second / 1e6),
        (": processor time of the leader", "µs", leader),
        (": processor time of a follower", "µs", sum(nodes.values()) / len(nodes)),
        (": processor time of the load generator", "µs", client),
    ]
