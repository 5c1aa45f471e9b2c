"""Stored batches, and how a node cuts ranges of offsets between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dledger.client import Span
from dledger.client.protocol.results import Range


def cut(batches: Iterable[tuple[int, int]], span: Span, base: int = 0) -> list[Range]:
    """Pieces of a span; each batch is (records, bytes), the first one begins at ``base``."""
    pieces: list[Range] = []
    size, begin = 0, span.start
    for count, weight in batches:
        base += count
        if base <= span.start or base - count >= span.end or span.start == span.end:
            continue
        size += weight
        if size >= span.target_bytes or base >= span.end:
            pieces.append(Range(begin, min(base, span.end), size))
            size, begin = 0, base
    return pieces[: span.max_pieces]


@dataclass
class Layout:
    batches: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
    """(topic, partition) -> (records, bytes) of each stored batch."""
    most: int = 10_000
    """Pieces of one answer."""

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), stored in self.batches.items():
            found.setdefault(topic, {})[partition] = sum(count for count, _ in stored)
        return found

    def split(self, spans: Sequence[Span]) -> list[list[Range]]:
        return [cut(self.batches[s.topic, s.partition], s)[: self.most] for s in spans]

    def sizes(
        self, topics: list[str], partitions: list[int], starts: list[int], ends: list[int]
    ) -> list[int]:
        return [
            sum(self.stored(*one)) for one in zip(topics, partitions, starts, ends, strict=True)
        ]

    def stored(self, topic: str, partition: int, start: int, end: int) -> list[int]:
        """Bytes of each stored batch that has some of these records."""
        found = cut(self.batches[topic, partition], Span(topic, partition, start, end, 1))
        return [piece.bytes for piece in found]
