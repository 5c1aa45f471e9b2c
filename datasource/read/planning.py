"""How a read is cut into tasks. Pure: the log answers through a function."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import lt, sub
from typing import Final, NamedTuple, Protocol

from dledger.client.protocol.results import Range, Span
from dledger.config import MIB
from dledger.datasource.options.offsets import Positions
from dledger.protocol.messages.splits import WHOLE

LEAST_BYTES: Final = 16 * MIB
"""Stored bytes that a task is worth: reading them takes some ten times as long as starting it."""
MOST_BYTES: Final = 64 * MIB
"""Stored bytes of the largest task: a second or less, so that cores finish together and a repeat is
cheap."""
TASKS_PER_CORE: Final = 4
"""Between these two, so many tasks for each core. Where there are fewer, still as many for each:
one that is left over is read by one core while the others wait."""
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


@dataclass(slots=True)
class Slices:
    """Many slices as columns, so that those of ten thousand partitions take no object each."""

    topics: list[str]
    partitions: list[int]
    starts: list[int]
    ends: list[int]
    bytes: list[int]

    @staticmethod
    def of(slices: Iterable[Slice]) -> Slices:
        """The columns of these."""
        columns = list(map(list, zip(*slices, strict=True))) or [[] for _ in Slice._fields]
        return Slices(*columns)

    def __len__(self) -> int:
        return len(self.topics)

    def __iter__(self) -> Iterator[Slice]:
        columns = self.topics, self.partitions, self.starts, self.ends, self.bytes
        return map(Slice._make, zip(*columns, strict=True))

    @property
    def rows(self) -> list[int]:
        """Of each slice."""
        return list(map(sub, self.ends, self.starts))

    def part(self, first: int, stop: int) -> Slices:
        """Those from ``first`` up to ``stop``."""
        return Slices(
            self.topics[first:stop],
            self.partitions[first:stop],
            self.starts[first:stop],
            self.ends[first:stop],
            self.bytes[first:stop],
        )


class StoredBatches(Protocol):
    """The stored batches of a log."""

    def sizes(
        self, topics: list[str], partitions: list[int], starts: list[int], ends: list[int]
    ) -> list[int]:
        """The stored bytes of each range [start, end) of a partition; by one question."""

    def split(self, spans: Sequence[Span]) -> list[list[Range]]:
        """For each span its pieces, in order, from its start; by one question."""


def measured(slices: Slices, log: StoredBatches) -> Slices:
    """The same with their stored bytes, by one question."""
    slices.bytes = log.sizes(slices.topics, slices.partitions, slices.starts, slices.ends)
    return slices


def ranges(starts: Positions, ends: Positions) -> Slices:
    """The partitions that have something to read, one slice each; their bytes are not known yet."""
    found = Slices([], [], [], [], [])
    for topic in sorted(ends):
        numbers = sorted(ends[topic])
        begins = list(map(starts[topic].__getitem__, numbers))
        stops = list(map(ends[topic].__getitem__, numbers))
        are_read = list(map(lt, begins, stops))
        found.topics += [topic] * sum(are_read)
        found.partitions += itertools.compress(numbers, are_read)
        found.starts += itertools.compress(begins, are_read)
        found.ends += itertools.compress(stops, are_read)
    found.bytes = [0] * len(found.topics)
    return found


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


def plan(starts: Positions, ends: Positions, log: StoredBatches, shape: Shape = Shape()) -> Slices:
    """Cut [starts, ends) into slices of 16 to 64 MiB, or as small as ``shape`` wants them.

    Every record is in exactly one slice, in order.
    """
    slices = measured(ranges(starts, ends), log)
    target = _size(sum(slices.bytes), shape.cores)
    if max(slices.bytes, default=0) > min(target, shape.most_bytes or target):
        slices = Slices.of(_smaller(list(slices), log, target, shape))
    most_rows = shape.most_rows
    if most_rows is not None and max(slices.rows, default=0) > most_rows:
        parts = (_by_rows(one, -(-one.rows // most_rows)) for one in slices)
        slices = Slices.of(itertools.chain.from_iterable(parts))
    if len(slices) < shape.least:
        slices = Slices.of(_spread(list(slices), shape.least))
    return slices


def _smaller(wholes: list[Slice], log: StoredBatches, target: int, shape: Shape) -> Iterable[Slice]:
    if shape.most_bytes is not None:
        return _within(wholes, log, min(target, shape.most_bytes))
    slices = _cut(wholes, log, target, target)
    most = max(MOST_TASKS, shape.least)
    return (
        _merge(slices, sum(s.bytes for s in slices) // most + 1) if len(slices) > most else slices
    )


def _size(total: int, cores: int) -> int:
    """Bytes of each task, of so many in all."""
    tasks = min(total // LEAST_BYTES, TASKS_PER_CORE * cores)
    tasks = max(tasks - tasks % cores if tasks > cores else tasks, -(-total // MOST_BYTES), 1)
    return max(-(-total // tasks), LEAST_BYTES)


def together(slices: Slices, shape: Shape = Shape()) -> list[Slices]:
    """The slices of each task: one, or of very many that read little some neighbours, as far as
    ``shape`` allows it."""
    tasks = max(MANY_TASKS, shape.least)
    if len(slices) <= tasks:
        borders = list(range(len(slices) + 1))
    else:
        borders = [len(slices) * number // tasks for number in range(tasks + 1)]
        most_bytes = min(LITTLE_BYTES, shape.most_bytes or LITTLE_BYTES)
        borders = list(_finer(slices, borders, most_bytes, shape.most_rows or WHOLE))
    return [slices.part(first, stop) for first, stop in itertools.pairwise(borders)]


def _finer(slices: Slices, borders: list[int], most_bytes: int, most_rows: int) -> Iterable[int]:
    """These borders, and more where the slices between two are more than a task may have."""
    bytes_before = list(itertools.accumulate(slices.bytes, initial=0))
    rows_before = list(itertools.accumulate(slices.rows, initial=0))
    for first, stop in itertools.pairwise(borders):
        while first < stop:
            yield first
            within = bisect_right(bytes_before, bytes_before[first] + most_bytes)
            within = min(within, bisect_right(rows_before, rows_before[first] + most_rows)) - 1
            first = min(max(within, first + 1), stop)
    yield len(slices)


def _within(wholes: list[Slice], log: StoredBatches, limit: int) -> list[Slice]:
    """Slices of up to ``limit`` bytes, as full as an eighth of it can fill them, or of one stored
    batch."""
    parts = wholes
    for target in (max(1, limit // 8), 1):
        parts = _cut(parts, log, target, limit)
    return list(_merge(parts, limit)) if parts else []


def _cut(wholes: list[Slice], log: StoredBatches, target: int, limit: int) -> list[Slice]:
    """Those above ``limit`` bytes in even pieces of up to ``target``, or as stored batches allow;
    all by one question, the rest of long answers by more."""
    parts: dict[Slice, list[Slice]] = {whole: [] for whole in wholes}
    open_wholes = [whole for whole in wholes if whole.bytes > limit]
    while open_wholes:
        rests = [
            whole._replace(start=parts[whole][-1].end) if parts[whole] else whole
            for whole in open_wholes
        ]
        answers = log.split([rest.span(_even(rest.bytes, target)) for rest in rests])
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
