"""Times as people read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(ms: int) -> str:
    """A time in ms since 1970, to the second: ``2026-11-24 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
