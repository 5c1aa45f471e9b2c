"""What a request costs a leader, held against a small program of the same run: processor times, so
that it does not matter how busy the machine is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.request_cost import most, ratio, ratios
from dledger.compiled import native

SLOW = """
from dledger.storage import file_store

check = file_store.check_append

def slow_check(end, entries, *rest):
    for _ in range(len(entries) * TURNS):
        pass
    check(end, entries, *rest)

file_store.check_append = slow_check
"""
TURNS = 1800 if native is None else 1200
"""Of an empty loop for each entry. They cost two or three times what a leader's request does."""


@pytest.mark.cluster
def test_request_costs_leader_few_times_what_small_program_takes(tmp_path: Path) -> None:
    found = ratios(tmp_path)
    assert ratio(found) <= most(), found


@pytest.mark.cluster
def test_data_path_of_three_times_the_cost_is_over_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(SLOW.replace("TURNS", str(TURNS)))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(hook), before))))
    found = ratios(tmp_path)
    assert ratio(found) > most(), found
