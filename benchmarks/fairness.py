"""One principal at full speed, and what it leaves to another one: under TLS, because principals are
the users of certificates.

Run as a program it is the load of one user, in a process of its own; it prints what it has got.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client
from dledger.config import tls_files
from dledger.net.connections.tls import client_context
from dledger.types import NodeId
from verification.strangers.certificates import Authority
from verification.strangers.nodes import Nodes, tls_settings

FAIRNESS = "two principals, 3 replicas, TLS"
KIB = 1 << 10
MOST = {"1 connection": (1, 64, 256 * KIB), "50 connections": (50, 4, 256 * KIB)}
"""Of the user at full speed: connections, requests in flight on each, bytes of each."""
LIGHT = (1, 1, KIB)
OTHER = (1, 64, 256 * KIB)


class PatientNodes(Nodes):
    """A busy machine is no reason for an election."""

    def command(self, name: NodeId) -> list[str]:
        return [*super().command(name), "--set", "election_ms=10000"]


class User(NamedTuple):
    """A user's certificate, and the group."""

    address: str
    topic_id: int
    files: tuple[str, str, str]

    def start(self, load: tuple[int, int, int], seconds: float) -> subprocess.Popen[str]:
        """Open the connections of this load on the leader; it begins with `begin` or `result`."""
        words = [self.address, self.topic_id, *load, seconds, *self.files]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fairness", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """``rate`` in MB/s; ``p50`` and ``p99`` in ms."""
    said, _ = process.communicate("begin\n")
    found: dict[str, Any] = json.loads(said)
    return found


def begin(*processes: subprocess.Popen[str]) -> None:
    """Let them begin together."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()


def fairness(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(p) A light user, and another one at full speed, each alone and beside a heavy one."""
    seconds = 1.0 if quick else 6.0
    folder = directory / "fairness"
    folder.mkdir()
    authority = Authority(folder)
    files = {name: authority.issue(name, f"dledger://client/{name}") for name in ("heavy", "other")}
    with PatientNodes(folder, 3, authority) as nodes:
        with Client(nodes.bootstrap_servers, **tls_settings(files["heavy"])) as client:
            topic_id = client.create_topic("bench").topic_id
            leader = next(iter(client.status().values()))["leader_id"]
        heavy, other = (User(nodes.addresses[leader], topic_id, one) for one in files.values())
        for _ in range(repetitions):
            _measure(report, heavy, other, seconds)


def _measure(report: Report, heavy: User, other: User, seconds: float) -> None:
    alone = result(other.start(LIGHT, seconds))
    for part in ("p50", "p99"):
        report.add(FAIRNESS, f"a light user alone, {part}", "ms", alone[part])
    for label, load in MOST.items():
        busy, light = heavy.start(load, 1.5 * seconds), other.start(LIGHT, seconds)
        begin(busy)
        beside = result(light)
        result(busy)
        for part in ("p50", "p99"):
            report.add(
                FAIRNESS, f"beside one at full speed over {label}, {part}", "ms", beside[part]
            )
        report.add(
            FAIRNESS,
            f"p99 beside one at full speed over {label}, of that alone",
            "x",
            beside["p99"] / alone["p99"],
        )
        both = [heavy.start(load, seconds), other.start(OTHER, seconds)]
        begin(*both)
        first, second = (result(one)["rate"] for one in both)
        report.add(FAIRNESS, f"both at full speed, the other over {label}", "MB/s", first + second)
        report.add(
            FAIRNESS,
            f"share of one beside the other over {label}, of a half",
            "x",
            second / ((first + second) / 2),
        )


def _wait_for_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main(words: list[str]) -> None:
    """Put a load on a leader, and print what came of it."""
    address, topic_id, connections, in_flight, size, seconds, ca, certificate, key = words
    load = append_load(
        address,
        int(topic_id),
        int(size),
        int(in_flight),
        float(seconds),
        int(connections),
        client_context(tls_files(ca=ca, certificate=certificate, key=key)),
        begins=_wait_for_word,
    )
    times = sorted(load.latencies)
    parts = {f"p{part}": 1000 * times[len(times) * part // 100] for part in (50, 99)}
    print(json.dumps({"rate": load.megabytes_per_second, **parts}))


if __name__ == "__main__":
    main(sys.argv[1:])
