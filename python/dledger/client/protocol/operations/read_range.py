"""The range of a read: known by what the client has seen, or asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.offsets import topic_offsets
from dledger.client.protocol.operations.topics import topic
from dledger.client.protocol.reading.reading import check_partition
from dledger.errors import OffsetOutOfRange
from dledger.protocol.messages.client import OffsetKind, TopicInfo


class AskedRange(NamedTuple):
    """The arguments of a read. Without ``end``: up to the end at the time of the call, or for
    ever."""

    topic: str
    partition: int
    start: int
    end: int | None
    follow: bool


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Where a read goes, and up to which offset; None for a reader that follows."""

    info: TopicInfo
    end: int | None
    is_remembered: bool = False
    """By this client alone: the topic may be gone, or be another one of that name."""

    def may_be_stale(self, asked: AskedRange, position: int) -> bool:
        """Whether a reader that is told at ``position`` that there is no such topic should ask what
        there is now: not once it has read records of the one that was there."""
        return self.is_remembered and position == asked.start


def read_range(core: ClientState, asked: AskedRange) -> Operation[ReadRange]:
    """Asks for nothing where this client has seen the topic and all of the range, so that the read
    takes one round trip; raises as `asked_range`."""
    name, partition, start, end, _ = asked
    if partition >= 0 and end is not None and 0 <= start <= end:
        info = core.seen_topic(name, partition)
        if info is not None and core.ends.has_reached(info, partition, end):
            return ReadRange(info, end, is_remembered=True)
    return (yield from asked_range(core, asked))


def asked_range(core: ClientState, asked: AskedRange) -> Operation[ReadRange]:
    """The topic as it is now, and where a read of it ends.

    Raises:
        TopicNotFound: there is none.
        OffsetOutOfRange: the partition does not have that range.
    """
    info = yield from topic(core, asked.topic)
    return ReadRange(info, (yield from _end(core, asked)))


def _end(core: ClientState, asked: AskedRange) -> Operation[int | None]:
    name, partition, start, end, follow = asked
    if follow and end is None and start >= 0:
        return None
    ends = yield from topic_offsets(core, name, OffsetKind.END)
    check_partition(name, partition, ends)
    last = ends[partition] if end is None else end
    if not 0 <= start <= ends[partition] or last > ends[partition]:
        begins = yield from topic_offsets(core, name, OffsetKind.BEGIN)
        kept = begins[partition], ends[partition]
        raise OffsetOutOfRange(
            f"topic {name!r} partition {partition} has the offsets [{kept[0]}, {kept[1]}), not "
            f"[{start}, {'end' if end is None else end})",
            *kept,
        )
    return last
