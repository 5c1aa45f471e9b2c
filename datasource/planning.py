"""How a read is cut into tasks. Pure: the log answers through a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dledger.config import MIB
from dledger.datasource.offsets import Positions

TARGET_BYTES: Final = 32 * MIB
"""Stored bytes of one task: a second or less of work, so that cores share it evenly, and far more than a task costs."""
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
"""(topic, partition, start, end, target bytes) -> pieces, in order, that cover the range."""


def ranges(starts: Positions, ends: Positions) -> list[Slice]:
    """The partitions that have something to read, one slice each."""
    return [
        Slice(topic, partition, starts[topic][partition], end)
        for topic in sorted(ends)
        for partition, end in sorted(ends[topic].items())
        if end > starts[topic][partition]
    ]


def plan(starts: Positions, ends: Positions, split: Split, min_partitions: int = 0) -> list[Slice]:
    """Cut [starts, ends) into slices of some 32 MiB, at least ``min_partitions`` of them if there are as many records.

    Every record is in exactly one slice, in order.
    """
    slices = [piece for whole in ranges(starts, ends) for piece in _cut(whole, split)]
    most = max(MOST_TASKS, min_partitions)
    if len(slices) > most:
        slices = list(_merge(slices, sum(s.bytes for s in slices) // most + 1))
    return list(_spread(slices, min_partitions)) if len(slices) < min_partitions else slices


def _cut(whole: Slice, split: Split) -> Iterable[Slice]:
    start = whole.start
    while start < whole.end:  # a long range comes in several answers
        for piece in split(whole.topic, whole.partition, start, whole.end, TARGET_BYTES):
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


__all__ = ["MOST_TASKS", "TARGET_BYTES", "Piece", "Slice", "Split", "plan", "ranges"]
