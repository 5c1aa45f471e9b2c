"""Histories for tests of the checkers: those of the files, and calls made in a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dledger.testing.checkers.history import NEVER, Operation, OperationKind, OperationOutcome

APPEND, TRANSACTION, READ, END, _ = OperationKind
OK, FAILED, UNKNOWN = OperationOutcome


def sections(name: str) -> list[tuple[str, str]]:
    """(title, text) of each history in a file."""
    text = (Path(__file__).parent / "histories" / name).read_text()
    parts = text.split("\n== ")[1:]
    return [(title, text) for title, _, text in (part.partition("\n") for part in parts)]


def with_titles(histories: list[tuple[str, str]]) -> Any:
    """A test takes the ``text`` of each."""
    return pytest.mark.parametrize(
        "text", [pytest.param(text, id=title) for title, text in histories]
    )


def call(
    kind: OperationKind,
    session: str,
    begin: int,
    end: int | None,
    outcome: OperationOutcome = OK,
    **fields: Any,
) -> Operation:
    """A call on t/0 that took from ``begin`` to ``end``; None: it never came back."""
    if end is None:
        end, outcome = NEVER, UNKNOWN
    where = {"topic": "t", "partition": 0} | fields
    return Operation(kind, session, invoked_ns=begin, returned_ns=end, outcome=outcome, **where)
