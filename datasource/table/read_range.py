"""A range of one partition that a task reads."""

from __future__ import annotations

from typing import NamedTuple


class ReadRange(NamedTuple):
    """Part of a range: up to ``end``, of ``bytes`` stored bytes."""

    end: int
    bytes: int
