"""Crash states of stores that take over another node's state: all of them, and that rules taken out
are seen."""

from __future__ import annotations

from inspect import unwrap
from operator import attrgetter
from types import FunctionType

import pytest

from dledger.storage.recovery import snapshot_install as install
from dledger.storage.recovery.snapshot_install import INSTALL_FILE
from verification.disk_states.crash import Sweep, record
from verification.disk_states.failures import FailureSweep, FailureTally
from verification.disk_states.model import MAX_SUBSETS_OF, Model
from verification.disk_states.scenarios import SCENARIOS, Scenario
from verification.mutants.plant import mutated
from verification.mutants.registry import named

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
TAKE_OVERS = [scenario for scenario in SCENARIOS if scenario.record == INSTALL_FILE]
ALL = 1 << 30


@pytest.mark.parametrize("scenario", TAKE_OVERS, ids=lambda scenario: scenario.name)
def test_B22_every_crash_state_of_a_take_over_has_the_old_or_new_state(
    scenario: Scenario,
):
    """Also of the starts behind a kill between a write to its record and the sync of it."""
    model = Model(scenario.grain)
    for op in record(scenario).ops:
        model.apply(op)
        assert len(model.pending) <= MAX_SUBSETS_OF, "so many that not every subset is looked at"
    tally = Sweep(scenario, ALL).run_in_full()
    assert tally.findings == []
    assert len(tally.recordings) > 7
    assert [recording.left_out for recording in tally.recordings] == [0] * len(tally.recordings)


def planted(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give the function of the running program the code that it has with that planted bug."""
    mutant = named(name)
    other: dict = {"__name__": install.__name__}
    exec(compile(mutated(mutant), mutant.name, "exec"), other)
    top, _, rest = mutant.function.partition(".")
    find = attrgetter(rest) if rest else lambda found: found
    ours, theirs = unwrap(find(getattr(install, top))), unwrap(find(other[top]))
    assert isinstance(ours, FunctionType)
    monkeypatch.setattr(ours, "__code__", theirs.__code__)


@pytest.mark.parametrize("name", ["install-record-name-unsynced", "install-mark-too-late"])
def test_rule_of_a_take_over_that_is_taken_out_is_seen(name: str, monkeypatch: pytest.MonkeyPatch):
    """Those that need a log that was replaced, or a start behind a kill; ``make mutants`` has the
    others found."""
    planted(monkeypatch, name)
    assert Sweep(BY_NAME["log replaced"], ALL, findings=1).run_in_full().findings


def test_no_failing_operation_of_a_take_over_costs_what_was_acknowledged():
    tally = FailureTally()
    FailureSweep(BY_NAME["log replaced"], tally, every=13).run()
    assert tally.findings == []
    assert tally.refused > 0, "a full disk costs a fetched state, and not the node"
    assert tally.stopped > 50


def test_error_of_the_disk_that_is_called_a_full_disk_is_seen(monkeypatch: pytest.MonkeyPatch):
    planted(monkeypatch, "install-error-is-no-room")
    tally = FailureTally()
    FailureSweep(BY_NAME["log replaced"], tally, every=7, findings=1).run()
    assert "called full" in tally.findings[0]
