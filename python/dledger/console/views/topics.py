"""Topics and their partitions, and how fast they grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dledger.client import PartitionState
    from dledger.protocol.messages.client import TopicInfo

Places = Mapping[tuple[str, int], "PartitionState"]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something grows, in a second."""

    records: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic, all partitions together."""

    name: str
    kind: str
    partitions: int
    begin: int
    """The lowest begin offset of its partitions."""
    end: int
    """The highest end offset of its partitions."""
    records: int
    bytes: int
    rate: Rate | None
    """None: it was seen only once so far."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition; offsets [begin, end) are kept."""

    partition: int
    begin: int
    end: int
    bytes: int
    newest_us: int
    rate: Rate | None

    @property
    def records(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A column of a typed topic."""

    name: str
    type: str
    nullable: bool
    role: str


def rates(before: Places, now: Places, seconds: float) -> dict[tuple[str, int], Rate]:
    """Of partitions that were seen twice. Bytes are those of the new records by the mean of what is
    kept, since retention takes bytes away meanwhile."""
    found = {}
    for place, state in now.items():
        former = before.get(place)
        if former is not None and seconds > 0:
            new = max(0, state.end_offset - former.end_offset)
            kept = state.end_offset - state.begin_offset
            if state.begin_offset == former.begin_offset:
                grown = max(0.0, float(state.bytes - former.bytes))
            else:
                grown = new * state.bytes / kept if kept else 0.0
            found[place] = Rate(new / seconds, grown / seconds)
    return found


def total(found: Iterable[Rate]) -> Rate:
    """All of them together."""
    some = list(found)
    return Rate(sum(one.records for one in some), sum(one.bytes for one in some))


def topic_rows(
    infos: Sequence[TopicInfo], places: Places, rated: Mapping[tuple[str, int], Rate]
) -> list[TopicRow]:
    """In the order of ``infos``."""
    by_topic: dict[str, list[PartitionState]] = {}
    for state in places.values():
        by_topic.setdefault(state.topic, []).append(state)
    rows = []
    for info in infos:
        parts = by_topic.get(info.name, [])
        seen = [rated[info.name, p.partition] for p in parts if (info.name, p.partition) in rated]
        rows.append(
            TopicRow(
                name=info.name,
                kind="typed" if info.typed else "raw",
                partitions=info.partitions,
                begin=min((p.begin_offset for p in parts), default=0),
                end=max((p.end_offset for p in parts), default=0),
                records=sum(p.end_offset - p.begin_offset for p in parts),
                bytes=sum(p.bytes for p in parts),
                rate=total(seen) if seen else None,
            )
        )
    return rows


def partition_rows(
    topic: str, places: Places, rated: Mapping[tuple[str, int], Rate]
) -> list[PartitionRow]:
    """By number."""
    states = sorted((p for (name, _), p in places.items() if name == topic), key=_number)
    return [
        PartitionRow(
            one.partition,
            one.begin_offset,
            one.end_offset,
            one.bytes,
            one.newest_us,
            rated.get((topic, one.partition)),
        )
        for one in states
    ]


def _number(state: PartitionState) -> int:
    return state.partition


def column_rows(columns: Any) -> list[ColumnRow]:
    """Of the `Columns` of a typed topic."""
    roles = {columns.time.lower(): "event time"} if columns.time else {}
    if columns.key:
        roles[columns.key.lower()] = "key"
    return [
        ColumnRow(one.name, str(one.type), one.nullable, roles.get(one.name.lower(), ""))
        for one in columns.fields
    ]
