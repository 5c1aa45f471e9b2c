"""What filters of a query say of the place of its rows in the log: which topics, partitions,
offsets and times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from dledger.datasource.options.offsets import Positions
from dledger.datasource.read.resolving import each
from dledger.datasource.table.log import GroupView
from dledger.protocol.messages.splits import WHOLE

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS: Final = {"topic": str, "partition": int, "offset": int, "timestamp": int}
"""Columns whose filters limit what is read, and the type of their values here; timestamps in
microseconds since 1970 UTC."""
LEAST: Final = -1 << 63


@dataclass(frozen=True, slots=True)
class Values:
    """A set of values of one column that holds all that filters let through, and perhaps more."""

    low: int = LEAST
    high: int = WHOLE
    named: tuple[Any, ...] | None = None
    """Where filters name values: these, and no others."""

    def both(self, other: Values) -> Values:
        """Of two filters that both must let a row through."""
        named = self.named if other.named is None else other.named
        if self.named is not None and other.named is not None:
            named = tuple(value for value in self.named if value in other.named)
        return Values(max(self.low, other.low), min(self.high, other.high), named)

    def has(self, value: Any) -> bool:
        """Whether a row with this value may be let through."""
        in_range = type(value) is not int or self.low <= value <= self.high
        return in_range and (self.named is None or value in self.named)


ANY: Final = Values()


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the rows lie that filters let through: all of them there, and perhaps others."""

    topic: Values = ANY
    partition: Values = ANY
    offset: Values = ANY
    timestamp: Values = ANY

    @classmethod
    def of(cls, filters: Iterable[Filter], struct: str = "") -> Self:
        """Of filters that all must let a row through; those that say nothing of a row's place are
        left out.

        Args:
            struct: the column in which topic, partition, offset and timestamp are fields; empty:
                they are columns themselves.
        """
        found = dict.fromkeys(COLUMNS, ANY)
        for one in filters:
            *outer, name = getattr(one, "attribute", ("",))
            column = name.lower()
            if column in COLUMNS and outer == ([struct] if struct else []):
                found[column] = found[column].both(_values(one, COLUMNS[column]))
        return cls(**found)

    def narrowed(
        self, edges: GroupView, starts: Positions, ends: Positions, newer: Positions
    ) -> tuple[Positions, Positions]:
        """The part of [starts, ends) that is read under these limits; where the two are equal,
        nothing.

        Args:
            newer: the first offset of each partition whose record is as new as the lowest time.
        """

        def low(topic: str, p: int, _begin: int, _end: int) -> int:
            first = max(starts[topic][p], self.offset.low, newer[topic][p] if newer else 0)
            return min(first, ends[topic][p])

        def high(topic: str, p: int, _begin: int, _end: int) -> int:
            if not (self.topic.has(topic) and self.partition.has(p)):
                return lows[topic][p]
            return max(min(ends[topic][p], self.offset.high + 1), lows[topic][p])

        lows = each(edges, low)
        return lows, each(edges, high)

    def packed(self) -> list[list[Any]]:
        """In JSON."""
        columns = (getattr(self, name) for name in COLUMNS)
        return [[one.low, one.high, one.named] for one in columns]

    @classmethod
    def unpacked(cls, packed: Sequence[Sequence[Any]]) -> Self:
        return cls(
            *(
                Values(low, high, None if named is None else tuple(named))
                for low, high, named in packed
            )
        )


def _values(one: Filter, kind: type) -> Values:
    """The values that a filter lets through, as far as that is known. Of times only the lowest one
    is of use: a record may be older than those before it."""
    match one:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            wanted = [value]
        case In(_, values):
            wanted = [value for value in values if value is not None]  # which equals nothing
        case GreaterThanOrEqual(_, value) | GreaterThan(_, value):
            first = _number(value) if kind is int else None
            return ANY if first is None else Values(low=first + isinstance(one, GreaterThan))
        case LessThanOrEqual(_, value) | LessThan(_, value):
            last = _number(value) if kind is int else None
            return ANY if last is None else Values(high=last - isinstance(one, LessThan))
        case _:
            return ANY
    if kind is str:
        return Values(named=tuple(wanted)) if all(type(v) is str for v in wanted) else ANY
    numbers = [number for value in wanted if (number := _number(value)) is not None]
    if len(numbers) < len(wanted):
        return ANY
    low, high = min(numbers, default=WHOLE), max(numbers, default=LEAST)
    return Values(low, high, tuple(sorted(set(numbers))))


def _number(value: Any) -> int | None:
    """Of an integer, or microseconds since 1970 UTC of a time; None of anything else."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1) if value.tzinfo else None
    return value if type(value) is int else None
