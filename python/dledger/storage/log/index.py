"""The index files: for each entry 32 bytes (magic, pos, size, index, term) at byte ``index * 32``.

They hold nothing that the data files do not, so an append waits neither for a write nor for a sync
of them: the newest units stay in memory until there are many. A unit that is read here is checked
against the data before it is believed; one that does not fit is rebuilt from the data.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from dledger.compiled import compiled
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.zeros import first_nonzero
from dledger.types import Index, Term, slots_dataclass

WAITING_UNITS: Final = 512
"""Units are written when so many of them wait: more would hold up the append that writes them."""
UNIT: Final = struct.Struct(">iqiqq")
UNIT_SIZE: Final = 32
assert UNIT.size == UNIT_SIZE


@slots_dataclass()
class LogIndexUnit:
    """Where an entry lies."""

    magic: int
    pos: int
    size: int
    index: Index
    term: Term

    @staticmethod
    def of(entry: Entry) -> LogIndexUnit:
        """The one that belongs to an entry."""
        return LogIndexUnit(entry.magic, entry.pos, entry.size, entry.index, entry.term)

    @property
    def header_fields(self) -> tuple[int, ...]:
        """The first fields of the entry's header, which say the same."""
        return (self.magic, self.size, self.index, self.term, self.pos)

    def pack(self) -> bytes:
        return UNIT.pack(self.magic, self.pos, self.size, self.index, self.term)


@compiled
def pack_units(starts: Sequence[int], magic: int, pos: int, index: int, term: int) -> bytes:
    """The units of the entries of a run, whose first one has this position and index; see
    `dledger.protocol.messages.entry_bytes`."""
    pack = UNIT.pack
    units = [
        pack(magic, pos + start, stop - start, index + at, term)
        for at, (start, stop) in enumerate(pairwise(starts))
    ]
    return b"".join(units)


class WaitingRun(NamedTuple):
    """The units of a run that are not written yet, as the arguments of `pack_units`: nothing that
    keeps the entries' bytes in memory."""

    starts: Sequence[int]
    magic: int
    pos: int
    first: int
    term: int

    def unit(self, index: int) -> LogIndexUnit:
        """The unit of an entry of this run."""
        start, stop = self.starts[index - self.first : index - self.first + 2]
        return LogIndexUnit(
            self.magic, self.pos + start, stop - start, Index(index), Term(self.term)
        )


_first_of = itemgetter(3)


class LogIndex:
    """Units by entry index, over ``index/``."""

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self._waiting: list[WaitingRun] = []
        """In the order of the log. Changed under the writer's lock; who reads it without has that
        list, whose units are in the file before another list takes its place."""
        self._count = 0

    def get(self, index: int) -> LogIndexUnit | None:
        """The unit of an entry, or None when there is none that names this entry."""
        waiting = self._waiting
        if waiting and index >= waiting[0].first:
            run = waiting[bisect_right(waiting, index, key=_first_of) - 1]
            return run.unit(index) if index - run.first < len(run.starts) - 1 else None
        offset = index * UNIT_SIZE
        if not self.files.has(offset):
            return None
        data = self.files.pread(offset, UNIT_SIZE)
        if len(data) < UNIT_SIZE:
            return None
        unit = LogIndexUnit(*UNIT.unpack(data))
        return unit if unit.index == index and unit.magic > 0 and unit.size > 0 else None

    def add(self, runs: Sequence[EntryRun]) -> None:
        """These runs were appended; their units' files have blocks already (`reserve`)."""
        for run in runs:
            self._waiting.append(WaitingRun(run.starts, run.magic, run.pos, run.index, run.term))
            self._count += len(run.starts) - 1
        if self._count >= WAITING_UNITS:
            self.write()

    def write(self) -> None:
        """Hand the waiting units to the files."""
        waiting = self._waiting
        if waiting:
            self.put(waiting[0].first, b"".join(pack_units(*run) for run in waiting))
            self._waiting, self._count = [], 0

    def reserve(self, first: int, count: int) -> None:
        """Make the files of the units of ``count`` entries from ``first`` on, with blocks."""
        self.files.reserve(first * UNIT_SIZE, (first + count) * UNIT_SIZE)

    def put(self, first: int, units: bytes) -> None:
        """Write the units of consecutive entries; their files have blocks already (`reserve`)."""
        at, offset, file_size = 0, first * UNIT_SIZE, self.files.file_size
        while at < len(units):
            size = min(len(units) - at, file_size - (offset + at) % file_size)
            self.files.pwritev(offset + at, [units[at : at + size]])
            at += size

    def cut_behind(self, index: int) -> None:
        """No unit stands behind that of ``index``."""
        self.write()
        offset, starts = (index + 1) * UNIT_SIZE, self.files.starts
        if starts and first_nonzero(self.files, max(offset, starts[0])) is not None:
            self.files.drop_behind(offset)
            if self.files.has(offset):
                self.files.cut(offset)

    def drop_front(self, index: int) -> None:
        """Delete the files in front of the one that has the unit of ``index``. Waiting units may
        belong there, and would find no file later."""
        self.write()
        self.files.drop_front(index * UNIT_SIZE)

    def put_again(self, entry: Entry) -> bool:
        """Write an entry's unit also when it stands there, because the unit read may be a page that
        an earlier sync left unwritten (D15); returns whether it was not there."""
        unit, offset = LogIndexUnit.of(entry).pack(), entry.index * UNIT_SIZE
        there = self.files.has(offset) and self.files.pread(offset, UNIT_SIZE) == unit
        self.reserve(entry.index, 1)
        self.put(entry.index, unit)
        return not there
