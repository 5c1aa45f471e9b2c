"""``python -m verification.chaos --minutes 5``: green and exit code 0, or red and 1."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dledger.errors import DLedgerError
from dledger.net import run
from verification.chaos.report import as_dict, lines
from verification.chaos.run import Part, run_part
from verification.chaos.schedule import ALL_FAULTS, named_faults, schedule
from verification.result import save, say


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.chaos", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="of load and faults, over all groups (default 5)"
    )
    parser.add_argument(
        "--nodes", default="3,5", help="sizes of the groups that share the time (default 3,5)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="decides the schedule; 0 (default): one that is printed"
    )
    parser.add_argument(
        "--faults",
        default="",
        metavar="NAME,...",
        help="only these: " + ", ".join(fault.name for fault in ALL_FAULTS),
    )
    parser.add_argument(
        "--dir", type=Path, help="for the nodes' files; a temporary directory unless given"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign; the exit code. Files stay where they are when it is red."""
    wanted = arguments(argv)
    seed = wanted.seed or time.time_ns() % 1_000_000 + 1
    try:
        faults = named_faults([name for name in wanted.faults.split(",") if name])
        sizes = [int(size) for size in wanted.nodes.split(",")]
    except (DLedgerError, ValueError) as error:
        say(f"chaos: {error}")
        return 2
    if wanted.dir:
        wanted.dir.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="dledger-chaos-", dir=wanted.dir))
    say(
        f"seed {seed}, {wanted.minutes:g} minutes, groups of {wanted.nodes} nodes, {len(faults)} "
        f"kinds of faults"
    )
    say(f"in {path}")
    plan = schedule(seed, faults)
    parts: list[Part] = []
    for count in sizes:
        say(f"\n{count} nodes")
        parts.append(
            run(
                run_part(
                    path / f"{count}-nodes",
                    count,
                    60 * wanted.minutes / len(sizes),
                    plan,
                    seed,
                    say,
                )
            )
        )
    report = as_dict(parts, faults, seed, wanted.minutes)
    for line in lines(report):
        say(line)
    if wanted.json:
        save(report, wanted.json)
    if report["ok"]:
        shutil.rmtree(path)
    else:
        say(f"histories, logs and stores are left in {path}")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
