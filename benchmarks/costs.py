"""Where the time of an append goes: processor time of each process, beside the same way with bare
sockets and files."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks import bare
from benchmarks.appends import MIB, leader_address
from benchmarks.groups import group, pids_of
from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup

COSTS = "where the time of an append goes, 3 replicas"
ONE = "1 KiB, 1 in flight"
MANY = "1 MiB, 16 in flight"
BARE_ONE, BARE_MANY = f"{ONE}, bare sockets and files", f"{MANY}, bare sockets and files"
TICKS = os.sysconf("SC_CLK_TCK")


def processor_ms(pid: int) -> tuple[float, float]:
    """Milliseconds that a process has spent in user and in system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) * 1000 / TICKS, int(fields[12]) * 1000 / TICKS


def costs(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(b') Bare way and group, in turn, with the processor time a request of every process.

    The bare files are as long as what the group writes meanwhile, because the first touch of a page
    of memory can be what costs most.
    """
    seconds = 0.3 if quick else 3.0
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        topic_id = client.topic("bench").topic_id
        for _ in range(repetitions):
            raw = bare.latencies(directory, 1024, 50 if quick else 2000)
            report.add(COSTS, f"{BARE_ONE}, latency", "ms", *(t * 1000 for t in raw))
            spent(report, ONE, running, topic_id, 1024, 1, seconds)
            spent(report, MANY, running, topic_id, MIB, 16, seconds)
            rate = bare.bytes_per_second(directory, MIB, 32 if quick else 512, 16)
            report.add(COSTS, BARE_MANY, "MB/s", rate / 1e6)


def spent(
    report: Report,
    case: str,
    running: EmbeddedGroup,
    topic_id: int,
    size: int,
    in_flight: int,
    seconds: float,
) -> None:
    """One load, and what every process spent on it."""
    pids = pids_of(running)
    before = {name: processor_ms(pid) for name, pid in pids.items()}
    own = processor_ms(os.getpid())
    load = append_load(leader_address(running), topic_id, size, in_flight, seconds)
    used = {name: _since(before[name], pid) for name, pid in pids.items()}
    client = _since(own, os.getpid())
    report.add(COSTS, f"{case}, latency", "ms", *(t * 1000 for t in load.latencies))
    report.add(COSTS, case, "MB/s", load.megabytes_per_second)
    for name, (user, system) in used.items():
        role = "leader" if name == running.leader else "each follower"
        report.add(COSTS, f"{case}, {role}: user time a request", "ms", user / load.requests)
        report.add(COSTS, f"{case}, {role}: system time a request", "ms", system / load.requests)
    report.add(
        COSTS, f"{case}, client: processor time a request", "ms", sum(client) / load.requests
    )
    total = sum(client) + sum(user + system for user, system in used.values())
    report.add(COSTS, f"{case}, cores busy with all of it", "cores", total / (load.seconds * 1000))


def _since(before: tuple[float, float], pid: int) -> tuple[float, float]:
    user, system = processor_ms(pid)
    return user - before[0], system - before[1]
