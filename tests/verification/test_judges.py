"""What goes to the second judge is what clients were told; the judge itself is asked by `make
judges`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.testing.checkers.history import OperationOutcome
from dledger.testing.checkers.linearizability import check_linearizable
from dledger.testing.checkers.notation import parse, show
from verification.judges.__main__ import TORN, disagreements, main, refusals, simulated, small
from verification.judges.export import IMPOSSIBLE, exported, lines
from verification.judges.judge import Judgement, judge


def export(text: str) -> list[tuple[object, ...]]:
    """(op, call, return, end, (log, start, values) of each part) of each operation."""
    return [
        (
            one["op"],
            one["call"],
            one["return"],
            one["end"],
            *((part["log"], part["start"], part["values"]) for part in one["parts"]),
        )
        for one in exported("h", parse(text))
    ]


def test_every_kind_of_call_has_its_form() -> None:
    assert export("""
        w 0-3 append a b  -> 0
        w 4-5 append c    -> +
        r 6-7 read 0      -> a b
        r 8-9 readall 1   -> b c
        r 10-11 end       -> 3
        r 12-13 stale end -> 1
        r 14-15 end @u/1  -> 0
    """) == [
        ("write", 0, 3, None, (0, 0, [1, 2])),
        ("write", 4, 5, None, (0, -1, [3])),
        ("observe", 6, 7, None, (0, 0, [1, 2])),
        ("observe", 8, 9, 3, (0, 1, [2, 3])),
        ("observe", 10, 11, 3, (0, 3, [])),
        ("observe", 12, 13, None, (0, 1, [])),
        ("observe", 14, 15, 0, (1, 0, [])),
    ]


def test_open_call_may_happen_at_any_time_and_a_failed_one_is_left_out() -> None:
    assert export("""
        w 0-  append a -> ?
        w 1-5 append b -> ?
        w 2-3 append c -> !
        r 4-6 begin    -> 0
        r 5-  end      -> ?
    """) == [("write", 0, None, None, (0, -1, [1])), ("write", 1, None, None, (0, -1, [2]))]


def test_producer_append_is_split_and_a_transaction_is_one_write() -> None:
    """An append is cut into the parts that may take effect by themselves."""
    assert export("""
        w/p 0-3 append a b           -> 4
        w   1-5 txn q/1#2 c @t/0     -> 7
        w   2-6 txn q/1#2 d @t/1     -> 0
    """) == [
        ("write", 0, 3, None, (0, 4, [1])),
        ("write", 0, 3, None, (0, -1, [2])),
        ("write", 1, 6, None, (0, 7, [3]), (1, 0, [4])),
    ]


def test_a_read_that_left_out_offsets_has_a_value_that_no_log_holds() -> None:
    assert export("r 0-1 read 0 -> a 2:b") == [("observe", 0, 1, None, (0, 0, [IMPOSSIBLE]))]


def test_lines_are_json_and_name_their_history() -> None:
    (line,) = lines("sim 7", parse("w 0-3 append a -> 0"))
    assert json.loads(line)["history"] == "sim 7"


def test_drawn_histories_are_sound_or_mostly_broken_by_our_own_checker() -> None:
    refused = {
        name for name, history in small(200, 1).items() if check_linearizable(history) is not None
    }
    assert all(int(name) % 2 == 0 for name in refused)
    assert 30 < len(refused) < 90


def test_verdicts_that_differ_and_histories_without_an_order_are_problems() -> None:
    histories = {"good": parse("w 0-3 append a -> 0"), "bad": parse("r 0-3 end -> 7")}
    said = {"good": Judgement(True, 1, 0), "bad": Judgement(True, 1, 0)}
    (text,) = disagreements(histories, said)
    assert show(histories["bad"]) in text
    said["bad"] = Judgement(False, 1, 0)
    assert not list(disagreements(histories, said))
    assert list(refusals({**said, "late": Judgement(None, 9, 9)})) == [
        "bad: is not linearizable, 1 operations",
        "1 of 3 were not decided in time: late",
    ]
    many = {str(number): Judgement(True, 1, 0) for number in range(9)}
    assert not list(refusals({**many, "late": Judgement(None, 9, 9)}))


def test_a_torn_transaction_has_an_order_in_each_partition() -> None:
    history = parse(TORN)
    for partition in (0, 1):
        assert check_linearizable([op for op in history if op.partition == partition]) is None


def test_simulated_histories_have_a_form() -> None:
    for seed in (1, 2, 3):
        history = simulated(seed)
        found = list(exported(f"sim {seed}", history))
        assert found
        assert {one["op"] for one in found} <= {"write", "observe"}
        there = {value for one in found for part in one["parts"] for value in part["values"]}
        assert there >= {
            value for op in history if op.outcome is OperationOutcome.OK for value in op.values
        }


def test_a_judge_that_is_not_built_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="make judges"):
        judge(tmp_path / "judges", {})
    words = f"--program {tmp_path}/judges --seeds 0 --seconds 0 --histories 1"
    assert main(words.split()) == 2
    assert "needs Go" in capsys.readouterr().err


def test_a_judge_that_understands_nothing_is_named(tmp_path: Path) -> None:
    program = tmp_path / "judges"
    program.write_text("#!/bin/sh\necho what is this >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(ConfigError, match="what is this"):
        judge(program, {"h": parse("w 0-3 append a -> 0")})
