"""Campaigns with real processes: a short one is green, and one whose clients were lied to is
red."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.net import run
from dledger.testing.checkers.history import Operation, OperationKind
from verification.chaos.__main__ import main
from verification.chaos.run import run_part
from verification.chaos.schedule import named_faults, schedule

pytestmark = pytest.mark.cluster
SHORT = "kill_leader,isolate_leader,resets,sync_error,clock_jump"


def test_a_short_campaign_is_green_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    words = f"--minutes 0.3 --nodes 3 --seed 5 --faults {SHORT}"
    code = main(f"{words} --dir {tmp_path}/runs --json {report}".split())
    said = capsys.readouterr().out
    assert code == 0, said
    found = json.loads(report.read_text())
    assert found["ok"]
    assert found["campaign"] == "chaos"
    tried = {name for name, fault in found["kinds"].items() if fault["runs"]}
    assert tried
    assert all(found["faults"][name] for name in tried)
    part = found["parts"][0]
    assert part["history"]["acknowledged"] > 100
    assert part["compared_bytes"] > 10_000
    assert part["gaps"][0]["cause"]
    assert "green" in said.splitlines()[-1]
    assert not list((tmp_path / "runs").iterdir()), "a green run leaves nothing behind"


def lose_one(history: list[Operation]) -> list[Operation]:
    """As if the last acknowledged record of a partition were not there."""
    last = max(
        (op for op in history if op.kind is OperationKind.READ and op.values),
        key=lambda op: op.returned_ns,
    )
    lost = last.values[-1]
    return [
        replace(op, values=op.values[:-1])
        if op.kind is OperationKind.READ and op.values[-1:] == (lost,)
        else op
        for op in history
    ]


def test_a_campaign_that_lost_a_record_is_red_and_keeps_what_it_saw(tmp_path: Path) -> None:
    said: list[str] = []
    plan = schedule(1, named_faults(["hand_over"]))
    part = run(run_part(tmp_path / "run", 3, 2.0, plan, 1, said.append, lose_one))
    assert any("lost write" in problem for problem in part.problems), part.problems
    assert (tmp_path / "run" / "history.jsonl").stat().st_size > 0
    assert (tmp_path / "run" / "n1" / "log").exists()


def test_a_campaign_with_a_fault_that_is_none_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--faults", "kil"]) == 2
    assert "did you mean 'kill'" in capsys.readouterr().out
