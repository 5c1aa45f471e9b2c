"""Runs: neighbouring entries in one piece of bytes, from a leader's stamp to disks and catalogs.

An entry of a run lies right behind the one before it, header and body, as in a segment file. All
are of one term and one magic, and no padding is between them. So index, term, position and place of
each follow from those of the first, and no object is made for an entry unless one is asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Final, SupportsIndex, overload

from dledger.protocol.messages.entry import (
    HEADER_SIZE,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    place,
    stamp,
    too_large,
)
from dledger.protocol.messages.entry_bytes import (
    any_body_begins,
    bodies_match,
    count_chained,
    crcs_at,
    split_runs,
    stamp_bodies,
)
from dledger.types import NO_INDEX, Buffer, Index, Position, Term, slots_dataclass

LARGE_BODY: Final = 32 << 10
"""A body of this size is a run by itself: its bytes are not copied."""


@slots_dataclass()
class EntryRun:
    """One run; see above. ``index`` and ``pos`` are the first entry's, ``last`` is the last one's
    index, and ``end_pos`` the byte of the log behind it; ``starts`` the place of each in the run's
    bytes and, last, their number. ``pieces`` are those bytes; of one entry alone, its header and
    its body may be two pieces."""

    index: Index
    last: Index
    term: Term
    magic: int
    pos: int
    end_pos: int
    starts: Sequence[int]
    pieces: tuple[Buffer, ...]

    @staticmethod
    def of(entry: Entry) -> EntryRun:
        """A run of one."""
        index, size = entry.index, entry.size
        place, pieces = (entry.pos, entry.pos + size), (entry.header, entry.body)
        return EntryRun(index, index, entry.term, entry.magic, *place, (0, size), pieces)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def end(self) -> LogEnd:
        """The end of a log that ends with this run."""
        at = 0 if len(self.pieces) > 1 else self.starts[-2]
        chain_crc, _ = crcs_at(self.pieces[0], at)
        return LogEnd(Position(self.term, self.last), self.end_pos, chain_crc)

    def entry(self, at: int) -> Entry:
        """The entry at this place in the run."""
        header, data = self.pieces[0], self.body(at)
        if len(self.pieces) == 1:
            start = self.starts[at]
            header = memoryview(header)[start : start + HEADER_SIZE]
        chain_crc, body_crc = crcs_at(header)
        index, pos = Index(self.index + at), self.pos + self.starts[at]
        return Entry(index, self.term, self.magic, pos, chain_crc, body_crc, header, data)

    def body(self, at: int) -> Buffer:
        """The body of the entry at this place in the run."""
        if len(self.pieces) > 1:
            return self.pieces[1]
        starts = self.starts
        return memoryview(self.pieces[0])[starts[at] + HEADER_SIZE : starts[at + 1]]

    def has_body_with(self, prefix: bytes) -> bool:
        """Whether the body of one begins with these bytes."""
        if len(self.pieces) > 1 or not prefix:
            return bool(self.pieces[-1][: len(prefix)] == prefix)
        return any_body_begins(self.pieces[0], self.starts, prefix)

    def cut(self, begin: int, end: int) -> EntryRun:
        """The part of the run from one place to another; at least one entry."""
        if end - begin == len(self.starts) - 1:
            return self
        first, stop = self.starts[begin], self.starts[end]
        starts = [start - first for start in self.starts[begin : end + 1]]
        pieces = (memoryview(self.pieces[0])[first:stop],)
        first_index, last = Index(self.index + begin), Index(self.index + end - 1)
        place = self.pos + first, self.pos + stop
        return EntryRun(first_index, last, self.term, self.magic, *place, starts, pieces)


class Entries(Sequence[Entry]):
    """Consecutive entries, kept as runs; makes an `Entry` where one is asked for."""

    __slots__ = (
        "_count", "_end", "first_index", "follows", "last_index", "packed_sizes", "runs", "span",
    )  # fmt: skip

    def __init__(self, runs: tuple[EntryRun, ...]) -> None:
        self.runs = runs
        self.follows: LogEnd | None = None
        """The end that they are known to go right behind, as `count_following` has it; None: that
        is still to be found out."""
        self._end: LogEnd | None = None
        self.first_index, self.last_index = NO_INDEX, NO_INDEX
        self._count = self.span = 0
        """Of the span: bytes of the log from the first one to the end of the last, with the padding
        between."""
        self.packed_sizes: bytes | None = None
        """As `pack_sizes` has it; kept, because each follower is sent the same entries."""
        if runs:
            self.first_index, self.last_index = runs[0].index, runs[-1].last
            self.span = runs[-1].end_pos - runs[0].pos
            one = len(runs) == 1  # else there may be gaps between them, where they are refused
            self._count = len(runs[0].starts) - 1 if one else sum(map(len, runs))

    @staticmethod
    def of(entries: Sequence[Entry]) -> Entries:
        """The same entries; each is a run by itself where they come from elsewhere."""
        if isinstance(entries, Entries):
            return entries
        return Entries(tuple(map(EntryRun.of, entries)))

    @property
    def end(self) -> LogEnd:
        """The end of a log that ends with them: one object, whoever asks."""
        if self._end is None:
            self._end = self.runs[-1].end
        return self._end

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for run in self.runs:
            for at in range(len(run)):
                yield run.entry(at)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Entries: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Entry | Entries:
        if isinstance(at, slice):
            begin, end, step = at.indices(self._count)
            assert step == 1, "runs go forwards"
            return self._part(begin, end)
        place = range(self._count)[at]
        for run in self.runs:
            if place < len(run):
                return run.entry(place)
            place -= len(run)
        raise IndexError(at)

    def _part(self, begin: int, end: int) -> Entries:
        if end - begin == self._count:
            return self
        runs: list[EntryRun] = []
        for run in self.runs:
            count = len(run)
            if max(begin, 0) < min(end, count):
                runs.append(run.cut(max(begin, 0), min(end, count)))
            begin, end = begin - count, end - count
        return Entries(tuple(runs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return f"Entries{tuple(map(str, self))}"


NO_ENTRIES: Final = Entries(())


def stamp_all(
    end: LogEnd, term: Term, magic: int, bodies: Iterable[Buffer], segment_size: int
) -> Entries:
    """The entries that put ``bodies``, one behind the other, right behind ``end``.

    Raises:
        ValueError: one does not fit a file of ``segment_size`` bytes.
    """
    bodies = bodies if isinstance(bodies, list | tuple) else list(bodies)
    runs: list[EntryRun] = []
    begin, at, count = end, 0, len(bodies)
    while at < count:
        length = len(bodies[at])
        if length >= LARGE_BODY:
            run = EntryRun.of(stamp(end, term, magic, bodies[at], segment_size))
            end, stamped = run.end, 1
        else:
            pos = place(end.end_pos, HEADER_SIZE + length, segment_size)
            room, index = segment_size - pos % segment_size, Index(end.position.index + 1)
            data, starts, chain_crc = stamp_bodies(
                bodies, at, LARGE_BODY, room, magic, term, index, pos, end.chain_crc
            )
            stamped = len(starts) - 1
            if not stamped:
                raise too_large(HEADER_SIZE + length, segment_size)
            last, end_pos = Index(index + stamped - 1), pos + starts[-1]
            run = EntryRun(index, last, term, magic, pos, end_pos, starts, (data,))
            end = LogEnd(Position(term, last), end_pos, chain_crc)
        runs.append(run)
        at += stamped
    entries = Entries(tuple(runs))
    entries.follows, entries._end = begin, end
    return entries


def read_entries(payload: Buffer, sizes: Buffer) -> Entries:
    """Entries that came one behind the other, of these sizes, 4 bytes each; checks shape, not
    checksums. They keep ``payload`` alive.

    Raises:
        ValueError: the sizes do not agree with one another.
    """
    view, runs = memoryview(payload).toreadonly(), []
    for index, term, magic, pos, begin, starts in split_runs(payload, sizes):
        size, last = starts[-1], Index(index + len(starts) - 2)
        place, pieces = (pos, pos + size), (view[begin : begin + size],)
        runs.append(EntryRun(Index(index), last, Term(term), magic, *place, starts, pieces))
    return Entries(tuple(runs))


def pack_sizes(entries: Sequence[Entry]) -> bytes:
    """The sizes of entries, 4 bytes each, as messages tell them."""
    whole = entries if type(entries) is Entries else Entries.of(entries)
    if whole.packed_sizes is None:
        sizes: list[int] = []
        for run in whole.runs:
            sizes += map(sub, run.starts[1:], run.starts)
        whole.packed_sizes = struct.pack(f">{len(sizes)}I", *sizes)
    return whole.packed_sizes


def pieces_of(entries: Sequence[Entry]) -> list[Buffer]:
    """The bytes of entries, one behind the other."""
    return pieces_and_size(entries)[0]


def pieces_and_size(entries: Sequence[Entry]) -> tuple[list[Buffer], int]:
    """The bytes of entries, one behind the other, and how many these are."""
    pieces, size = list[Buffer](), 0
    for run in (entries if type(entries) is Entries else Entries.of(entries)).runs:
        pieces += run.pieces
        size += run.starts[-1]
    return pieces, size


def count_following(end: LogEnd, entries: Entries, segment_size: int) -> int:
    """How many of ``entries`` go right behind one another, the first one behind ``end``: in index,
    pos and chain of checksums, with no lower term, and verified if the one before is. Bodies are
    not looked at."""
    count, index, term = 0, end.position.index, end.position.term
    pos, chain_crc = end.end_pos, end.chain_crc
    for run in entries.runs:
        if run.index != index + 1 or run.term < term:
            break
        if run.pos != place(pos, run.starts[1], segment_size):
            break
        room = segment_size - run.pos % segment_size - MIN_BLANK_SIZE
        fitting = max(0, bisect_right(run.starts, room) - 1)
        sound, chain_crc = count_chained(run.pieces[0], run.starts, fitting, chain_crc)
        count += sound
        if sound < len(run):
            break
        index, term, pos = run.last, run.term, run.end_pos
    return count


def bodies_are_sound(entries: Entries) -> bool:
    """Whether all bodies are those that the leader stamped. That of an unverified entry is taken on
    trust, as DLedger does."""
    for run in entries.runs:
        # from such a size on the library's checksum is several times as fast as the compiled one
        if len(run.pieces) > 1 or run.starts[-1] >= LARGE_BODY * len(run):
            if not all(map(body_is_sound, map(run.entry, range(len(run))))):
                return False
        elif not bodies_match(run.pieces[0], run.starts):
            return False
    return True
