"""One planted bug against its catcher, in a process of its own: seeds until one of them is red, or
tests.

``python -m verification.mutants.hunt NAME --seeds 500`` prints one line of JSON. The name ``-``
plants no bug: a seed that is red then proves nothing about a planted bug.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import signal
import sys
import time
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any, Final

from verification.mutants.plant import (
    CONSUMERS,
    CRASH_STATES,
    ROCKETMQ,
    SCHEDULES,
    SIMULATED,
    SIMULATOR,
    plant,
)
from verification.mutants.registry import named

SEED_S: Final = 60
"""A seed that takes more of the processor's time than this runs in circles, which is a find too."""
STATES: Final = 4000
"""Crash states over all scripts: a share of what their own campaign does."""
MOST_SCHEDULES: Final = 1000
"""Over all scenarios of the interleaving scheduler."""
NOTHING: Final = "-"
"""In place of a name, behind `ROCKETMQ` or alone."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How it went. ``caught_by`` is an invariant or the name of an error; empty when no seed was
    red."""

    name: str
    seeds: int
    seconds: float
    caught_by: str
    text: str


class _Endless(BaseException):
    """The seed took too long. No ``except`` of the program may keep it."""


def _too_long(*_: object) -> None:
    raise _Endless(f"no end within {SEED_S} s")


def hunt(name: str, first: int, seeds: int) -> Hunt:
    """Plant the bug and look for it, from the first seed on."""
    begun = time.monotonic()

    def ended(seeds: int, caught_by: str, text: str) -> Hunt:
        return Hunt(name, seeds, round(time.monotonic() - begun, 1), caught_by, text[:400])

    catcher = name.removesuffix(NOTHING) or SIMULATOR
    if not name.endswith(NOTHING):
        plant(named(name))
        catcher = named(name).catcher
    if catcher == SCHEDULES:
        return ended(*_schedules("" if name.endswith(NOTHING) else named(name).module))
    if catcher == CRASH_STATES:
        return ended(0, *_crash(named(name).module))
    if catcher not in SIMULATED:
        return ended(0, *_test(catcher))
    signal.signal(signal.SIGVTALRM, _too_long)
    gc.disable()
    for done, seed in enumerate(range(first, first + seeds), 1):
        signal.setitimer(signal.ITIMER_VIRTUAL, SEED_S, 1)
        try:
            caught, text = _run(seed, catcher)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.collect()
        if caught:
            return ended(done, caught, f"seed {seed}: {text}")
    return ended(seeds, "", "")


def _run(seed: int, catcher: str) -> tuple[str, str]:
    """The result of a seed of one kind: ("", "") when all invariants held."""
    from verification.sim.run import run_seed

    commit_log = "rocketmq" if catcher == ROCKETMQ else ""
    consumers = True if catcher == CONSUMERS else None
    try:
        outcome = run_seed(seed, commit_log=commit_log, consumers=consumers)
    except (Exception, _Endless) as error:
        return type(error).__name__, str(error)
    violation = outcome.violation
    return ("", "") if violation is None else (violation.invariant, violation.text)


def _schedules(module: str) -> tuple[int, str, str]:
    """Schedules of threads that share a store, all scenarios in turn, until one is red."""
    from verification.interleave.campaign import first_red

    number, found = first_red(MOST_SCHEDULES, module=module)
    if found is None:
        return number, "", ""
    return number, SCHEDULES, f"{found.scenario}, seed {found.seed}: {found.problem}"


def _crash(module: str) -> tuple[str, str]:
    """The store's scripts, crashed, until one of them loses something; those about the module's own
    record first."""
    from verification.disk_states.campaign import wanted_of
    from verification.disk_states.crash import Sweep
    from verification.disk_states.scenarios import SCENARIOS

    for scenario in sorted(
        SCENARIOS, key=lambda each: not each.record or not module.endswith(each.record)
    ):
        found = Sweep(scenario, wanted_of(scenario, STATES), findings=1).run().findings
        if found:
            return CRASH_STATES, found[0]
    return "", ""


class _First:
    """A plugin for pytest that keeps the first test that fails."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.rpartition("::")[2]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} cannot be loaded"


def _test(paths: str) -> tuple[str, str]:
    """Tests of the checkout, in which this has to run.

    Raises:
        RuntimeError: they did not run at all.
    """
    import pytest

    first, out = _First(), sys.stdout
    sys.stdout = io.StringIO()
    try:
        # not in the directory that all runs of a user share, and clear of one another's remains
        with TemporaryDirectory(prefix="hunt-") as scratch:
            how = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={scratch}/t"]
            code = pytest.main([*how, *paths.split()], plugins=[first])
        said = sys.stdout.getvalue()
    finally:
        sys.stdout = out
    if code == 0:
        return "", ""
    if not first.failed:
        raise RuntimeError(f"the tests {paths} did not run: {said[-400:]}")
    return re.sub(r"\[.*", "", first.failed), ""


def main() -> None:
    os.environ["DLEDGER_COMPILED"] = "no"  # bugs are planted in Python; see verification.twins
    assert "dledger.compiled" not in sys.modules
    """One line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=500)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(asdict(hunt(asked.name, asked.first, asked.seeds))) + "\n")


if __name__ == "__main__":
    main()
