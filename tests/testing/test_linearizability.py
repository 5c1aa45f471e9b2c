"""The search refuses histories that no order explains and accepts those that one does, long ones
too."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dledger.testing.checkers.anomaly import Anomaly
from dledger.testing.checkers.history import (
    NEVER,
    Operation,
    OperationKind,
    OperationOutcome,
    in_pieces,
)
from dledger.testing.checkers.linearizability import TooHard, check_linearizable
from dledger.testing.checkers.notation import parse, show
from verification.sim.rng import Rng

HISTORIES = Path(__file__).parent / "histories"


def sections(name: str) -> list[tuple[str, str]]:
    """(title, text) of each history in a file."""
    parts = (HISTORIES / name).read_text().split("\n== ")[1:]
    return [(title, text) for title, _, text in (part.partition("\n") for part in parts)]


BAD = sections("linearizable_bad.txt")
GOOD = sections("linearizable_good.txt")


def test_collections_hold_enough_histories() -> None:
    assert len(BAD) >= 30
    assert len(GOOD) >= 30


@pytest.mark.parametrize("text", [pytest.param(text, id=title) for title, text in BAD])
def test_history_that_no_order_explains_is_refused(text: str) -> None:
    finding = check_linearizable(parse(text))
    assert finding is not None
    assert finding.anomaly is Anomaly.NOT_LINEARIZABLE
    assert finding.shown_by


@pytest.mark.parametrize("text", [pytest.param(text, id=title) for title, text in GOOD])
def test_history_that_an_order_explains_is_accepted(text: str) -> None:
    finding = check_linearizable(parse(text))
    assert finding is None, str(finding)


@pytest.mark.parametrize("text", [pytest.param(text, id=title) for title, text in BAD + GOOD])
def test_search_agrees_with_trying_every_order(text: str) -> None:
    """Up to seven calls: every order of every choice of unanswered appends, by a model of five
    lines."""
    history = parse(text)
    assert (check_linearizable(history) is None) == explains_some_order(history)


def test_search_agrees_with_trying_every_order_of_random_calls() -> None:
    """600 histories of five calls, most of them appends of one or two records that were told no
    offset."""
    rng, explained = Rng(1), 0
    for _ in range(600):
        history = random_history(rng)
        is_explained = check_linearizable(history) is None
        assert is_explained == explains_some_order(history), show(history)
        explained += is_explained
    assert 100 < explained < 500


def random_history(rng: Rng) -> list[Operation]:
    history = []
    for at in range(5):
        begin = rng.below(10)
        asked: dict[str, Any] = {
            "session": f"s{at}",
            "topic": "t",
            "partition": 0,
            "invoked_ns": begin,
            "returned_ns": begin + 1 + rng.below(10),
        }
        if rng.chance(400_000):
            history.append(
                Operation(
                    OperationKind.END, **asked, outcome=OperationOutcome.OK, start=rng.below(4)
                )
            )
        else:
            outcome = rng.pick((OperationOutcome.OK, OperationOutcome.UNKNOWN))
            start = rng.below(3) if outcome is OperationOutcome.OK and rng.chance(300_000) else -1
            values = (2 * at, 2 * at + 1)[: rng.between(1, 2)]
            history.append(
                Operation(
                    OperationKind.APPEND, **asked, outcome=outcome, start=start, values=values
                )
            )
    return history


def explains_some_order(history: list[Operation]) -> bool:
    calls = [op for op in in_pieces(history) if op.outcome is not OperationOutcome.FAILED]
    must = [op for op in calls if op.outcome is OperationOutcome.OK]
    may = [
        op
        for op in calls
        if op.outcome is OperationOutcome.UNKNOWN
        and op.kind in {OperationKind.APPEND, OperationKind.TRANSACTION}
    ]
    return any(
        is_legal(order)
        for chosen in range(1 << len(may))
        for order in permutations(must + [op for at, op in enumerate(may) if chosen >> at & 1])
    )


def is_legal(order: tuple[Operation, ...]) -> bool:
    log: list[int] = []
    latest = -1
    for op in order:
        returned = op.returned_ns if op.outcome is OperationOutcome.OK else NEVER
        if returned < latest:
            return False
        latest = max(latest, op.invoked_ns)
        if op.kind in {OperationKind.APPEND, OperationKind.TRANSACTION}:
            if op.outcome is OperationOutcome.OK and op.start not in {-1, len(log)}:
                return False
            log += op.values
        elif op.kind is OperationKind.END:
            if (op.start > len(log)) if op.stale else (op.start != len(log)):
                return False
        elif op.kind is OperationKind.READ:
            offsets = op.offsets or tuple(range(op.start, op.start + len(op.values)))
            if offsets != tuple(range(op.start, op.start + len(op.values))):
                return False
            if tuple(log[op.start : op.start + len(op.values)]) != op.values:
                return False
            if op.to_end and not op.stale and op.start + len(op.values) != len(log):
                return False
    return True


def long_history(count: int, clients: int) -> list[Operation]:
    """Overlapping appends of many clients, every seventh without an answer, with ends and reads
    between."""
    history, length = [], 0
    for at in range(count):
        begin, values = 10 * at, (2 * at, 2 * at + 1)
        slow = 10 * (at * 7 % clients) + 5
        happens = at % 14 != 7
        outcome = OperationOutcome.UNKNOWN if at % 7 == 0 else OperationOutcome.OK
        start = length if outcome is OperationOutcome.OK else -1
        history.append(
            Operation(
                OperationKind.APPEND,
                f"w{at % clients}",
                "t",
                0,
                begin - slow,
                begin + slow,
                outcome,
                values=values,
                start=start,
            )
        )
        if happens:
            length += 2
        history.append(
            Operation(
                OperationKind.END,
                "r",
                "t",
                0,
                begin + 1,
                begin + 2,
                OperationOutcome.OK,
                start=length,
            )
        )
    return history


def test_long_history_with_unanswered_appends_is_searched() -> None:
    """10,000 calls, 715 appends without an answer of which half happened, which only holes and ends
    tell."""
    history = long_history(5_000, 16)
    last = next(op for op in reversed(history) if op.kind is OperationKind.END)
    values = tuple(
        v
        for op in history
        if op.kind is OperationKind.APPEND and (op.values[0] // 2) % 14 != 7
        for v in op.values
    )
    read = Operation(
        OperationKind.READ,
        "r",
        "t",
        0,
        60_000,
        60_001,
        OperationOutcome.OK,
        values=values,
        start=0,
        to_end=True,
    )
    assert len(values) == last.start
    assert check_linearizable([*history, read]) is None
    wrong = [replace(op, start=op.start + 2) if op is last else op for op in history]
    assert check_linearizable([*wrong, read]) is not None


def test_unanswered_appends_of_one_size_are_searched_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """60 single records without an answer, 20 of which fill a hole: that could be any 20."""
    monkeypatch.setattr("dledger.testing.checkers.linearizability.MAX_CONFIGURATIONS", 100)
    history = [
        Operation(OperationKind.APPEND, f"w{at}", "t", 0, at, values=(at,)) for at in range(60)
    ]
    history.append(
        Operation(
            OperationKind.APPEND, "v", "t", 0, 100, 101, OperationOutcome.OK, values=(60,), start=20
        )
    )
    assert check_linearizable(history) is None
    history.append(
        Operation(OperationKind.END, "r", "t", 0, 102, 103, OperationOutcome.OK, start=62)
    )
    assert check_linearizable(history) is not None


def test_too_many_unanswered_appends_without_a_read_are_given_up_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger.testing.checkers.linearizability.MAX_CONFIGURATIONS", 1000)
    history = [
        Operation(
            OperationKind.APPEND, "w", "t", 0, 0, values=tuple(range(100 * at, 100 * at + 1 + at))
        )
        for at in range(30)
    ]
    history.append(Operation(OperationKind.END, "r", "t", 0, 1, 2, OperationOutcome.OK, start=300))
    history.append(Operation(OperationKind.END, "r", "t", 0, 3, 4, OperationOutcome.OK, start=301))
    with pytest.raises(TooHard, match="1000"):
        check_linearizable(history)


def test_calls_of_two_partitions_are_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="more than one partition"):
        check_linearizable(parse("w 0-1 append a @t/0 -> 0\nw 0-1 append b @t/1 -> 0"))


@pytest.mark.parametrize("text", [pytest.param(text, id=title) for title, text in BAD + GOOD])
def test_history_that_is_shown_and_parsed_again_has_the_same_verdict(text: str) -> None:
    history = parse(text)
    again = parse(show(history))
    assert [str(op.outcome) for op in again] == [
        str(op.outcome) for op in sorted(history, key=lambda o: o.invoked_ns)
    ]
    assert (check_linearizable(history) is None) == (check_linearizable(again) is None)


def test_line_that_is_no_call_is_shown() -> None:
    with pytest.raises(ValueError, match="not a call: 'w 0-1 appendix a -> 0'"):
        parse("w 0-1 appendix a -> 0")
