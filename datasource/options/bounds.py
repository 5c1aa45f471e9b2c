"""Where a read starts or ends, as its options say it: by offsets, by time, or counted back from
now. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

from dledger.datasource.options.offsets import EARLIEST, Positions
from dledger.datasource.options.settings import duration_ms
from dledger.errors import ConfigError

OFFSETS_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
TIMES_EXAMPLE: Final = '{"orders": {"0": 1700000000000, "1": 1700000000000}}'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BACK: Final = re.compile(r"-\s*(\d+)")
_AGO: Final = re.compile(r"-\s*(\d+\s*(?:ms|s|m|h|d))")


class BoundKind(Enum):
    """The kind of a bound."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    """The offsets that the consumer group of option groupId has processed."""
    OFFSETS = "offsets"
    """By partition, with -2 for earliest and -1 for latest."""
    TIME = "a time"
    """The same for all partitions."""
    TIMES = "times"
    """By partition."""
    BACK = "records back"
    """So many records of each partition before its end."""
    AGO = "time back"
    """So long before now."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read."""

    kind: BoundKind
    option: str
    """The option that gave it, for messages."""
    positions: Positions = field(default_factory=dict)
    """Of OFFSETS; of TIMES, in microseconds since 1970 UTC."""
    number: int = 0
    """Of TIME in microseconds since 1970 UTC, of BACK in records, of AGO in microseconds."""
    latest_if_none: bool = True
    """Where no record is as new as a time asks: True, the end of the partition; False, an error."""


def parse_bound(values: Mapping[str, str], side: str) -> Bound | None:
    """The bound of the options for ``side``, ``starting`` or ``ending``; None when there is none.

    Raises:
        ConfigError: two options give it, or one gives no possible value.
    """
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    given = [name for name in names if name in values]
    strategy = values.get("startingOffsetsByTimestampStrategy") if side == "starting" else None
    if len(given) > 1:
        raise ConfigError(
            f"options {given[0]!r} and {given[1]!r} both say where the read is {side}: give one "
            f"of them"
        )
    if strategy is not None and (not given or given == [names[0]]):
        raise ConfigError(
            "option 'startingOffsetsByTimestampStrategy' says what to do where no record is as "
            f"new as {names[1]!r} or {names[2]!r} asks: give one of these too, or leave it away"
        )
    if not given:
        return None
    option, text = given[0], values[given[0]].strip()
    if option == names[0]:
        return parse_offsets(option, text)
    lenient = side == "ending" or _lenient(strategy)
    if option == names[1]:
        return Bound(BoundKind.TIME, option, number=time_us(option, text), latest_if_none=lenient)
    return Bound(
        BoundKind.TIMES,
        option,
        positions=_by_partition(option, text, TIMES_EXAMPLE),
        latest_if_none=lenient,
    )


def _lenient(strategy: str | None) -> bool:
    word = "error" if strategy is None else strategy.strip().lower()
    if word not in {"error", "latest"}:
        raise ConfigError(
            f"option 'startingOffsetsByTimestampStrategy' is {strategy!r}: write error or latest"
        )
    return word == "latest"


def parse_offsets(option: str, text: str) -> Bound:
    """A bound by offsets: a word, JSON, ``-100`` or ``-10m``.

    Raises:
        ConfigError: it is none of these, with examples.
    """
    word = text.strip().lower()
    if word in {"earliest", "latest", "committed"}:
        return Bound(BoundKind(word), option)
    if back := _BACK.fullmatch(word):
        return Bound(BoundKind.BACK, option, number=_records(option, text, int(back[1])))
    if ago := _AGO.fullmatch(word):
        return Bound(BoundKind.AGO, option, number=duration_ms(option, ago[1]) * 1000)
    positions = _by_partition(option, text, OFFSETS_EXAMPLE)
    for topic, partitions in positions.items():
        if bad := [offset for offset in partitions.values() if offset < EARLIEST]:
            raise ConfigError(
                f"option {option!r} has offset {bad[0]} for topic {topic!r}: "
                f"{_hint(OFFSETS_EXAMPLE)}"
            )
    return Bound(BoundKind.OFFSETS, option, positions=positions)


def _records(option: str, text: str, count: int) -> int:
    if count <= 2:  # in JSON these are signs for the two ends
        raise ConfigError(
            f"option {option!r} is {text!r}, which could mean "
            f"{'latest' if count == 1 else 'earliest'} or the last {count} records: write "
            f"earliest, latest, -3 or more records back, or the offsets as {OFFSETS_EXAMPLE}"
        )
    return count


def _hint(example: str) -> str:
    if example == TIMES_EXAMPLE:
        return (
            f"write milliseconds since 1970, or times such as 2024-03-10T07:30:00Z, as in {example}"
        )
    return (
        "write earliest, latest, committed, -100 (records back), -10m (time back), or offsets as "
        f"in {example} (-2 earliest, -1 latest)"
    )


def _by_partition(option: str, text: str, example: str) -> Positions:
    def read(value: Any) -> int:
        return time_us(option, value) if example == TIMES_EXAMPLE else _offset(value)

    try:
        data = json.loads(text)
        found = {
            str(topic): {int(partition): read(value) for partition, value in partitions.items()}
            for topic, partitions in data.items()
        }
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"option {option!r} is {text!r}: {_hint(example)}") from error
    for topic, partitions in found.items():
        if not partitions or min(partitions) < 0:
            raise ConfigError(
                f"option {option!r} has no partition or a negative one for {topic!r}: "
                f"{_hint(example)}"
            )
    return found


def _offset(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("an offset is a number")
    return value


def time_us(option: str, value: Any) -> int:
    """Microseconds since 1970 UTC of Kafka's milliseconds or of a time in ISO 8601 with its zone.

    Raises:
        ConfigError: it is neither.
    """
    text = str(value).strip()
    if text.isdecimal() and type(value) is not bool:
        return int(text) * 1000
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        why = "; the time zone is missing" if time is not None else ""
        raise ConfigError(
            f"option {option!r} has {text!r}{why}: write milliseconds since 1970, as in "
            "1700000000000, or a time with its zone, as in 2024-03-10T07:30:00Z"
        )
    return (time - _EPOCH) // timedelta(microseconds=1)
