"""How soon a reader has a record that was acknowledged, at the leader and at a follower.

Run as a program it is the reader, a process of its own: ``python -m benchmarks.long_polls SERVERS
REPLICA START`` prints the time of each record from START on, until its output is closed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from benchmarks.groups import group
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup

READABLE = "one record each 10 ms, 3 replicas: from its acknowledgement until its reader has it"
INTERVAL_S = 0.01
FIRST = 20
"""Records that do not count: the reader's process starts meanwhile."""


def long_polls(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(o) One reader with a long poll, at the leader and at a follower in turn."""
    records = 20 if quick else 400
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        leader = running.leader
        follower = next(name for name in running.nodes if name != leader)
        for _ in range(repetitions):
            for label, replica in (("the leader", leader), ("a follower", follower)):
                waits = sorted(_waits(running, client, replica, records))
                for part in (50, 99):
                    wait = waits[len(waits) * part // 100]
                    report.add(READABLE, f"reader at {label}, p{part}", "ms", wait)


def _waits(running: EmbeddedGroup, client: Client, replica: str, records: int) -> list[float]:
    """Of each record, in milliseconds: below zero where the reader was first."""
    end = client.offsets(["bench"]).offsets["bench"][0]
    command = [sys.executable, "-m", "benchmarks.long_polls", running.bootstrap_servers, replica]
    acknowledged = []
    with subprocess.Popen(
        [*command, str(end)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for _ in range(FIRST + records):
            client.append("bench", b"x" * 100)
            acknowledged.append(time.monotonic_ns())
            time.sleep(INTERVAL_S)
        had = [int(line) for line in islice(reader.stdout, len(acknowledged))]
        reader.terminate()
    return [
        (seen - done) / 1e6 for seen, done in zip(had[FIRST:], acknowledged[FIRST:], strict=True)
    ]


def main(servers: str, replica: str, start: str) -> None:
    """Follow the topic, and print when each record came."""
    with Client(servers) as client:
        print("ready", flush=True)
        for batch in client.read("bench", 0, int(start), follow=True, replica=replica):
            now = time.monotonic_ns()
            print(*[now] * batch.num_rows, sep="\n", flush=True)


__all__ = ["READABLE", "long_polls"]

if __name__ == "__main__":
    main(*sys.argv[1:])
