"""Writing entries into the data files, and where they lie into the index."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.protocol.messages.entry import MAGIC_BLANK, Entry
from dledger.storage.log.index import LogIndex, unit_of
from dledger.storage.log.segments import SegmentFiles
from dledger.types import Buffer


def write_entries(
    data: SegmentFiles, index: LogIndex, end_pos: int, entries: Sequence[Entry]
) -> None:
    """Write entries that follow the log's end at ``end_pos``; all files that they need are there.
    Raises OSError."""
    buffers: list[Buffer] = []
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
    data.pwritev(at, buffers)
    index.put(entries[0].index, list(map(unit_of, entries)))
