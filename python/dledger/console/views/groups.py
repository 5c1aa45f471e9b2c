"""Consumer groups: their lag, positions and members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.client import Lag, MemberState


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group, all partitions together. Of one that was not asked for, only the name."""

    name: str
    members: int | None = None
    partitions: int | None = None
    lag: int | None = None
    """Records."""
    lag_bytes: int | None = None
    lag_s: float | None = None
    """Of the partition that is behind the most."""
    holds: bool = False
    """Whether it holds retention back."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class PositionRow:
    """Where a group is in one partition; None where it has committed nothing."""

    topic: str
    partition: int
    offset: int | None = None
    begin: int | None = None
    end: int | None = None
    lag: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    committed_ms: int = 0
    member: str = ""
    lost: int = 0
    """Records that retention took before the group had processed them."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A program that reads in the group."""

    member_id: str
    instance_id: str
    label: str
    state: str
    partitions: int


def group_row(name: str, lags: Sequence[Lag], members: Sequence[MemberState]) -> GroupRow:
    return GroupRow(
        name,
        members=len(members),
        partitions=len(lags),
        lag=sum(one.rows for one in lags),
        lag_bytes=sum(one.bytes for one in lags),
        lag_s=max((one.seconds for one in lags), default=0.0),
        holds=any(one.holds for one in lags),
    )


def position_rows(lags: Sequence[Lag], members: Sequence[MemberState]) -> list[PositionRow]:
    """By topic and partition; also those that a member reads and nobody has committed."""
    readers = {
        (topic, number): one.instance_id or one.label
        for one in members
        for topic, numbers in one.partitions.items()
        for number in numbers
    }
    rows = {place: PositionRow(*place, member=reader) for place, reader in readers.items()}
    for one in lags:
        place = (one.topic, one.partition)
        rows[place] = PositionRow(
            *place,
            offset=one.offset,
            begin=one.begin_offset,
            end=one.end_offset,
            lag=one.rows,
            lag_bytes=one.bytes,
            lag_s=one.seconds,
            committed_ms=one.committed_ms,
            member=readers.get(place, ""),
            lost=max(0, one.begin_offset - one.offset),
        )
    return [rows[place] for place in sorted(rows)]


def member_rows(members: Sequence[MemberState]) -> list[MemberRow]:
    return [
        MemberRow(
            one.member_id,
            one.instance_id,
            one.label,
            one.state,
            sum(len(numbers) for numbers in one.partitions.values()),
        )
        for one in members
    ]
