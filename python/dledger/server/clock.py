"""The two clocks of a node."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Monotonic milliseconds: every timer and deadline (D10)."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970 UTC: only ever written into commands, never compared with a timer."""
    return time.time_ns() // 1_000_000
