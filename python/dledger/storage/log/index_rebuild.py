"""Index units written again from the data."""

from __future__ import annotations

from collections.abc import Callable

from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAX_MAGIC,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
)
from dledger.storage.log.index import LogIndex, LogIndexUnit
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.walker import Bad, Finish, Padding, Walker, blank
from dledger.storage.meta.recovery_point import before_first
from dledger.types import NO_INDEX, Index, Term


def header_at(data: SegmentFiles, pos: int) -> tuple[int, ...]:
    """The fields of the header at ``pos``; zeros where its file ends before."""
    head = data.pread(pos, HEADER_SIZE)
    return HEADER.unpack(head) if len(head) == HEADER_SIZE else (0,) * 9


def first_index(data: SegmentFiles, start: int) -> Index | None:
    """The index of the entry that a data file starts with, if its header can be believed."""
    magic, _, index, _, pos, *_ = header_at(data, start)
    return Index(index) if 1 <= magic <= MAX_MAGIC and pos == start and index >= 0 else None


def rebuild_index(
    data: SegmentFiles,
    index: LogIndex,
    start: int,
    stop: LogEnd,
    begin: LogEnd,
    until: int = NO_INDEX,
    on_damage: Callable[[Bad], None] | None = None,
) -> tuple[int, LogIndexUnit | None]:
    """Write the units of one data file's entries again wherever they differ; returns how many did,
    and the one of the entry ``until``, should that be sound.

    Args:
        stop: where the log is known to end.
        begin: the place before the first kept entry; chain_crc -1: unknown.
        until: go on at least to this entry, also in a later file.
        on_damage: told each damage on the way.
    """
    # The walk counts indexes from its first entry, and a file's first header may be the damaged
    # one. So it begins at a file whose first index the entry before confirms.
    files = range(start, begin.end_pos, -data.file_size)
    vouched = (_vouched_start(data, index, file) for file in files)
    rebuilt, wanted = 0, None
    walker = Walker(data, next(filter(None, vouched), begin), known=stop)
    for event in walker.walk():
        if isinstance(event, Padding):
            continue
        if isinstance(event, Finish):
            break
        if event.pos >= stop.end_pos or (
            event.pos >= start + data.file_size and walker.end.position.index > until
        ):
            break
        if isinstance(event, Entry):
            rebuilt += index.put_again(event)
            if event.index == until:
                wanted = LogIndexUnit.of(event)
        else:
            if on_damage is not None:
                on_damage(event)
            # Damage of one entry gives its place and its room; within a longer run the places are
            # unknown.
            if event.first == event.last:
                index_damaged(data, index, event, walker)
    return rebuilt, wanted


def _vouched_start(data: SegmentFiles, index: LogIndex, start: int) -> LogEnd | None:
    """The place before the entry that a file begins with. Only the entry before vouches for the
    index in the file's first header, so None unless that entry is found, with the padding to the
    end of its file."""
    first = first_index(data, start)
    unit = None if first is None else index.get(first - 1)
    if first is None or unit is None or not data.has(unit.pos):
        return None
    fields, end = header_at(data, unit.pos), unit.pos + unit.size
    if fields[:5] != unit.header_fields or not start - data.file_size < end < start:
        return None
    if data.pread(end, MIN_BLANK_SIZE) != blank(start - end):
        return None
    return before_first(first, start, fields[6])


def index_damaged(data: SegmentFiles, index: LogIndex, event: Bad, walker: Walker) -> None:
    """Keep a damaged entry findable, so that it can be named and repaired: its place is known, its
    size mostly. A unit that the index has already is better than the fields of a damaged header."""
    known, room = index.get(event.first), event.resume - event.pos
    if known is None or known.pos != event.pos or not HEADER_SIZE <= known.size <= room:
        index.reserve(event.first, 1)
        index.put(event.first, damaged_unit(data, event, walker).pack())


def damaged_unit(data: SegmentFiles, event: Bad, walker: Walker) -> LogIndexUnit:
    """The index unit of one damaged entry, as far as its header can be believed; its term is one
    that can be between those of its neighbours."""
    room = event.resume - event.pos
    fields = header_at(data, event.pos)
    sizes = [size for size in (fields[1], fields[8] + HEADER_SIZE) if HEADER_SIZE <= size <= room]
    # The size that ends where the log goes on is the right one. A smaller one may be followed by
    # padding.
    size = room if room in sizes or not sizes else sizes[0]
    before = walker.end.position.term
    behind = walker.entry_at(event.resume) if data.has(event.resume) else ""
    top = behind.term if isinstance(behind, Entry) else before
    # Terms never fall, so the term lies between those of the neighbours, or the field is damaged.
    term = fields[3] if before <= fields[3] <= top else before if before >= 0 else max(top, 0)
    return LogIndexUnit(max(fields[0], 1), event.pos, size, event.first, Term(term))


def size_at(data: memoryview, at: int) -> int:
    """The size field of the header at ``at``; the least possible one when it is not all there or
    absurd."""
    if at < 0 or at + HEADER_SIZE > len(data):
        return HEADER_SIZE
    size: int = HEADER.unpack_from(data, at)[1]
    return max(size, HEADER_SIZE)
