"""Where a message was put, and the result of the recovery of a commit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Placed(NamedTuple):
    """Where a message was put."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    """Milliseconds since 1970."""
    size: int


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The result of a walk over the log."""

    end: int
    """Where the log ends."""
    reason: str = ""
    """The fault of the bytes at the end; empty where there are none."""
