"""``python -m verification.sim``: many seeds, or one with its story."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click

from verification.result import result, save
from verification.sim.outcome import SeedOutcome
from verification.sim.run import run_seed
from verification.sim.settings import FAULTS, ROCKETMQ, TOPICS, UNPROMISED
from verification.sim.shrink import shrink

EXPECTED_SEEDS = 300
"""From so many seeds on, a kind of fault that never bit is an error: its injector is broken."""


def prepare() -> None:
    """Prepare a process that runs seeds: objects from before the first seed are no garbage, so the
    collector skips them."""
    gc.collect()
    gc.freeze()


def one(seed: int, **wanted: Any) -> SeedOutcome:
    """A seed, and its garbage collected in one go: reference counts free nearly everything
    before."""
    gc.disable()
    try:
        return run_seed(seed, **wanted)
    finally:
        gc.collect()


def outcomes(seeds: range, jobs: int, **wanted: Any) -> Iterator[SeedOutcome]:
    """In the order of the seeds; ``wanted`` is for `run_seed`."""
    each = partial(one, **wanted)
    if jobs == 1:
        prepare()
        yield from map(each, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=prepare) as pool:
        try:
            yield from pool.map(each, seeds, chunksize=4)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Total:
    """The sums of all seeds."""

    def __init__(self) -> None:
        self.seeds = self.simulated_ms = self.events = self.operations = 0
        self.acknowledged = self.records = self.elections = 0
        self.injected: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()

    def add(self, outcome: SeedOutcome) -> None:
        self.seeds += 1
        self.simulated_ms += outcome.simulated_ms
        self.events += outcome.events
        self.operations += outcome.operations
        self.acknowledged += outcome.acknowledged
        self.records += outcome.records
        self.elections += outcome.elections
        self.injected.update(outcome.injected)
        self.bites.update(outcome.bites)

    def never_bit(self) -> list[str]:
        """Kinds that were ordered and changed nothing."""
        return [kind for kind in self.injected if not self.bites[kind]]

    def lines(self, seconds: float) -> list[str]:
        rate = self.seeds / seconds if seconds else 0.0
        bites = "\n".join(f"  {kind:<28} {self.bites[kind]:>10}" for kind in sorted(self.bites))
        return [
            f"{self.seeds} seeds, {self.simulated_ms / 3_600_000:.2f} simulated hours, "
            f"{self.events} events in {seconds:.0f} s ({rate:.2f} seeds/s)",
            f"{self.operations} operations of clients, {self.acknowledged} writes of "
            f"{self.records} records acknowledged, {self.elections} terms",
            f"faults that bit:\n{bites}",
        ]


@click.command()
@click.option("--seeds", default=100, show_default=True, help="How many seeds.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Only this one, with its story.")
@click.option("--jobs", default=2, show_default=True, help="Processes that work at the same time.")
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(FAULTS),
    help="A kind of fault that must not happen.",
)
@click.option(
    "--also",
    multiple=True,
    type=click.Choice(UNPROMISED),
    help="A kind that comes only when asked.",
)
@click.option(
    "--commit-log",
    type=click.Choice([TOPICS, ROCKETMQ]),
    help="What the groups keep; drawn by each seed by default.",
)
@click.option(
    "--twice", is_flag=True, help="Run every seed twice and compare the hashes of the traces."
)
@click.option(
    "--shrink",
    "shrinking",
    is_flag=True,
    help="Look for the least faults with which a seed still fails.",
)
@click.option(
    "--json",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result there.",
)
def main(
    seeds: int,
    first: int,
    seed: int | None,
    jobs: int,
    without: tuple[str, ...],
    also: tuple[str, ...],
    twice: bool,
    shrinking: bool,
    path: Path | None,
    commit_log: str | None,
) -> None:
    """Run whole groups with their clients in virtual time, under every kind of fault.

    Ends with an error at the first broken invariant, and names its seed.
    """
    wanted = {"also": also, "commit_log": commit_log or ""}
    if seed is not None:
        sys.exit(show(seed, without, shrinking, **wanted))
    begun, total, failed = time.monotonic(), Total(), None
    run = partial(outcomes, range(first, first + seeds), jobs, without=without, **wanted)
    again = run() if twice else None
    for outcome in run():
        total.add(outcome)
        if again is not None and next(again).trace_hash != outcome.trace_hash:
            click.echo(f"seed {outcome.seed}: another trace the second time")
            failed = outcome
            break
        if outcome.violation is not None:
            failed = outcome
            break
        if total.seeds % 100 == 0:
            click.echo(total.lines(time.monotonic() - begun)[0], err=True)
    seconds = time.monotonic() - begun
    click.echo("\n".join(total.lines(seconds)))
    missed = total.never_bit() if seeds >= EXPECTED_SEEDS and failed is None else []
    if path is not None:
        save(as_dict(total, seconds, first, failed, missed), path)
    if failed is not None:
        click.echo(
            f"seed {failed.seed} FAILED: {failed.violation}\n"
            f"  see it: python -m verification.sim --seed {failed.seed}"
        )
        sys.exit(1)
    if missed:
        click.echo(f"faults that never bit: {', '.join(missed)}")
        sys.exit(1)


def as_dict(
    total: Total, seconds: float, first: int, failed: SeedOutcome | None, missed: list[str]
) -> dict[str, Any]:
    """For the page of evidence; see `verification.result`."""
    problems = [f"{kind} never bit" for kind in missed]
    if failed is not None:
        problems.append(f"seed {failed.seed}: {failed.violation}")
    return result(
        "sim",
        command=f"python -m verification.sim --first {first} --seeds {total.seeds}",
        ok=not problems,
        figures={
            "seeds": total.seeds,
            "simulated hours": round(total.simulated_ms / 3_600_000, 2),
            "events": total.events,
            "client operations": total.operations,
            "acknowledged records": total.records,
            "terms": total.elections,
            "seconds": round(seconds),
        },
        faults={kind: total.bites[kind] for kind in sorted(total.bites)},
        problems=problems,
        injected=total.injected,
        failed_seed=None if failed is None else failed.seed,
    )


def show(seed: int, without: tuple[str, ...], shrinking: bool, **wanted: Any) -> int:
    """One seed with all that it says; 1 when it fails."""
    if shrinking:
        outcome = shrink(seed, without, click.echo, **wanted)
    else:
        outcome = run_seed(seed, without=without, verbose=True, story_lines=200, **wanted)
    click.echo(outcome.story)
    click.echo(f"settings: {outcome.config}")
    click.echo(f"bites: {outcome.bites}")
    click.echo(
        f"trace {outcome.trace_hash}, {outcome.events} events, {outcome.simulated_ms} simulated ms"
    )
    if outcome.violation is not None:
        click.echo(f"seed {seed} FAILED: {outcome.violation}")
        return 1
    return 0


if __name__ == "__main__":
    main()
