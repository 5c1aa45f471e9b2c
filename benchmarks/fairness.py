"""One principal at full speed, and what it leaves to another one: under TLS, because principals are
the users of certificates.

Run as a program it is the load of one user, in a process of its own; it prints what it has got.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
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
BESIDE = "beside one at full speed over {}"
APART = "beside one of another group over {}"
OF_ALONE = ", p99 of that alone"
OF_APART = ", p99 of that beside another group"
OF_HALF = "share of one beside the other over {}, of a half"
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
    with ExitStack() as stack:
        heavy, other = _group(stack, directory / "fairness")
        apart, _ = _group(stack, directory / "fairness-apart")
        for _ in range(repetitions):
            _measure(report, heavy, other, apart, seconds)


def _group(stack: ExitStack, folder: Path) -> list[User]:
    """A heavy user and another one of a new group."""
    folder.mkdir()
    authority = Authority(folder)
    files = {name: authority.issue(name, f"dledger://client/{name}") for name in ("heavy", "other")}
    nodes = stack.enter_context(PatientNodes(folder, 3, authority))
    with Client(nodes.bootstrap_servers, **tls_settings(files["heavy"])) as client:
        topic_id = client.create_topic("bench").topic_id
        leader = next(iter(client.status().values()))["leader_id"]
    return [User(nodes.addresses[leader], topic_id, one) for one in files.values()]


def _measure(report: Report, heavy: User, other: User, apart: User, seconds: float) -> None:
    """``apart``: a heavy user of another group on the same machine, which takes the processors and
    the disk as ``heavy`` does, and nothing else of this group. What a light user has beside that
    one is the machine's doing."""
    alone = result(other.start(LIGHT, seconds))
    for part in ("p50", "p99"):
        report.add(FAIRNESS, f"a light user alone, {part}", "ms", alone[part])
    for label, load in MOST.items():
        p99s = []
        for name, user in ((BESIDE.format(label), heavy), (APART.format(label), apart)):
            busy, light = user.start(load, 1.5 * seconds), other.start(LIGHT, seconds)
            begin(busy)
            beside, rate = result(light), result(busy)["rate"]
            p99s.append(beside["p99"])
            for part in ("p50", "p99"):
                report.add(FAIRNESS, f"{name}, {part}", "ms", beside[part])
            report.add(FAIRNESS, name + OF_ALONE, "x", beside["p99"] / alone["p99"])
            report.add(FAIRNESS, f"{name}, what that one has", "MB/s", rate)
        report.add(FAIRNESS, BESIDE.format(label) + OF_APART, "x", p99s[0] / p99s[1])
        both = [heavy.start(load, seconds), other.start(OTHER, seconds)]
        begin(*both)
        first, second = (result(one)["rate"] for one in both)
        report.add(FAIRNESS, f"both at full speed, the other over {label}", "MB/s", first + second)
        report.add(FAIRNESS, OF_HALF.format(label), "x", second / ((first + second) / 2))


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
