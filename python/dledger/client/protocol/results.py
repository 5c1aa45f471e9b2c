"""The results of a client's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from dledger.errors import DLedgerError
from dledger.protocol.messages.membership import Ancestors
from dledger.times import datetime_of
from dledger.types import slots_dataclass

Spans = dict[str, dict[int, tuple[int, int]]]
"""topic -> partition -> (start, end)."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which group answers, as its nodes say."""

    group_id: str = ""
    """Drawn at its founding; empty for a group that is older than such ids."""
    ancestors: Ancestors = ()
    """The groups of which it is a copy: the id of each, and the last index that both share."""

    def follows(self, group_id: str) -> bool:
        """Whether it is that group or a copy of it, in which `Client.shared_offsets` tells which
        offsets hold. An unknown id is no contradiction."""
        return not group_id or self.group_id in ("", group_id) or group_id in dict(self.ancestors)


@slots_dataclass()
class Appended:
    """The records have the offsets [start, end).

    A producer cuts a batch too large for one entry (``max_body_bytes``, less 1 KiB). Records of
    others may lie between the pieces; ``end - start`` is then more than were appended.

    Records that went to several partitions have one of these for each in `parts`; the numbers of
    the whole are then -1.
    """

    topic: str
    partition: int
    start: int
    end: int
    several: tuple[Appended, ...] = ()

    def __repr__(self) -> str:
        if self.several:
            return f"Appended(topic={self.topic!r}, parts={list(self.several)})"
        return (
            f"Appended(topic={self.topic!r}, partition={self.partition}, start={self.start}, "
            f"end={self.end})"
        )

    @property
    def parts(self) -> tuple[Appended, ...]:
        """One for each partition, in order; of one partition, itself."""
        return self.several or (self,)

    @staticmethod
    def of(topic: str, parts: Iterable[tuple[int, int, int]]) -> Appended:
        """Of pieces (partition, start, end), of which a partition may have several."""
        spans: dict[int, tuple[int, int]] = {}
        for partition, start, end in parts:
            first, last = spans.get(partition, (start, end))
            spans[partition] = min(first, start), max(last, end)
        found = tuple(Appended(topic, partition, *spans[partition]) for partition in sorted(spans))
        return found[0] if len(found) == 1 else Appended(topic, -1, -1, -1, found)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one batch of a producer: its records have the offsets [start, end), or none,
    both -1, where there is an ``error``."""

    topic: str
    partition: int
    records: int
    start: int = -1
    end: int = -1
    error: DLedgerError | None = None


OnDelivery = Callable[[Delivery], object]
"""Told of each batch of a producer."""


class Promise(Protocol):
    """A future, of threads or of asyncio."""

    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction's end. ``repeated``: it was committed already, and nothing was changed now.

    ``offsets``: topic -> partition -> (start, end) of its records; empty for a repeat of a commit
    that a later one of the same writer has overtaken. ``committed_ms``: of the repeat of a write
    with a digest, when it was committed; 0 where that is not known. ``checked``: False when that
    commit has left no digest to hold the repeat against.
    """

    repeated: bool
    offsets: Spans = field(default_factory=dict)
    records: int = 0
    committed_ms: int = 0
    checked: bool = True

    @property
    def committed(self) -> datetime | None:
        """`committed_ms` as a datetime in UTC; None where it is 0."""
        return datetime_of(1000 * self.committed_ms) if self.committed_ms else None


def spans_of(row: Mapping[str, Any]) -> Spans:
    """The ``offsets`` of a commit as they come from a node."""
    return {
        topic: {number: (span[0], span[1]) for number, span in found.items()}
        for topic, found in row.get("offsets", {}).items()
    }


class Span(NamedTuple):
    """Offsets [start, end) of a partition, to be cut into pieces of about ``target_bytes``,
    ``max_pieces`` at most."""

    topic: str
    partition: int
    start: int
    end: int
    target_bytes: int
    max_pieces: int = 10_000


class Range(NamedTuple):
    """A piece [start, end) of a partition and its stored bytes."""

    start: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets that a consumer group has processed: topic -> partition -> next offset."""

    name: str
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
