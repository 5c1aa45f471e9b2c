"""All checkers together, and as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.testing.checkers import linearizability
from dledger.testing.checkers.__main__ import main
from dledger.testing.checkers.anomaly import Anomaly
from dledger.testing.checkers.history import save
from dledger.testing.checkers.notation import parse
from dledger.testing.checkers.verdict import check_history

GOOD = "w 0-1 append a b @t/0 -> 0\nw 2-3 append c @t/1 -> ?\nr 4-5 readall 0 @t/0 -> a b"
BAD = "w 0-1 append a @t/0 -> 0\nw 2-3 append c @t/1 -> 0\nr 4-5 end @t/1 -> 0"


def test_verdict_over_a_good_history_tells_its_volume() -> None:
    verdict = check_history(parse(GOOD))
    assert verdict.as_dict() == {
        "findings": [],
        "operations": 3,
        "unknown": 1,
        "partitions": 2,
        "acknowledged": 2,
        "read": 2,
        "too_hard": [],
    }


def test_verdict_over_a_bad_partition_has_the_findings_of_both_checkers() -> None:
    found = [finding.anomaly for finding in check_history(parse(BAD)).findings]
    assert Anomaly.LOST in found
    assert Anomaly.NOT_LINEARIZABLE in found


def test_verdict_over_a_partition_that_is_too_hard_to_search_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linearizability, "MAX_CONFIGURATIONS", 1)
    history = parse("w 0- append a @t/1 -> ?\nv 0- append b @t/1 -> ?\nr 1-2 end @t/1 -> 2")
    assert check_history(history).too_hard == ["t/1"]


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1)])
def test_command_prints_the_verdict_and_exits_by_it(text: str, code: int, tmp_path: Path) -> None:
    save(tmp_path / "h", parse(text))
    result = CliRunner().invoke(main, [str(tmp_path / "h"), "--json"])
    assert result.exit_code == code
    assert json.loads(result.output)["operations"] == 3
    plain = CliRunner().invoke(main, [str(tmp_path / "h")])
    assert plain.output.startswith("3 calls, 2 values acknowledged")
