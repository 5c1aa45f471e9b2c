"""The simulator: the same seed is the same run, faults bite, and a share of seeds is green."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from verification.invariants.broken import Broken
from verification.sim import SeedOutcome, run_seed
from verification.sim.__main__ import main
from verification.sim.filling import REST
from verification.sim.rng import Rng
from verification.sim.run import SAFETY_MS
from verification.sim.scheduler import Scheduler
from verification.sim.settings import FAULTS, UNPROMISED, draw_plan, in_time

SEEDS = range(1, 17)
SHORT_MS = 15_000
SELDOM = {
    "EIO on read",
    "bit rot",
    "misdirected write",
    "empty disk",
    "deposed leader",
    "machine back",
    "wrong list of members",
    "two groups of one name",
}
"""Kinds that so few short seeds need not show."""


@pytest.fixture(scope="module")
def outcomes() -> list[SeedOutcome]:
    return [run_seed(seed, safety_ms=SHORT_MS) for seed in SEEDS]


def test_seeds_are_green(outcomes: list[SeedOutcome]) -> None:
    assert [str(outcome.violation) for outcome in outcomes if outcome.violation] == []


def test_seeds_do_something(outcomes: list[SeedOutcome]) -> None:
    """A simulation in which nothing happens finds nothing."""
    assert sum(outcome.acknowledged for outcome in outcomes) > 500
    assert sum(outcome.simulated_ms for outcome in outcomes) > len(outcomes) * SHORT_MS
    assert max(outcome.elections for outcome in outcomes) > 5


@pytest.mark.parametrize(
    "kind", sorted({*FAULTS, "unsynced write lost", "kill of the last leader", REST} - SELDOM)
)
def test_fault_bites(outcomes: list[SeedOutcome], kind: str) -> None:
    assert any(outcome.bites.get(kind) for outcome in outcomes)


def test_a_seed_run_twice_leaves_the_same_trace(outcomes: list[SeedOutcome]) -> None:
    for outcome in outcomes[:3]:
        assert run_seed(outcome.seed, safety_ms=SHORT_MS) == outcome


def test_another_hash_seed_changes_no_trace(outcomes: list[SeedOutcome]) -> None:
    script = (
        "from verification.sim import run_seed\n"
        f"print([run_seed(seed, safety_ms={SHORT_MS}).trace_hash for seed in (2, 5)])"
    )
    for number in ("0", "1234"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str([outcomes[1].trace_hash, outcomes[4].trace_hash])


def test_seeds_differ(outcomes: list[SeedOutcome]) -> None:
    assert len({outcome.trace_hash for outcome in outcomes}) == len(outcomes)


def test_a_kind_of_fault_can_be_left_out() -> None:
    for kind in FAULTS[:4]:
        outcome = run_seed(3, safety_ms=5000, without=(kind,))
        assert kind not in outcome.config["faults"]
        assert not outcome.bites.get(kind)


def test_old_records_can_be_kept() -> None:
    drawn, kept = (
        run_seed(8, safety_ms=2000, retention=wanted).config["node"] for wanted in (True, False)
    )
    assert drawn["retention_ms"] or drawn["retention_bytes"], (
        "another seed has to be taken: this one keeps all anyway"
    )
    assert (kept["retention_ms"], kept["retention_bytes"]) == (0, 0)


def test_a_kind_that_no_promise_covers_comes_only_when_asked(outcomes: list[SeedOutcome]) -> None:
    assert not any({*UNPROMISED} & {*outcome.config["faults"]} for outcome in outcomes)
    for kind in UNPROMISED:
        assert kind in run_seed(3, safety_ms=5000, also=(kind,)).config["faults"]


def test_two_thousand_seeds_are_twenty_hours_and_busy_ones_are_shorter() -> None:
    """Beside the phases at the end, which take more than five seconds."""
    plans = [
        draw_plan(rng, rng.between(*SAFETY_MS))
        for rng in (Rng(seed).fork("plan") for seed in range(1, 2001))
    ]
    drawn, lengths = [plan.safety_ms for plan in plans], [in_time(plan) for plan in plans]
    assert sum(lengths) + 2000 * 5500 > 20 * 3_600_000
    assert all(length <= most for length, most in zip(lengths, drawn, strict=True))
    shares = {
        (p.nodes, p.clients, p.think_ms): length / p.safety_ms
        for p, length in zip(plans, lengths, strict=True)
    }
    assert shares[5, 4, 300] == pytest.approx(1 / 3, abs=0.001)
    assert shares[3, 2, 1500] == pytest.approx(1 / 1.12, abs=0.001)
    assert shares[1, 1, 6000] == 1
    assert run_seed(3, safety_ms=5000).config["safety_ms"] == 5000


def test_the_command_needs_no_option() -> None:
    done = CliRunner().invoke(main, ["--seeds", "1", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "1 seeds" in done.output


def test_timer_reset_for_the_same_moment_is_reported_and_does_not_hang() -> None:
    """The simulator stops the seed with an error."""
    scheduler = Scheduler()

    def again() -> None:
        scheduler.after(0, again)

    scheduler.after(5, again)
    with pytest.raises(Broken, match="runs in circles"):
        scheduler.run(10)
