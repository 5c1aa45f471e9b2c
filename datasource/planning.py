"""How a read is cut into tasks. Pure: the log answers through a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dledger.config import MIB
from dledger.datasource.offsets import Positions

LEAST_BYTES: Final = 16 * MIB
"""Stored bytes that a task is worth: reading them takes some ten times as long as starting it."""
MOST_BYTES: Final = 64 * MIB
"""Stored bytes of the largest task: a second or less, so that cores finish together and a repeat is cheap."""
TASKS_PER_CORE: Final = 4
"""Between these two, so many tasks for each core."""
WHOLE: Final = 1 << 62
"""A piece size that nothing reaches: one piece, with the bytes of the whole range."""
MOST_TASKS: Final = 2000
"""Above this, tasks grow; a driver that plans more is busy with that alone."""


class Piece(NamedTuple):
    """Part of a range: up to ``end``, of ``bytes`` stored bytes."""

    end: int
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """Records [start, end) of one topic partition: what one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    bytes: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.start


Split = Callable[[str, int, int, int, int], list[Piece]]
"""(topic, partition, start, end, target bytes) -> pieces, in order, from the start of the range."""


def ranges(starts: Positions, ends: Positions) -> list[Slice]:
    """The partitions that have something to read, one slice each."""
    return [
        Slice(topic, partition, starts[topic][partition], end)
        for topic in sorted(ends)
        for partition, end in sorted(ends[topic].items())
        if end > starts[topic][partition]
    ]


@dataclass(frozen=True, slots=True)
class Shape:
    """What tasks are to be like."""

    least: int = 0
    """So many tasks at least, if there are as many records."""
    most_rows: int | None = None
    """Of one task."""
    most_bytes: int | None = None
    """Stored bytes of one task, unless one stored batch has more."""
    cores: int = 2


def plan(starts: Positions, ends: Positions, split: Split, shape: Shape = Shape()) -> list[Slice]:
    """Cut [starts, ends) into slices of 16 to 64 MiB, or as small as ``shape`` wants them.

    Every record is in exactly one slice, in order.
    """
    wholes = [
        replace(one, bytes=sum(p.bytes for p in split(one.topic, one.partition, one.start, one.end, WHOLE)))
        for one in ranges(starts, ends)
    ]
    even = sum(one.bytes for one in wholes) // (TASKS_PER_CORE * shape.cores)
    target = min(max(even, LEAST_BYTES), MOST_BYTES)
    if shape.most_bytes is not None:
        slices = _within(wholes, split, min(target, shape.most_bytes))
    else:
        slices = [piece for whole in wholes for piece in _cut(whole, split, target)]
        most = max(MOST_TASKS, shape.least)
        if len(slices) > most:
            slices = list(_merge(slices, sum(s.bytes for s in slices) // most + 1))
    if shape.most_rows is not None:
        slices = [part for one in slices for part in _by_rows(one, -(-one.rows // shape.most_rows))]
    return list(_spread(slices, shape.least)) if len(slices) < shape.least else slices


def _within(wholes: list[Slice], split: Split, limit: int) -> list[Slice]:
    """Slices of up to ``limit`` bytes, as full as an eighth of it can fill them, or of one stored batch."""
    parts = wholes
    for target in (max(1, limit // 8), 1):
        parts = [piece for one in parts for piece in (_cut(one, split, target) if one.bytes > limit else (one,))]
    return list(_merge(parts, limit)) if parts else []


def _cut(whole: Slice, split: Split, target: int) -> Iterable[Slice]:
    start = whole.start
    if whole.bytes <= target:
        yield whole
        return
    while start < whole.end:  # a long range comes in several answers
        for piece in split(whole.topic, whole.partition, start, whole.end, target):
            yield replace(whole, start=start, end=piece.end, bytes=piece.bytes)
            start = piece.end


def _merge(slices: list[Slice], target: int) -> Iterable[Slice]:
    current = slices[0]
    for nxt in slices[1:]:
        same = (nxt.topic, nxt.partition) == (current.topic, current.partition)
        if same and current.bytes + nxt.bytes <= target:
            current = replace(current, end=nxt.end, bytes=current.bytes + nxt.bytes)
        else:
            yield current
            current = nxt
    yield current


def _spread(slices: list[Slice], wanted: int) -> Iterable[Slice]:
    """Larger slices into more parts; a stored batch is then read by several tasks."""
    total = sum(s.rows for s in slices)
    for one in slices:
        yield from _by_rows(one, min(one.rows, -(-wanted * one.rows // total)))


def _by_rows(one: Slice, parts: int) -> Iterable[Slice]:
    cuts = [one.start + one.rows * i // parts for i in range(parts + 1)]
    for start, end in itertools.pairwise(cuts):
        yield replace(one, start=start, end=end, bytes=one.bytes // parts)


__all__ = ["MOST_TASKS", "WHOLE", "Piece", "Shape", "Slice", "Split", "plan", "ranges"]
