"""``python -m dledger.testing.mutants``: is every planted bug caught, and how soon?"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dledger.testing.mutants.hunt import Hunt
from dledger.testing.mutants.registry import MUTANTS, named
from dledger.testing.result import result, save


def hunts(names: Sequence[str], seeds: int, jobs: int) -> Iterator[Hunt]:
    """Each in a process of its own, in the order of the names."""

    def one(name: str) -> Hunt:
        command = [sys.executable, "-m", "dledger.testing.mutants.hunt", name, "--seeds", str(seeds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the hunt for {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return Hunt(**json.loads(done.stdout.splitlines()[-1]))

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, names)


def as_dict(found: Sequence[Hunt], seeds: int) -> dict[str, Any]:
    """See `dledger.testing.result`."""
    caught = [hunt for hunt in found if hunt.caught_by]
    rows = [["planted bug", "stands for", "what it does", "seeds", "seconds", "caught by"]]
    for hunt in found:
        mutant = named(hunt.name)
        rows.append([hunt.name, mutant.stands_for, mutant.why, str(hunt.seeds), str(hunt.seconds),
                     hunt.caught_by or "**nothing**"])  # fmt: skip
    return result(
        "mutants",
        command=f"python -m dledger.testing.mutants --seeds {seeds}",
        ok=len(caught) == len(found),
        figures={
            "planted bugs": len(found),
            "caught": len(caught),
            "seeds at the median": statistics.median(hunt.seeds for hunt in caught) if caught else 0,
        },
        faults={},
        problems=[f"{hunt.name} was not caught in {hunt.seeds} seeds" for hunt in found if not hunt.caught_by],
        table=rows,
    )


def main() -> int:
    """0 when all are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=500, help="for each, at most (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the result there")
    asked = parser.parse_args()
    names = [mutant.name for mutant in MUTANTS]
    if asked.only:
        unknown = sorted(set(asked.only.split(",")) - set(names))
        if unknown:
            parser.error(f"there is no planted bug {unknown[0]!r}; there are {', '.join(names)}")
        names = asked.only.split(",")
    found: list[Hunt] = []
    for hunt in hunts(names, asked.seeds, asked.jobs):
        found.append(hunt)
        what = f"{hunt.caught_by}: {hunt.text}" if hunt.caught_by else "NOT CAUGHT"
        sys.stdout.write(f"{hunt.name:<28} {hunt.seeds:>4} seeds {hunt.seconds:>7.1f} s  {what[:110]}\n")
        sys.stdout.flush()
    summary = as_dict(found, asked.seeds)
    figures = summary["figures"]
    sys.stdout.write(f"{figures['caught']} of {figures['planted bugs']} caught, median "
                     f"{figures['seeds at the median']:g} seeds\n")  # fmt: skip
    if asked.json is not None:
        save(summary, asked.json)
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
