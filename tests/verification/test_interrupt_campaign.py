"""A share of ``make interrupts``, and whether its checks can fail."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from types import FunctionType
from typing import Any

import pytest

from dledger.client import AsyncClient, Client, Producer, Stage
from dledger.client.blocking.staging import Transaction
from dledger.client.protocol.results import Appended
from dledger.errors import OutcomeUnknown, Unavailable
from verification.interrupts.book import TAKEN, Attempt, Book, Unit
from verification.interrupts.calls import LEFT_OUT
from verification.interrupts.inject import Injector

NO_CALLS = {"bootstrap_servers", "stage_id", "forked", "cancel"}
"""Public names that neither wait nor ask."""

BY_OTHERS = {"abort_transaction", "commit_transaction", "close", "core"}
"""The calls ``abort`` and ``commit`` of a transaction make the first two. ``close`` ends each
round."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - NO_CALLS


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("interrupts") / "found.json"
    asked = ["--interrupts", "1200", "--seed", "7", "--json", file]
    command = [sys.executable, "-m", "verification.interrupts", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(file.read_text()))


def test_a_share_of_the_campaign_loses_doubles_and_hangs_nothing(share: dict[str, Any]) -> None:
    assert share["ok"]
    assert share["figures"]["interrupts and cancellations"] >= 1200
    assert share["figures"]["of them while another one was handled"] > 0
    assert share["figures"]["stored records"] > 1000


@pytest.mark.parametrize(
    ("called", "kind", "apart"),
    [
        ("client", Client, BY_OTHERS),
        ("producer", Producer, {"name"}),
        ("stage", Stage, {"append_all"}),
        ("transaction", Transaction, set()),
        ("asyncio client", AsyncClient, BY_OTHERS),
    ],
)
def test_each_public_call_is_made_by_the_campaign(
    share: dict[str, Any], called: str, kind: type, apart: set[str]
) -> None:
    """A new call joins it, or is left out with a reason."""
    made = {
        name.removeprefix(f"{called}.") for name in share["calls"] if name.startswith(f"{called}.")
    }
    assert public(kind) - apart - LEFT_OUT.keys() <= made


def book_of(*attempts: Attempt) -> Book:
    book = Book("t")
    book.attempts += attempts
    return book


def answered(start: int, *values: bytes, who: str = "") -> Attempt:
    return Attempt(list(values), TAKEN, who, answer=Appended("t", 0, start, start + len(values)))


@pytest.mark.parametrize(
    ("attempts", "stored", "problem"),
    [
        ([answered(0, b"a")], [], "0 of 1 records"),
        ([answered(0, b"a")], [b"a", b"a"], "stored 2 times"),
        ([answered(0, b"a")], [b"a", b"b"], "nobody appended it"),
        ([answered(0, b"a", b"b")], [b"a"], "1 of 2 records"),
        ([answered(1, b"a"), answered(0, b"b")], [b"a", b"b"], "not where its answer says"),
        ([Attempt([b"a"], TAKEN)], [b"a"], "nobody was told"),
        (
            [Attempt([b"a"], TAKEN, answer=Unavailable("no"))],
            [b"a"],
            "stored though its append failed",
        ),
        (
            [answered(1, b"b", who="p"), answered(0, b"a", who="p")],
            [b"a", b"b"],
            "in front of an earlier record",
        ),
    ],
)
def test_what_does_not_fit_is_a_problem(
    attempts: list[Attempt], stored: list[bytes], problem: str
) -> None:
    book = book_of(*attempts)
    book.check({0: stored})
    assert any(problem in one for one in book.problems)


@pytest.mark.parametrize(
    ("given", "whole"), [([b"b"], True), ([b"a", b"a"], False), ([b"b", b"a"], False)]
)
def test_reader_that_leaves_out_repeats_or_turns_round_is_a_problem(
    given: list[bytes], whole: bool
) -> None:
    book = book_of(answered(0, b"a", b"b"))
    book.read(0, given, whole)
    book.check({0: [b"a", b"b"]})
    assert "gave other records" in book.problems[0]


def test_what_fits_is_none() -> None:
    unknown = Attempt([b"c"], TAKEN, answer=OutcomeUnknown("who knows"))
    for stored in ([b"a", b"b"], [b"a", b"b", b"c"], [b"a", b"b", b"d"]):
        book = book_of(answered(0, b"a", b"b", who="p"), unknown, Attempt([b"d"]))
        book.read(0, [b"a", b"b"], whole=True)
        book.read(0, [b"b"], whole=False)
        book.check({0: stored})
        assert not book.problems


@pytest.mark.parametrize(
    ("ended", "stored", "problem"),
    [
        ("aborted", [b"a"], "aborted transaction"),
        ("committed", [b"a"], "1 of 2 records"),
        ("committed", [], "is missing in its transaction"),
        ("open", [b"c"], "is missing in its transaction"),
    ],
)
def test_half_a_transaction_is_a_problem(ended: str, stored: list[bytes], problem: str) -> None:
    book = Book("t")
    book.units.append(Unit("w", 1, [Attempt([b"a", b"b"], TAKEN), Attempt([b"c"], TAKEN)], ended))
    book.check({0: stored})
    assert any(problem in one for one in book.problems)


def test_future_without_an_answer_is_a_problem() -> None:
    book = book_of(Attempt([b"a"], TAKEN, future=Future()))
    book.settle()
    assert "no answer though its producer is closed" in book.problems[0]


def swallows() -> None:
    for n in range(10_000):
        with contextlib.suppress(BaseException):
            str(n)


def changes() -> None:
    try:
        for n in range(10_000):
            str(n)
    except BaseException as error:
        raise KeyError("another one") from error


@pytest.mark.parametrize("function", [swallows, changes])
def test_interrupt_that_does_not_come_out_is_a_problem(function: Callable[[], None]) -> None:
    of_product = {**function.__globals__, "__name__": "dledger.client.some"}
    with Injector(Random(1)) as injector:
        for _ in range(1000):
            injector.call("it", FunctionType(function.__code__, of_product))
            if injector.problems:
                break
    assert ("swallowed" if function is swallows else "came out as KeyError") in injector.problems[0]
