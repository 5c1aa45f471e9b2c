"""Tables that are filtered, sorted and cut into pages by the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
ROWS: Final = 100
"""Of a page."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """One page of a table."""

    rows: Sequence[T]
    number: int
    """From 1."""
    pages: int
    total: int
    """Rows of all pages."""


def paged(rows: Sequence[T], wanted: str, size: int = ROWS) -> Paged[T]:
    """The page that a request asks for; the nearest one where there is no such page."""
    pages = max(1, -(-len(rows) // size))
    asked = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 1
    at = min(max(asked, 1), pages)
    return Paged(rows[(at - 1) * size : at * size], at, pages, len(rows))


def named(rows: Sequence[T], find: str, name: Callable[[T], str]) -> Sequence[T]:
    """Rows whose name contains a text, in any case."""
    wanted = find.lower()
    return [row for row in rows if wanted in name(row).lower()] if wanted else rows


def ordered(
    rows: Sequence[T], wanted: str, keys: dict[str, Callable[[T], Any]]
) -> tuple[Sequence[T], str]:
    """Rows by one of ``keys``, and which: the first one by its order, the others from the largest
    down."""
    first = next(iter(keys))
    by = wanted if wanted in keys else first
    return sorted(rows, key=keys[by], reverse=by != first), by
