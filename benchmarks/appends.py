"""Appends to a group: throughput by size and in-flight count, latency with one in flight, memory
after 2 GiB."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from benchmarks import machine
from benchmarks.groups import group, pids_of, variants
from benchmarks.load import append_load
from benchmarks.report import BYTES, Report
from dledger import Client, EmbeddedGroup

THROUGHPUT, LATENCY = (
    "appends to a group, synced before the acknowledgement",
    "one append in flight",
)
MEMORY = "memory of a node"
MIB = 1 << 20
SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 64 * 1024, "1 MiB": MIB}
IN_FLIGHT = {
    "100 B": (1, 32, 512),
    "1 KiB": (1, 32, 512),
    "64 KiB": (1, 8, 64),
    "1 MiB": (1, 8, 16),
}


def leader_address(running: EmbeddedGroup) -> str:
    """Where the leader listens."""
    return running.nodes[running.leader].address


def throughput(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(a) Every size and in-flight count, one replica and three, one after the other within each
    repetition."""
    seconds = 0.2 if quick else 1.0
    with variants(directory, "1 replica", "3 replicas") as running:
        topics = {label: client.topic("bench").topic_id for label, (_, client) in running.items()}
        for _ in range(repetitions):
            machine.measure(report, directory, quick=quick)
            for size_label, size in SIZES.items():
                for in_flight in IN_FLIGHT[size_label]:
                    for label, (one, _) in running.items():
                        load = append_load(
                            leader_address(one), topics[label], size, in_flight, seconds
                        )
                        name = f"{size_label}, {in_flight} in flight, {label}"
                        report.add(THROUGHPUT, name, "records/s", load.per_second)
                        report.add(THROUGHPUT, name + BYTES, "MB/s", load.megabytes_per_second)
            for label, (_, client) in running.items():
                name = f"producer, 100 B records in batches, {label}"
                report.add(
                    THROUGHPUT, name, "records/s", produce(client, 20_000 if quick else 500_000)
                )


def produce(client: Client, records: int) -> float:
    """Records per second of one idempotent producer that is fed Arrow arrays."""
    values = pa.array([b"x" * 100] * 10_000, pa.binary())
    start = time.perf_counter()
    with client.producer("bench") as producer:
        for _ in range(records // len(values)):
            producer.append(values)
        producer.flush()
    return records / (time.perf_counter() - start)


def latency(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(b) 1 KiB at a time: the bare request, and ``Client.append`` as a program would call it."""
    count = 50 if quick else 1000
    with variants(directory) as running:
        for _, client in running.values():
            for _ in range(20):
                client.append("bench", b"x" * 1024)
        for _ in range(repetitions):
            raw = machine.write_and_sync(directory, 4096, count)
            report.add(
                LATENCY, "write + fdatasync of 4 KiB by itself", "ms", *(t * 1000 for t in raw)
            )
            raw = machine.rounds_of_three(directory, 4096, count)
            report.add(
                LATENCY,
                "write + fdatasync of 4 KiB by three at once",
                "ms",
                *(t * 1000 for t in raw),
            )
            for label, (one, client) in running.items():
                topic_id = client.topic("bench").topic_id
                load = append_load(leader_address(one), topic_id, 1024, 1, count / 2000)
                report.add(
                    LATENCY, f"request of 1 KiB, {label}", "ms", *(t * 1000 for t in load.latencies)
                )
                for _ in range(count):
                    start = time.perf_counter()
                    client.append("bench", b"x" * 1024)
                    report.add(
                        LATENCY,
                        f"Client.append of 1 KiB, {label}",
                        "ms",
                        (time.perf_counter() - start) * 1000,
                    )


def memory_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process: all of it, and the part that is not mapped files."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in {"VmRSS", "RssAnon", "VmHWM"}:
            found[name] = int(rest.split()[0]) / 1024
    return found


def memory(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(f) Resident memory of each of three nodes after 2 GiB of 1 MiB bodies, and of 100-byte
    records."""
    total = 16 * MIB if quick else 2048 * MIB
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        topic_id, sent = client.topic("bench").topic_id, 0
        while sent < total:
            load = append_load(leader_address(running), topic_id, MIB, 8, 0.2 if quick else 2.0)
            sent += load.requests * MIB
        for node_id, pid in pids_of(running).items():
            role = "leader" if node_id == running.leader else "follower"
            for name, mib in memory_mib(pid).items():
                report.add(MEMORY, f"{name} of the {role} after {sent / 2**30:.1f} GiB", "MiB", mib)
                if name == "VmRSS":
                    report.add(MEMORY, "VmRSS of any node", "MiB", mib)
