"""Writing entries into the data files, and where they lie into the index; and the entries that no
store writes."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import (
    HEADER_SIZE,
    MAGIC_BLANK,
    Entry,
    LogEnd,
    chain_is_sound,
    place,
)
from dledger.storage.log.index import UNIT, LogIndex
from dledger.storage.log.segments import SegmentFiles
from dledger.types import Buffer, Term


def check_append(
    end: LogEnd, entries: Sequence[Entry], segment_bytes: int, current_term: Term
) -> None:
    """Entries must continue the log in index, term, pos and chain of checksums, and be of no term
    that the hard state has not got to; else nothing may be written.

    Raises:
        CorruptStore: which entry does not, and how.
    """
    if entries and entries[-1].term > current_term:
        raise CorruptStore(
            f"entry {entries[-1].index} is of term {entries[-1].term}, but the hard state says "
            f"term {current_term}: "
            "the hard state is saved before entries of its term are written; nothing was written"
        )
    index, term = end.position.index, end.position.term
    pos, chain = end.end_pos, end.chain_crc
    for entry in entries:
        due = place(pos, HEADER_SIZE + len(entry.body), segment_bytes)
        if entry.index != index + 1 or entry.pos != due or entry.term < term:
            raise CorruptStore(
                f"entry {entry.index} of term {entry.term} at pos {entry.pos} does not continue "
                f"the log: entry "
                f"{index + 1} at {due}, of term {term} or a later one, is due; nothing was written"
            )
        if not chain_is_sound(entry, chain) or (chain and not (entry.chain_crc or entry.body_crc)):
            raise CorruptStore(
                f"entry {entry.index}: its chainCrc does not continue that of the entry before "
                "it, so it belongs to another log; nothing was written"
            )
        index, term, pos, chain = entry.index, entry.term, entry.end_pos, entry.chain_crc


def write_entries(
    data: SegmentFiles, index: LogIndex, end_pos: int, entries: Sequence[Entry]
) -> None:
    """Write entries that follow the log's end at ``end_pos``; all files that they need are there.
    Raises OSError."""
    buffers: list[Buffer] = []
    units: list[bytes] = []
    at = pos = end_pos
    for entry in entries:
        if entry.pos != pos:  # the rest of the file is padding
            buffers += (
                MAGIC_BLANK.to_bytes(4, "big", signed=True),
                (entry.pos - pos).to_bytes(4, "big"),
            )
            data.pwritev(at, buffers)
            buffers, at = [], entry.pos
        buffers += (entry.header, entry.body)
        pos = entry.end_pos
        # as `LogIndexUnit.of` and `pack`, in one call for each entry
        units.append(UNIT.pack(entry.magic, entry.pos, pos - entry.pos, entry.index, entry.term))
    data.pwritev(at, buffers)
    index.put(entries[0].index, units)
