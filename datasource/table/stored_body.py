"""A stored body, as a task reads it."""

from __future__ import annotations

from typing import NamedTuple

from dledger.types import Buffer


class Body(NamedTuple):
    """A stored body and where it lies."""

    base: int
    """Offset of its first record."""
    rows: int
    data: Buffer
    entry: int = -1
    """Index of its entry in the log."""
    term: int = -1
