"""Places in partitions as people write them, and the offsets that they mean."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client.blocking.client import Client

FORMS: Final = (
    "earliest, latest, an offset, -N for the last N records, -10m for ten minutes back, @ and "
    "milliseconds since 1970, or a time with its zone such as 2024-03-10T07:30:00Z"
)
METAVAR: Final = "earliest|latest|N|-N|-10m|TIME"
_WORDS: Final = {
    "earliest": "EARLIEST", "beginning": "EARLIEST", "start": "EARLIEST",
    "latest": "LATEST", "end": "LATEST",
}  # fmt: skip
_AGO: Final = re.compile(r"-(\d+)(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MS: Final = re.compile(r"[se]?@(\d+)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(Enum):
    """What the number of a `OffsetSpec` counts."""

    EARLIEST = "the first record that is kept"
    LATEST = "behind the last record"
    OFFSET = "an offset"
    BACK = "records before the end"
    TIME = "microseconds since 1970 UTC"


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in each partition of a topic."""

    kind: Kind
    number: int = 0

    def within(self, begin: int, end: int) -> int:
        """The offset in a partition that keeps [begin, end); not of a time. An offset is taken as
        it is."""
        if self.kind is Kind.OFFSET:
            return self.number
        if self.kind is Kind.BACK:
            return max(begin, end - self.number)
        return begin if self.kind is Kind.EARLIEST else end


def parse_position(option: str, text: str) -> OffsetSpec:
    """Raises `ConfigError` for what is none of `FORMS`."""
    word = text.strip()
    if word.lower() in _WORDS:
        return OffsetSpec(Kind[_WORDS[word.lower()]])
    if word.isdecimal():
        return OffsetSpec(Kind.OFFSET, int(word))
    if word[:1] == "-" and word[1:].isdecimal():
        return OffsetSpec(Kind.BACK, int(word[1:]))
    if in_ms := _MS.fullmatch(word):
        return OffsetSpec(Kind.TIME, int(in_ms[1]) * 1000)
    try:
        if ago := _AGO.fullmatch(word):
            return _time(datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
        time = datetime.fromisoformat(word)
    except (ValueError, OverflowError):  # it may be before the year 1
        raise ConfigError(f"{option} {text}: write {FORMS}") from None
    if time.tzinfo is None:
        raise ConfigError(f"{option} {text}: the time zone is missing; write {text}Z for UTC")
    return _time(time)


def _time(time: datetime) -> OffsetSpec:
    return OffsetSpec(Kind.TIME, (time - _EPOCH) // timedelta(microseconds=1))


def offsets_of(
    client: Client, topic: str, position: OffsetSpec, partitions: Collection[int]
) -> dict[int, int]:
    """The offset of each of these partitions. Where no record is as new as a time, the end."""
    ends = client.end_offsets(topic)
    if position.kind is Kind.TIME:
        asked = {topic: dict.fromkeys(partitions, position.number)}
        found = client.offsets_at(asked).offsets[topic]
        return {at: found[at] if found[at] >= 0 else ends[at] for at in partitions}
    begins = client.begin_offsets(topic)
    return {at: position.within(begins[at], ends[at]) for at in partitions}
