"""Two checkouts measured in turn: what a request and a connection cost in this one, as a ratio to
the other one. Both groups get their requests from the load generator of this one.

``python -m benchmarks.pairs --other DIRECTORY [--pairs 20] [--slices 6] [--seconds 0.5]``; both
checkouts need their ``make setup``. Each pair starts a group of three nodes from either checkout,
side by side. The loads then take turns in short slices, one group idle while the other works, so
that a machine that becomes slower or faster meanwhile is slow or fast for both. The interval of a
ratio is that of its geometric mean over the pairs: a percentile bootstrap with 10,000 samples
(Efron, 1979).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from benchmarks.load import append_load


class Sizes(TypedDict):
    """Of a load: bytes of a record, how many are in flight on each connection."""

    size: int
    in_flight: int
    connections: NotRequired[int]


SAMPLES = 10_000
LOADS: dict[str, Sizes] = {
    "1 in flight": {"size": 1 << 10, "in_flight": 1},
    "512 in flight": {"size": 1 << 10, "in_flight": 512},
    "200 connections": {"size": 1 << 10, "in_flight": 1, "connections": 200},
    "1 MiB, 8 in flight": {"size": 1 << 20, "in_flight": 8},
}
CONNECT = "a new client and its first answer: p50 ms"


class Slice(NamedTuple):
    """A turn of a load: processor time in microseconds."""

    requests: int
    leader_us: float
    followers_us: float
    seconds: float
    p50_ms: float


def processor_s(pid: int) -> float:
    """Seconds of processor time of all threads of a process, to the nanosecond: the clock of
    another process has the number that clock_getcpuclockid(3) gives."""
    return time.clock_gettime((~pid << 3) | 2)


def serve(directory: Path) -> None:
    """Keep a group of the code that this process imports. The first line of standard output says
    where it is; for each line of standard input, which has a number of seconds, one says how new
    clients fared in that time (`opened`)."""
    from benchmarks.appends import leader_address
    from benchmarks.groups import group
    from dledger import Client

    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        address, topic_id = leader_address(running), client.topic("bench").topic_id
        pids = sorted(running.nodes, key=lambda name: name != running.leader)
        print(json.dumps([address, topic_id, [running.nodes[name].pid for name in pids]]))
        sys.stdout.flush()
        for line in sys.stdin:
            print(json.dumps(opened(address, float(line))), flush=True)


def opened(address: str, seconds: float) -> list[float]:
    """Milliseconds in all, how many, and the median: new clients, each with its first answer."""
    from dledger import Client

    took = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        with Client(address) as fresh:
            fresh.topic("bench")
        took.append((time.perf_counter() - began) * 1000)
    return [sum(took), len(took), statistics.median(took)]


class Checkout:
    """A process with the code of a checkout and a group of its nodes."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
        script = Path(__file__).resolve()
        command = [str(checkout / ".venv/bin/python"), str(script), "--serve", str(directory)]
        self._process = subprocess.Popen(
            command,
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        """Wait for the group, and warm files and caches."""
        self._address, self._topic_id, self._pids = self._answer()
        append_load(self._address, self._topic_id, 1 << 10, 8, 0.5)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(
                f"the measuring process ended with {self._process.wait()}; its messages are above"
            )
        return json.loads(line)

    def load(self, case: str, seconds: float) -> Slice:
        """A turn of that load, with the load generator of this process."""
        before = [processor_s(pid) for pid in self._pids]
        load = append_load(self._address, self._topic_id, seconds=seconds, **LOADS[case])
        spent = [processor_s(pid) - was for pid, was in zip(self._pids, before, strict=True)]
        p50 = statistics.median(load.latencies) * 1000
        return Slice(load.requests, spent[0] * 1e6, sum(spent[1:]) * 1e6, load.seconds, p50)

    def connect(self, seconds: float) -> float:
        """The median of new clients, in ms."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return float(self._answer()[2])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def in_turn(slices: int) -> list[int]:
    """Which of the two has each turn."""
    return [which for number in range(slices) for which in ((0, 1), (1, 0))[number % 2]]


def summed(of: Sequence[Slice]) -> dict[str, float]:
    """The figures of all slices of a load."""
    requests = sum(one.requests for one in of)
    return {
        "µs at the leader": sum(one.leader_us for one in of) / requests,
        "µs at both followers": sum(one.followers_us for one in of) / requests,
        "seconds a million": sum(one.seconds for one in of) / requests * 1e6,
        "p50 ms": statistics.median(one.p50_ms for one in of),
    }


def pair(
    here: Path, other: Path, slices: int, seconds: float
) -> tuple[dict[str, float], dict[str, float]]:
    """The figures of both checkouts, each over all its slices."""
    with tempfile.TemporaryDirectory(prefix="dledger-pairs-") as directory:
        both = [
            Checkout(checkout, Path(directory) / name)
            for checkout, name in ((here, "here"), (other, "other"))
        ]
        try:
            for checkout in both:
                checkout.start()
            found: list[dict[str, float]] = [{}, {}]
            for case in LOADS:
                got: list[list[Slice]] = [[], []]
                for which in in_turn(slices):
                    got[which].append(both[which].load(case, seconds))
                for figures, of in zip(found, got, strict=True):
                    figures |= {f"{case}: {name}": value for name, value in summed(of).items()}
            medians: list[list[float]] = [[], []]
            for which in in_turn(slices):
                medians[which].append(both[which].connect(seconds))
            for figures, times in zip(found, medians, strict=True):
                figures[CONNECT] = statistics.median(times)
        finally:
            for checkout in both:
                checkout.close()
    return found[0], found[1]


def interval(ratios: Sequence[float], seed: int = 1) -> tuple[float, float, float]:
    """The geometric mean of ``ratios`` and the borders of its 95 % interval."""
    logs, dice = [math.log(ratio) for ratio in ratios], random.Random(seed)
    means = sorted(statistics.fmean(dice.choices(logs, k=len(logs))) for _ in range(SAMPLES))
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES)]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("--here", type=Path, help="the checkout to measure, unless it is this one")
    parser.add_argument("--other", type=Path, help="the checkout to compare with")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--slices", type=int, default=6, help="turns of each load in a pair")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
        return
    if asked.other is None:
        parser.error("--other: name the checkout to compare with")
    here = (asked.here or Path(__file__).parent.parent).resolve()
    other = asked.other.resolve()
    runs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(asked.pairs):
        runs.append(pair(here, other, asked.slices, asked.seconds))
        print(f"pair {number + 1} of {asked.pairs}", file=sys.stderr)
    for name in runs[0][0]:
        own, theirs = [a[name] for a, _ in runs], [b[name] for _, b in runs]
        mean, low, high = interval([a / b for a, b in zip(own, theirs, strict=True)])
        print(
            f"{name}: {statistics.median(own):.4f} ({min(own):.4f} to {max(own):.4f}), other "
            f"{statistics.median(theirs):.4f} ({min(theirs):.4f} to {max(theirs):.4f}); "
            f"ratio {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        )
    if asked.json is not None:
        asked.json.write_text(json.dumps(runs, indent=2) + "\n")


if __name__ == "__main__":
    main()
