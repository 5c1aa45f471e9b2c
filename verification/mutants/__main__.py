"""``python -m verification.mutants``: is every planted bug caught, and how soon?"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from verification.mutants.hunt import NOTHING, Hunt
from verification.mutants.plant import CRASH_STATES, ROCKETMQ, SCHEDULES, SIMULATED
from verification.mutants.registry import MUTANTS, named
from verification.result import result, save

CATCHERS: Final = ("the simulator", "crash states", "schedules", "a test named for it")
"""A test that is named for a bug proves less than the others: its author knew where to look."""


def hunt_in_process(name: str, first: int, seeds: int) -> Hunt:
    """A hunt in a process of its own."""
    command = [sys.executable, "-m", "verification.mutants.hunt", name]
    command += f"--first {first} --seeds {seeds}".split()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"the hunt for {name} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return Hunt(**json.loads(done.stdout.splitlines()[-1]))


@cache
def red_anyway(catcher: str, seed: int) -> bool:
    """Whether a seed is red with no bug planted: then it is a find, but not of the planted one."""
    return bool(
        hunt_in_process(f"{ROCKETMQ if catcher == ROCKETMQ else ''}{NOTHING}", seed, 1).caught_by
    )


def hunt_for(
    name: str,
    seeds: int,
    search: Callable[[str, int, int], Hunt] = hunt_in_process,
    is_red: Callable[[int], bool] | None = None,
) -> Hunt:
    """Look for a planted bug until a seed is red because of it; seeds that are red anyway do not
    count."""
    is_red = is_red or partial(red_anyway, named(name).catcher)
    seconds, done = 0.0, 0
    while True:
        found = search(name, done + 1, seeds - done)
        seconds, done = round(seconds + found.seconds, 1), done + found.seeds
        found = replace(found, seeds=done, seconds=seconds)
        if not found.caught_by or named(name).catcher not in SIMULATED or not is_red(done):
            return found
        if done >= seeds:
            return replace(found, caught_by="", text="")


def hunts(names: Sequence[str], seeds: int, jobs: int) -> Iterator[Hunt]:
    """All of them, several at a time, in the order of the names."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda name: hunt_for(name, seeds), names)


def catcher_of(name: str) -> str:
    """The catcher that has to find a planted bug: one of `CATCHERS`."""
    catcher = named(name).catcher
    if catcher in SIMULATED:
        return CATCHERS[0]
    return {CRASH_STATES: CATCHERS[1], SCHEDULES: CATCHERS[2]}.get(catcher, CATCHERS[3])


def as_dict(found: Sequence[Hunt], seeds: int) -> dict[str, Any]:
    """See `verification.result`."""
    caught = [hunt for hunt in found if hunt.caught_by]
    taken = [hunt.seeds for hunt in caught if named(hunt.name).catcher in SIMULATED]
    by = Counter(catcher_of(hunt.name) for hunt in caught)
    rows = [["planted bug", "stands for", "what it does", "seeds", "seconds", "caught by"]]
    for hunt in found:
        mutant = named(hunt.name)
        seeds_taken = str(hunt.seeds) if mutant.catcher in SIMULATED else mutant.catcher
        found_by = hunt.caught_by or "**nothing**"
        about = [hunt.name, mutant.stands_for, mutant.why]
        rows.append([*about, seeds_taken, str(hunt.seconds), found_by])
    return result(
        "mutants",
        command=f"python -m verification.mutants --seeds {seeds}",
        ok=len(caught) == len(found),
        figures={
            "planted bugs": len(found),
            "caught": len(caught),
            **{f"caught by {whom}": by[whom] for whom in CATCHERS},
            "planted before the tests were seen": sum(
                named(hunt.name).planted_blind for hunt in found
            ),
            "seeds at the median": statistics.median(taken) if taken else 0,
        },
        faults={},
        problems=[
            f"{hunt.name} was not caught by {_whom(hunt)}" for hunt in found if not hunt.caught_by
        ],
        table=rows,
    )


def _whom(hunt: Hunt) -> str:
    catcher = named(hunt.name).catcher
    return f"{hunt.seeds} seeds" if catcher in SIMULATED else catcher


def main() -> int:
    """0 when all are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=500, help="for each, at most (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes at the same time (%(default)s)"
    )
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
        sys.stdout.write(
            f"{hunt.name:<28} {hunt.seeds:>4} seeds {hunt.seconds:>7.1f} s  {what[:110]}\n"
        )
        sys.stdout.flush()
    summary = as_dict(found, asked.seeds)
    figures = summary["figures"]
    whom = ", ".join(f"{figures[f'caught by {one}']} by {one}" for one in CATCHERS)
    sys.stdout.write(
        f"{figures['caught']} of {figures['planted bugs']} caught: {whom}; median "
        f"{figures['seeds at the median']:g} seeds\n"
    )
    if asked.json is not None:
        save(summary, asked.json)
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
