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


def plan(starts: Positions, ends: Positions, split: Split, min_partitions: int = 0, cores: int = 2) -> list[Slice]:
    """Cut [starts, ends) into slices of 16 to 64 MiB, at least ``min_partitions`` of them if there are as many records.

    Every record is in exactly one slice, in order.
    """
    wholes = [
        replace(one, bytes=sum(p.bytes for p in split(one.topic, one.partition, one.start, one.end, WHOLE)))
        for one in ranges(starts, ends)
    ]
    even = sum(one.bytes for one in wholes) // (TASKS_PER_CORE * cores)
    target = min(max(even, LEAST_BYTES), MOST_BYTES)
    slices = [piece for whole in wholes for piece in _cut(whole, split, target)]
    most = max(MOST_TASKS, min_partitions)
    if len(slices) > most:
        slices = list(_merge(slices, sum(s.bytes for s in slices) // most + 1))
    return list(_spread(slices, min_partitions)) if len(slices) < min_partitions else slices


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
    """Cut by rows, larger slices into more parts; a stored batch is then read by several tasks."""
    total = sum(s.rows for s in slices)
    for one in slices:
        parts = min(one.rows, -(-wanted * one.rows // total))
        cuts = [one.start + one.rows * i // parts for i in range(parts + 1)]
        for start, end in itertools.pairwise(cuts):
            yield replace(one, start=start, end=end, bytes=one.bytes // parts)


__all__ = ["MOST_TASKS", "WHOLE", "Piece", "Slice", "Split", "plan", "ranges"]
