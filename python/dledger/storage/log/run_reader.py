"""Many neighbouring entries at once: as the runs that go over the wire, without an object for each.

The index says where they lie, headers and checksums whether that is true. Whatever is not as it
should be is left to the reader of single entries, which names it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import accumulate
from typing import Final

from dledger.protocol.messages.entry import HEADER_SIZE, MAX_MAGIC, LogEnd
from dledger.protocol.messages.entry_runs import (
    Entries,
    bodies_are_sound,
    count_following,
    read_entries,
)
from dledger.storage.log.index import UNIT_SIZE, LogIndex, LogIndexUnit
from dledger.storage.log.segments import SegmentFiles
from dledger.types import NO_TERM, Index, Position

LEAST_BYTES: Final = 64 << 10
"""From so many on this is worth its second look at the index."""
MOST_UNITS: Final = 16 << 10
WORD: Final = 4
SIZE_AT: Final = 3
"""Where in a unit, in words of 4 bytes, the size of its entry is."""


def read_runs(
    data: SegmentFiles,
    index: LogIndex,
    first: LogIndexUnit,
    chain_crc: int,
    end_pos: int,
    max_bytes: int,
    most: int,
) -> Entries | None:
    """At most ``most`` entries and ``max_bytes`` from that of ``first`` on, all in one file and in
    front of ``end_pos``; None where that cannot be had so.

    ``chain_crc``: that of the entry before.
    """
    room = data.file_size - first.pos % data.file_size
    limit = min(max_bytes, room, end_pos - first.pos)
    count = min(most, limit // max(first.size, HEADER_SIZE) + 1, MOST_UNITS)
    packed = packed_sizes(index, first.index, count)
    sizes = struct.unpack(f">{len(packed) // WORD}I", packed)
    if 0 in sizes:  # units that are not written yet
        sizes = sizes[: sizes.index(0)]
    ends = [*accumulate(sizes)]
    fitting = bisect_right(ends, limit)
    if not fitting:
        return None
    packed = packed[: fitting * WORD]
    try:
        found = read_entries(data.pread(first.pos, ends[fitting - 1]), packed)
    except (ValueError, struct.error):
        return None
    before = LogEnd(Position(NO_TERM, Index(first.index - 1)), first.pos, chain_crc)
    is_sound = (
        all(1 <= run.magic <= MAX_MAGIC for run in found.runs)
        and count_following(before, found, data.file_size) == len(found)
        and bodies_are_sound(found)
    )
    if not is_sound:
        return None
    found.packed_sizes = packed
    return found


def packed_sizes(index: LogIndex, first: int, count: int) -> bytes:
    """The sizes of entries by the index, 4 bytes each, as far as one of its files has them; what
    stands there need not be true."""
    offset, file_size = first * UNIT_SIZE, index.files.file_size
    if not index.files.has(offset):
        return b""
    units = index.files.pread(offset, min(count * UNIT_SIZE, file_size - offset % file_size))
    words = memoryview(units[: len(units) // UNIT_SIZE * UNIT_SIZE]).cast("I")
    return words[SIZE_AT :: UNIT_SIZE // WORD].tobytes()
