"""Schedules of all scenarios in turn, each from its seed, until one of them is red or all have been
run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from verification.interleave.broker import BROKER_SCENARIOS
from verification.interleave.node import NODE_SCENARIOS
from verification.interleave.scenarios import SCENARIOS, Scenario
from verification.interleave.schedule import Bench, ScheduleOutcome, bench
from verification.interleave.shrink import shrunk, story
from verification.interleave.starts import PROGRAM_SCENARIOS
from verification.interleave.tiny import TINY, every_schedule
from verification.result import result

STORE: Final = (*SCENARIOS, *NODE_SCENARIOS, *TINY)
ALL: Final = (*STORE, *BROKER_SCENARIOS, *PROGRAM_SCENARIOS)
SHOWN: Final = 3
"""Red schedules that are told step by step."""
MODULE: Final = "python -m verification.interleave"


@dataclass(slots=True)
class Tally:
    """The counts of one scenario's schedules."""

    schedules: int = 0
    steps: int = 0
    ended: int = 0
    """By a crash before all threads had ended."""
    red: int = 0
    seconds: float = 0.0

    def count(self, found: ScheduleOutcome) -> None:
        self.schedules += 1
        self.steps += found.steps
        self.ended += found.kind == "crashed"
        self.red += bool(found.problem)


def named(name: str) -> Scenario:
    """The scenario of that name, or whose name begins so.

    Raises:
        KeyError: there is none, or more than one.
    """
    found = [scenario for scenario in ALL if scenario.name == name]
    found = found or [scenario for scenario in ALL if scenario.name.startswith(name)]
    if len(found) != 1:
        raise KeyError(name)
    return found[0]


def schedules(
    runner: Bench, scenarios: Sequence[Scenario], count: int, seed: int = 1
) -> Iterator[tuple[Scenario, ScheduleOutcome]]:
    """``count`` schedules, one of each scenario with the first seed, then one of each with the next
    one."""
    for number in range(count):
        scenario = scenarios[number % len(scenarios)]
        yield scenario, runner.run_seed(scenario, seed + number // len(scenarios))


def campaign(
    count: int, seed: int, out: TextIO, scenarios: Sequence[Scenario] = ALL
) -> dict[str, Any]:
    """Run so many schedules; red ones are told, the first few step by step. See
    `verification.result`."""
    tallies = {scenario.name: Tally() for scenario in scenarios}
    findings: list[str] = []
    begun = last = time.monotonic()
    with bench() as runner:
        for scenario, found in schedules(runner, scenarios, count, seed):
            tally = tallies[scenario.name]
            tally.count(found)
            now = time.monotonic()
            tally.seconds, last = tally.seconds + now - last, now
            if found.problem:
                findings.append(f"{scenario.name}, seed {found.seed}: {found.problem}")
                told = (
                    story(shrunk(runner, scenario, found))
                    if len(findings) <= SHOWN
                    else findings[-1]
                )
                out.write(told + "\n")
    for name, tally in tallies.items():
        out.write(f"{name}: {tally.schedules} schedules, {tally.red} red\n")
    return _summary(tallies, findings, time.monotonic() - begun, count, seed, out)


def _summary(
    tallies: dict[str, Tally],
    findings: list[str],
    seconds: float,
    count: int,
    seed: int,
    out: TextIO,
) -> dict[str, Any]:
    steps, ended = (
        sum(getattr(tally, name) for tally in tallies.values()) for name in ("steps", "ended")
    )
    out.write(
        f"{count} schedules from seed {seed} on, {steps} switching points, {ended} ended by a "
        f"crash in between, {seconds:.0f} s: {len(findings)} red\n"
    )
    rows = [
        [name, tally.schedules, tally.steps, tally.ended, round(tally.seconds, 1), tally.red]
        for name, tally in tallies.items()
    ]
    return result(
        "schedules",
        command=f"{MODULE} --schedules {count} --seed {seed}",
        ok=bool(count) and not findings,
        figures={
            "schedules": count,
            "switching points": steps,
            "red": len(findings),
            "seconds": round(seconds, 1),
        },
        faults={
            "crash between two steps": ended,
            "crash at the end": count - ended - len(findings),
        },
        problems=findings[:20],
        table=[
            [
                "threads",
                "schedules",
                "switching points",
                "crashed between two steps",
                "seconds",
                "red",
            ],
            *rows,
        ],
    )


def first_red(count: int, seed: int = 1, module: str = "") -> tuple[int, ScheduleOutcome | None]:
    """How many schedules it takes until one is red, and that one; None: none of so many is.
    ``module``: the module to test; scenarios that never come there are left out."""
    scenarios = {"rocketmq": BROKER_SCENARIOS, "embedded": PROGRAM_SCENARIOS}.get(
        module.partition(".")[0], STORE
    )
    with bench() as runner:
        for number, (_, found) in enumerate(schedules(runner, scenarios, count, seed), 1):
            if found.problem:
                return number, found
    return count, None


def exhaust(preemptions: int, out: TextIO) -> bool:
    """Every schedule of the tiny scenarios; False when one is red."""
    green = True
    with bench() as runner:
        for scenario in TINY:
            red = number = 0
            for found in every_schedule(runner, scenario, preemptions):
                number += 1
                if found.problem and not red:
                    out.write(story(shrunk(runner, scenario, found)) + "\n")
                red += bool(found.problem)
            out.write(
                f"{scenario.name}: all {number} schedules with up to {preemptions} preemptions, "
                f"{red} red\n"
            )
            green = green and not red
    return green
