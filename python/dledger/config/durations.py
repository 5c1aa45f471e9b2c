"""Durations as people write them."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d|)")
_UNIT_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str) -> int | None:
    """Milliseconds in ``1500``, ``1500ms``, ``30s``, ``10m``, ``2h`` or ``1d``; None where it is
    none of these."""
    match = _DURATION.fullmatch(text.strip().lower())
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]
