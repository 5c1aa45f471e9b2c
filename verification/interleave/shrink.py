"""A failing schedule with as few switches of threads as it takes."""

from __future__ import annotations

from typing import Final

from verification.interleave.scenarios import Scenario
from verification.interleave.schedule import Bench, ScheduleOutcome
from verification.interleave.scheduler import NEVER
from verification.interleave.strategies import Replay

MOST_RUNS: Final = 400


def shrunk(bench: Bench, scenario: Scenario, found: ScheduleOutcome) -> ScheduleOutcome:
    """The same kind of problem with fewer decisions, and the steps that lead to it."""
    decisions, crash_at, runs = found.decisions, found.crash_at, 0

    def fails(some: list[tuple[int, int]], end: int) -> bool:
        nonlocal runs
        runs += 1
        return bench.run(scenario, found.seed, Replay(dict(some)), end).kind == found.kind

    if crash_at != NEVER and fails(decisions, NEVER):
        crash_at = NEVER
    size = max(len(decisions) // 2, 1)
    while size and runs < MOST_RUNS:
        at = 0
        while at < len(decisions) and runs < MOST_RUNS:
            fewer = decisions[:at] + decisions[at + size :]
            if fails(fewer, crash_at):
                decisions = fewer
            else:
                at += size
        size //= 2
    return bench.run(scenario, found.seed, Replay(dict(decisions)), crash_at, traced=True)


def story(found: ScheduleOutcome) -> str:
    """The steps of a schedule, those of a thread that go on without a switch as one block."""
    lines = [f"{found.scenario}, seed {found.seed}: {found.problem}"]
    if found.crash_at != NEVER:
        lines.append(f"  the process ends at step {found.crash_at}")
    last = ""
    for step in found.trace:
        if step.thread != last:
            lines.append(f"  {step.thread}")
            last = step.thread
        lines.append(f"    {step.number:>4} {step.what} {step.where}")
    return "\n".join(lines)
