"""Sound entries in bytes that were read ahead, many at once.

Most of a log is sound, and looking at its entries one by one costs ten times as much. Here only
what is sound is passed; why something else is not, `dledger.storage.log.walker.Walker` finds out.
"""

from __future__ import annotations

from typing import Final

from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAX_MAGIC,
    MIN_BLANK_SIZE,
    LogEnd,
    body_is_sound,
)
from dledger.protocol.messages.entry_bytes import count_chained
from dledger.protocol.messages.entry_runs import Entries, EntryRun, bodies_are_sound
from dledger.types import Index, Term

MOST: Final = 256
"""Entries of a run. Behind each damaged entry a run begins anew, and so many headers are looked at
again in vain at most."""


def sound_run(data: bytes, begin: int, end: LogEnd, room: int) -> EntryRun | None:
    """The run from the place ``begin`` in ``data`` on, right behind ``end``, of entries that are
    sound in header, chain and body, and have checksums; None when there is none.

    Args:
        end: the end before them, with the chainCrc that they go on from; its ``end_pos`` is the
            place of the first one in the log.
        room: bytes from there to the end of its file.
    """
    first, pos, unpack = Index(end.position.index + 1), end.end_pos, HEADER.unpack_from
    most = min(len(data) - begin, room - MIN_BLANK_SIZE)
    if most < HEADER_SIZE:
        return None
    magic, _, _, term, *_ = unpack(data, begin)
    if not 1 <= magic <= MAX_MAGIC or term < end.position.term:
        return None
    starts, at, index = [0], 0, first
    while at + HEADER_SIZE <= most and len(starts) <= MOST:
        fields = unpack(data, begin + at)
        size, body_size = fields[1], fields[8]
        if (fields[0], *fields[2:6]) != (magic, index, term, pos + at, 0):
            break
        if size != body_size + HEADER_SIZE or body_size < 0 or at + size > most:
            break
        if not fields[6] and not fields[7]:
            break
        at += size
        index = Index(index + 1)
        starts.append(at)
    piece = memoryview(data)[begin : begin + at]
    count, _ = count_chained(piece, starts, len(starts) - 1, end.chain_crc)
    if not count:
        return None
    stop, last = starts[count], Index(first + count - 1)
    run = EntryRun(
        first, last, Term(term), magic, pos, pos + stop, starts[: count + 1], (piece[:stop],)
    )
    if bodies_are_sound(Entries((run,))):
        return run
    sound = next(at for at in range(count) if not body_is_sound(run.entry(at)))
    return run.cut(0, sound) if sound else None
