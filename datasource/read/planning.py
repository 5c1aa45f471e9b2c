"""How a read is cut into tasks. Pure: the log answers through a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger.client.protocol.results import Range, Span
from dledger.config import MIB
from dledger.datasource.options.offsets import Positions

LEAST_BYTES: Final = 16 * MIB
"""Stored bytes that a task is worth: reading them takes some ten times as long as starting it."""
MOST_BYTES: Final = 64 * MIB
"""Stored bytes of the largest task: a second or less, so that cores finish together and a repeat is
cheap."""
TASKS_PER_CORE: Final = 4
"""Between these two, so many tasks for each core. Where there are fewer, still as many for each:
one that is left over is read by one core while the others wait."""
WHOLE: Final = 1 << 62
"""A piece size that nothing reaches: one piece, with the bytes of the whole range."""
MOST_PIECES: Final = 10_000
"""Of one partition in one answer."""
MANY_TASKS: Final = 64
"""Above this, tasks that read little are put together: each one costs Spark ten milliseconds or
more, to read a row."""
LITTLE_BYTES: Final = MIB
"""Stored bytes of ranges that are put together, at most."""
MOST_TASKS: Final = 2000
"""Above this, tasks grow; a driver that plans more is busy with that alone."""


class Slice(NamedTuple):
    """Records [start, end) of one topic partition: the input of one task."""

    topic: str
    partition: int
    start: int
    end: int
    bytes: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.start

    def span(self, target: int, most: int = MOST_PIECES) -> Span:
        """The question for its pieces."""
        return Span(self.topic, self.partition, self.start, self.end, target, most)


Split = Callable[[Sequence[Span]], list[list[Range]]]
"""One question to the log: for each span its pieces, in order, from its start."""


def ranges(starts: Positions, ends: Positions) -> list[Slice]:
    """The partitions that have something to read, one slice each."""
    return [
        Slice(topic, partition, starts[topic][partition], end)
        for topic in sorted(ends)
        for partition, end in sorted(ends[topic].items())
        if end > starts[topic][partition]
    ]


def measured(slices: Sequence[Slice], split: Split) -> list[Slice]:
    """The same with their stored bytes, by one question."""
    if not slices:
        return []
    answers = split([one.span(WHOLE, 1) for one in slices])
    return [
        Slice(topic, partition, start, end, pieces[0].bytes)
        for (topic, partition, start, end, _), pieces in zip(slices, answers, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Shape:
    """The wanted size and number of tasks."""

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
    wholes = measured(ranges(starts, ends), split)
    target = _size(sum(one.bytes for one in wholes), shape.cores)
    if shape.most_bytes is not None:
        slices = _within(wholes, split, min(target, shape.most_bytes))
    else:
        slices = _cut(wholes, split, target, target)
        most = max(MOST_TASKS, shape.least)
        if len(slices) > most:
            slices = list(_merge(slices, sum(s.bytes for s in slices) // most + 1))
    if shape.most_rows is not None:
        slices = [part for one in slices for part in _by_rows(one, -(-one.rows // shape.most_rows))]
    return list(_spread(slices, shape.least)) if len(slices) < shape.least else slices


def _size(total: int, cores: int) -> int:
    """Bytes of each task, of so many in all."""
    tasks = min(total // LEAST_BYTES, TASKS_PER_CORE * cores)
    tasks = max(tasks - tasks % cores if tasks > cores else tasks, -(-total // MOST_BYTES), 1)
    return max(-(-total // tasks), LEAST_BYTES)


def together(slices: Sequence[Slice], shape: Shape = Shape()) -> list[list[Slice]]:
    """The slices of each task: one, or of very many that read little some neighbours, as far as
    ``shape`` allows it."""
    tasks = max(MANY_TASKS, shape.least)
    if len(slices) <= tasks:
        return [[one] for one in slices]
    found: list[list[Slice]] = []
    for start, end in itertools.pairwise(
        len(slices) * number // tasks for number in range(tasks + 1)
    ):
        found += _bundles(
            slices[start:end], min(LITTLE_BYTES, shape.most_bytes or LITTLE_BYTES), shape.most_rows
        )
    return found


def _bundles(
    slices: Sequence[Slice], most_bytes: int, most_rows: int | None
) -> Iterable[list[Slice]]:
    current: list[Slice] = []
    size = rows = 0
    for one in slices:
        if current and (
            size + one.bytes > most_bytes or rows + one.rows > (most_rows or rows + one.rows)
        ):
            yield current
            current, size, rows = [], 0, 0
        current.append(one)
        size, rows = size + one.bytes, rows + one.rows
    yield current


def _within(wholes: list[Slice], split: Split, limit: int) -> list[Slice]:
    """Slices of up to ``limit`` bytes, as full as an eighth of it can fill them, or of one stored
    batch."""
    parts = wholes
    for target in (max(1, limit // 8), 1):
        parts = _cut(parts, split, target, limit)
    return list(_merge(parts, limit)) if parts else []


def _cut(wholes: list[Slice], split: Split, target: int, limit: int) -> list[Slice]:
    """Those above ``limit`` bytes in even pieces of up to ``target``, or as stored batches allow;
    all by one question, the rest of long answers by more."""
    parts: dict[Slice, list[Slice]] = {whole: [] for whole in wholes}
    open_wholes = [whole for whole in wholes if whole.bytes > limit]
    while open_wholes:
        rests = [
            whole._replace(start=parts[whole][-1].end) if parts[whole] else whole
            for whole in open_wholes
        ]
        answers = split([rest.span(_even(rest.bytes, target)) for rest in rests])
        for whole, pieces in zip(open_wholes, answers, strict=True):
            parts[whole] += [
                whole._replace(start=piece.start, end=piece.end, bytes=piece.bytes)
                for piece in pieces
            ]
        open_wholes = [whole for whole in open_wholes if parts[whole][-1].end < whole.end]
    return [part for whole in wholes for part in parts[whole] or [whole]]


def _even(total: int, target: int) -> int:
    """Bytes of pieces of one size, up to the target, so that the last one is not a small rest."""
    return -(-total // -(-total // target))


def _merge(slices: list[Slice], target: int) -> Iterable[Slice]:
    current = slices[0]
    for nxt in slices[1:]:
        same = (nxt.topic, nxt.partition) == (current.topic, current.partition)
        if same and current.bytes + nxt.bytes <= target:
            current = current._replace(end=nxt.end, bytes=current.bytes + nxt.bytes)
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
        yield one._replace(start=start, end=end, bytes=one.bytes // parts)
