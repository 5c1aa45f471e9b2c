"""Run the benchmarks: ``python -m benchmarks [--only append,latency] [--repetitions 5]
[--quick]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import (
    appends,
    availability,
    backups,
    brokers,
    costs,
    curves,
    digests,
    failures,
    fairness,
    following,
    frames,
    kafka_producing,
    lines,
    long_polls,
    machine,
    many_requests,
    messages,
    metrics,
    planning,
    producing,
    reading,
    replacing,
    request_cost,
    rocketmq,
    safeguards,
    spark,
    spark_costs,
    spark_floors,
    typed,
    visible,
)
from benchmarks.floors import FLOORS
from benchmarks.report import Report
from verification.result import save

SECTIONS: dict[str, Callable[..., None]] = {
    "append": appends.throughput,
    "latency": appends.latency,
    "costs": costs.costs,
    "spark": spark.spark,
    "spark-floors": spark_floors.spark_floors,
    "typed": typed.typed,
    "digest": digests.digests,
    "visible": visible.visible,
    "planning": planning.planning,
    "failover": failures.failover,
    "handover": availability.handover,
    "rolling": availability.rolling,
    "elections": availability.elections,
    "start": failures.start,
    "memory": appends.memory,
    "rocketmq": rocketmq.rocketmq,
    "following": following.following,
    "messages": messages.messages,
    "read": reading.reading,
    "frames": frames.frames,
    "backup": backups.backups,
    "replacing": replacing.replacing,
    "lines": lines.lines,
    "keyed": spark_costs.keyed,
    "available": spark_costs.available,
    "poll": long_polls.long_polls,
    "fairness": fairness.fairness,
    "metrics": metrics.metrics,
    "safeguards": safeguards.safeguards,
    "request-cost": request_cost.request_cost,
    "requests": many_requests.many_requests,
    "producer": producing.producing,
    "curves": curves.curves,
    **{f"curves-{name}": part for name, part in curves.PARTS.items()},
    "brokers": brokers.real_ones,
    "kafka-producer": kafka_producing.kafka_producing,
}
OTHERS = ("brokers", "kafka-producer")
"""What needs programs of others."""
UNASKED = [name for name in SECTIONS if name not in OTHERS and not name.startswith("curves-")]
"""What is run without a word: all that needs nothing but this package, once."""
RESULTS = Path(__file__).parent / "results"


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(UNASKED), help=f"some of {','.join(SECTIONS)}")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=5,
        help="of every case; digest, failover and handover: at least 20; elections: minutes",
    )
    parser.add_argument(
        "--directory", type=Path, help="where the logs lie while they are measured (a real disk)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the JSON")
    parser.add_argument("--json", type=Path, help="write it there too, for the page of evidence")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: everything once, small; no floors"
    )
    asked = parser.parse_args(argv)
    asked.sections = asked.only.split(",")
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"no section {sorted(unknown)[0]!r}; there are {', '.join(SECTIONS)}")
    return asked


def command_of(asked: argparse.Namespace) -> str:
    """The command line that measures the same again."""
    how = "QUICK=1" if asked.quick else f"REPETITIONS={asked.repetitions}"
    return f"make bench BENCH={asked.only} {how}"


def main(argv: Sequence[str]) -> int:
    """Measure, print, save. The table says which floors hold; a slower machine is not an error."""
    asked = arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="dledger-bench-", dir=asked.directory) as scratch:
        directory = Path(scratch)
        report = Report(machine.describe(directory) | {"command": command_of(asked)})
        console.print(report.machine)
        for name in asked.sections:
            began = time.monotonic()
            console.print(f"measuring {name} ...", end=" ")
            SECTIONS[name](
                report, directory, 1 if asked.quick else asked.repetitions, quick=asked.quick
            )
            console.print(f"{time.monotonic() - began:.0f} s")
    floors = () if asked.quick else FLOORS
    report.show(console, floors)
    path = asked.output / f"bench-{report.machine['started'].replace(':', '')}.json"
    report.save(path, floors)
    console.print(f"saved as {path}")
    if asked.json is not None:
        save(report.as_evidence(command_of(asked), floors), asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
