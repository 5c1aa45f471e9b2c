"""The search refuses histories that no order explains and accepts those that one does, long ones
too."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from dledger.testing.checkers.anomaly import Anomaly
from dledger.testing.checkers.history import NEVER, Operation, in_pieces
from dledger.testing.checkers.linearizability import TooHard, check_linearizable
from dledger.testing.checkers.notation import parse, show
from tests.testing.histories_of import (
    APPEND,
    END,
    OK,
    READ,
    TRANSACTION,
    UNKNOWN,
    call,
    sections,
    with_titles,
)
from verification.sim.rng import Rng

BAD = sections("linearizable_bad.txt")
GOOD = sections("linearizable_good.txt")


def test_collections_hold_enough_histories() -> None:
    assert len(BAD) >= 30
    assert len(GOOD) >= 30


@with_titles(BAD)
def test_history_that_no_order_explains_is_refused(text: str) -> None:
    finding = check_linearizable(parse(text))
    assert finding is not None
    assert finding.anomaly is Anomaly.NOT_LINEARIZABLE
    assert finding.shown_by


@with_titles(GOOD)
def test_history_that_an_order_explains_is_accepted(text: str) -> None:
    finding = check_linearizable(parse(text))
    assert finding is None, str(finding)


@with_titles(BAD + GOOD)
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
        asked = (f"s{at}", begin, begin + 1 + rng.below(10))
        if rng.chance(400_000):
            history.append(call(END, *asked, start=rng.below(4)))
        else:
            outcome = rng.pick((OK, UNKNOWN))
            start = rng.below(3) if outcome is OK and rng.chance(300_000) else -1
            values = (2 * at, 2 * at + 1)[: rng.between(1, 2)]
            history.append(call(APPEND, *asked, outcome, start=start, values=values))
    return history


def explains_some_order(history: list[Operation]) -> bool:
    calls = list(in_pieces(history))
    must = [op for op in calls if op.outcome is OK]
    may = [op for op in calls if op.outcome is UNKNOWN and op.kind in {APPEND, TRANSACTION}]
    return any(
        is_legal(order)
        for chosen in range(1 << len(may))
        for order in permutations(must + [op for at, op in enumerate(may) if chosen >> at & 1])
    )


def is_legal(order: tuple[Operation, ...]) -> bool:
    log: list[int] = []
    latest = -1
    for op in order:
        returned = op.returned_ns if op.outcome is OK else NEVER
        if returned < latest:
            return False
        latest = max(latest, op.invoked_ns)
        if op.kind in {APPEND, TRANSACTION}:
            if op.outcome is OK and op.start not in {-1, len(log)}:
                return False
            log += op.values
        elif op.kind is END:
            if (op.start > len(log)) if op.stale else (op.start != len(log)):
                return False
        elif op.kind is READ:
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
        outcome = UNKNOWN if at % 7 == 0 else OK
        start = length if outcome is OK else -1
        appended = {"start": start, "values": values}
        history.append(
            call(APPEND, f"w{at % clients}", begin - slow, begin + slow, outcome, **appended)
        )
        length += 2 * happens
        history.append(call(END, "r", begin + 1, begin + 2, start=length))
    return history


def test_long_history_with_unanswered_appends_is_searched() -> None:
    """10,000 calls, 715 appends without an answer of which half happened, which only holes and ends
    tell."""
    history = long_history(5_000, 16)
    last = next(op for op in reversed(history) if op.kind is END)
    values = tuple(
        v
        for op in history
        if op.kind is APPEND and (op.values[0] // 2) % 14 != 7
        for v in op.values
    )
    read = call(READ, "r", 60_000, 60_001, values=values, start=0, to_end=True)
    assert len(values) == last.start
    assert check_linearizable([*history, read]) is None
    wrong = [replace(op, start=op.start + 2) if op is last else op for op in history]
    assert check_linearizable([*wrong, read]) is not None


def test_unanswered_appends_of_one_size_are_searched_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """60 single records without an answer, 20 of which fill a hole: that could be any 20."""
    monkeypatch.setattr("dledger.testing.checkers.linearizability.MAX_CONFIGURATIONS", 100)
    history = [call(APPEND, f"w{at}", at, None, values=(at,)) for at in range(60)]
    history.append(call(APPEND, "v", 100, 101, values=(60,), start=20))
    assert check_linearizable(history) is None
    history.append(call(END, "r", 102, 103, start=62))
    assert check_linearizable(history) is not None


def test_too_many_unanswered_appends_without_a_read_are_given_up_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger.testing.checkers.linearizability.MAX_CONFIGURATIONS", 1000)
    history = [
        call(APPEND, "w", 0, None, values=tuple(range(100 * at, 100 * at + 1 + at)))
        for at in range(30)
    ]
    history += [call(END, "r", 1, 2, start=300), call(END, "r", 3, 4, start=301)]
    with pytest.raises(TooHard, match="1000"):
        check_linearizable(history)


def test_calls_of_two_partitions_are_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="more than one partition"):
        check_linearizable(parse("w 0-1 append a @t/0 -> 0\nw 0-1 append b @t/1 -> 0"))


@with_titles(BAD + GOOD)
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
