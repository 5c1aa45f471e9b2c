"""Putting a sound copy of a damaged entry back in its place."""

from __future__ import annotations

from dledger.errors import CorruptEntry
from dledger.messages.entry import HEADER_SIZE, Entry, body_is_sound
from dledger.store.logindex import LogIndex
from dledger.store.reader import Reader, View
from dledger.store.scan import Chain
from dledger.store.segments import SegmentFiles
from dledger.types import Index


def write_repaired(data: SegmentFiles, index: LogIndex, reader: Reader, view: View, entry: Entry) -> None:
    """Write the entry over the damaged one, if both its neighbours agree that it belongs there; durable on return.

    Raises:
        CorruptEntry: they do not, or its own checksums do not match.
    """
    where = f"entry {entry.index} at pos {entry.pos}"
    if not view.begin_index <= entry.index <= view.end.position.index or not body_is_sound(entry):
        raise CorruptEntry(f"{where}: not an entry of this log, or damaged itself")
    before = reader.chain_before(entry.index, view)
    if before is not None and not before.follows(entry):
        raise CorruptEntry(f"{where}: it does not follow the entry before it, so it is of another log")
    unit = reader.locate(entry.index, view)
    last = entry.index == view.end.position.index
    if last:
        fits = (entry.end_pos, entry.chain_crc, entry.term) == (
            view.end.end_pos,
            view.end.chain_crc,
            view.end.position.term,
        )
    else:
        following = reader.header_of(Index(entry.index + 1), view)
        fits = following is not None and Chain(entry.chain_crc).follows(following)
    if unit.pos != entry.pos or not fits:
        raise CorruptEntry(f"{where}: the entry behind it does not follow it, so it is of another log")
    data.pwritev(entry.pos, [bytes(entry.header[:HEADER_SIZE]), entry.body])
    data.file(entry.pos).fdatasync()
    index.put_again(entry)
