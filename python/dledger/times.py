"""Times as people and programs read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def utc(ms: int) -> str:
    """A time in ms since 1970, to the second: ``2026-11-24 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def datetime_of(time_us: int) -> datetime:
    """A time in microseconds since 1970."""
    return EPOCH + timedelta(microseconds=time_us)
