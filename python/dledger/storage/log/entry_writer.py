"""Writing entries into the data files, and telling the index where they lie; and the entries that
no store writes."""

from __future__ import annotations

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import MAGIC_BLANK, LogEnd, place
from dledger.protocol.messages.entry_runs import Entries, count_following
from dledger.storage.log.index import LogIndex
from dledger.storage.log.segments import SegmentFiles
from dledger.types import Buffer, Term


def check_append(end: LogEnd, entries: Entries, segment_bytes: int, current_term: Term) -> None:
    """Entries must continue the log in index, term, pos and chain of checksums, and be of no term
    that the hard state has not got to; else nothing may be written.

    Raises:
        CorruptStore: which entry does not, and how.
    """
    if (last := entries.runs[-1]).term > current_term:
        raise CorruptStore(
            f"entry {last.last} is of term {last.term}, but the hard state says "
            f"term {current_term}: "
            "the hard state is saved before entries of its term are written; nothing was written"
        )
    if entries.follows is end:  # the leader stamped them behind it, or a follower has checked that
        return
    count = count_following(end, entries, segment_bytes)
    if count == len(entries):
        return
    stray, before = entries[count], LogEnd.after(entries[count - 1]) if count else end
    index, due = before.position.index + 1, place(before.end_pos, stray.size, segment_bytes)
    if stray.index == index and stray.pos == due and stray.term >= before.position.term:
        raise CorruptStore(
            f"entry {stray.index}: its chainCrc does not continue that of the entry before "
            "it, so it belongs to another log; nothing was written"
        )
    raise CorruptStore(
        f"entry {stray.index} of term {stray.term} at pos {stray.pos} does not continue the log: "
        f"entry {index} at {due}, of term {before.position.term} or a later one, is due; nothing "
        "was written"
    )


def write_entries(data: SegmentFiles, index: LogIndex, end_pos: int, entries: Entries) -> None:
    """Write entries that follow the log's end at ``end_pos``; all files that they need are there.
    Raises OSError."""
    buffers: list[Buffer] = []
    at = pos = end_pos
    for run in entries.runs:
        if run.pos != pos:  # the rest of the file is padding
            buffers += (
                MAGIC_BLANK.to_bytes(4, "big", signed=True),
                (run.pos - pos).to_bytes(4, "big"),
            )
            data.pwritev(at, buffers)
            buffers, at = [], run.pos
        buffers += run.pieces
        pos = run.end_pos
    data.pwritev(at, buffers)
    index.add(entries.runs)
