"""Runs of all scripts, over several processes, and what is written down of them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from dledger.testing.disk_states.crash import Sweep
from dledger.testing.disk_states.scenarios import SCENARIOS
from dledger.testing.result import commit

SHOWN: Final = 5
"""Findings printed for each part; all that were kept are in the JSON."""

Result = dict[str, Any]
Task = TypeVar("Task")
Done = TypeVar("Done")


def crash_campaign(states: int, jobs: int, out: TextIO) -> Result:
    """Crash every script until about ``states`` distinct states were started from."""
    started = time.monotonic()
    share = -(-states // len(SCENARIOS))
    parts: dict[str, Result] = {}
    seen: set[int] = set()
    for name, (part, digests) in _spread(_crash_part, [(number, share) for number in range(len(SCENARIOS))], jobs):
        parts[name] = part
        seen |= digests
        out.write(
            f"{name}: {part['distinct_states']} states at {part['points']} points of {part['operations']} operations "
            f"({part['built_states']} built of {part['legal_states']} legal), {part['lost']} lost something, "
            f"{part['not_started']} did not start\n"
        )
        _show(part["findings"], out)
    result = _result("crash", started) | {
        "states": len(seen),
        "legal_states": sum(part["legal_states"] for part in parts.values()),
        "lost": sum(part["lost"] for part in parts.values()),
        "not_started": sum(part["not_started"] for part in parts.values()),
        "scenarios": parts,
    }
    result["ok"] = bool(seen) and result["lost"] == result["not_started"] == 0
    out.write(
        f"crash points: {result['states']} distinct states started from in {result['seconds']} s, of "
        f"{result['legal_states']} legal ones; {result['lost']} lost something, {result['not_started']} did not start "
        "by themselves\n"
    )
    return result


def _crash_part(task: tuple[int, int]) -> tuple[str, tuple[Result, set[int]]]:
    number, share = task
    tally = Sweep(SCENARIOS[number], share).run()
    return SCENARIOS[number].name, (tally.as_dict(), tally.seen)


def _spread(work: Callable[[Task], Done], tasks: list[Task], jobs: int) -> Iterable[Done]:
    """The results in the order of the tasks."""
    if jobs <= 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, tasks)


def _show(findings: list[str], out: TextIO) -> None:
    for finding in findings[:SHOWN]:
        out.write(f"  {finding}\n")


def _result(what: str, started: float) -> Result:
    """What every result says of itself."""
    return {
        "what": what,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - started, 1),
    }


def write_result(result: Result, path: Path) -> None:
    """Put it down as JSON."""
    path.write_text(json.dumps(result, indent=1) + "\n")
