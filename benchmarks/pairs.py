"""Two checkouts measured in turn: what a request and a connection cost in this one, as a ratio to the other one.

``python -m benchmarks.pairs --other DIRECTORY [--pairs 20] [--seconds 3]``; both checkouts need their ``make setup``.
Each pair starts a group of three nodes from one checkout, then one from the other, the first of them alternating, so
that a machine that becomes slower or faster meanwhile is slow or fast for both. The interval of a ratio is that of its
geometric mean over the pairs: a percentile bootstrap with 10,000 samples (Efron, 1979).
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

SAMPLES = 10_000
CASES = {"1 in flight": 1, "512 in flight": 512}
CONNECTIONS = 200


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """What the code that this process imports needs: processor ms of all processes a request, ms a connection."""
    from benchmarks.appends import leader_address
    from benchmarks.costs import processor_ms
    from benchmarks.groups import group
    from benchmarks.load import append_load
    from dledger import Client

    found: dict[str, float] = {}
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        topic_id = client.topic("bench").topic_id
        pids = [os.getpid(), *(node.pid for node in running.nodes.values())]
        append_load(leader_address(running), topic_id, 1024, 8, 0.5)  # files and caches are warm
        for case, in_flight in CASES.items():
            before = sum(sum(processor_ms(pid)) for pid in pids)
            load = append_load(leader_address(running), topic_id, 1024, in_flight, seconds)
            spent = sum(sum(processor_ms(pid)) for pid in pids) - before
            found[f"{case}: processor ms a request"] = spent / load.requests
            found[f"{case}: p50 ms"] = statistics.median(load.latencies) * 1000
        opened = []
        for _ in range(CONNECTIONS):
            began = time.perf_counter()
            with Client(leader_address(running)) as fresh:
                fresh.topic("bench")
            opened.append(time.perf_counter() - began)
        found["a new client and its first answer: ms"] = statistics.median(opened) * 1000
    return found


def run_in(checkout: Path, seconds: float) -> dict[str, float]:
    """`measure` in another process, with the code of ``checkout``."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    with tempfile.TemporaryDirectory(prefix="dledger-pairs-") as directory:
        command = [
            checkout / ".venv/bin/python", Path(__file__).resolve(), "--measure", directory, "--seconds", str(seconds),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def interval(ratios: Sequence[float], seed: int = 1) -> tuple[float, float, float]:
    """The geometric mean of ``ratios`` and the borders of its 95 % interval."""
    logs, dice = [math.log(ratio) for ratio in ratios], random.Random(seed)
    means = sorted(statistics.fmean(dice.choices(logs, k=len(logs))) for _ in range(SAMPLES))
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES)]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("--other", type=Path, help="the checkout to compare with")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each load")
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(measure(asked.measure, asked.seconds)))
        return
    if asked.other is None:
        parser.error("--other: name the checkout to compare with")
    here, other = Path(__file__).resolve().parent.parent, asked.other.resolve()
    runs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(asked.pairs):
        order = (here, other) if number % 2 == 0 else (other, here)
        found = {checkout: run_in(checkout, asked.seconds) for checkout in order}
        runs.append((found[here], found[other]))
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
