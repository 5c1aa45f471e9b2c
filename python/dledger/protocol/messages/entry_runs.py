"""Runs: neighbouring entries in one piece of bytes, from a leader's stamp to disks and catalogs.

An entry of a run lies right behind the one before it, header and body, as in a segment file. All
are of one term and one magic, and no padding is between them. So index, term, position and place of
each follow from those of the first, and no object is made for an entry unless one is asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, SupportsIndex, overload

from dledger.checksum import crc32
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    place,
)
from dledger.types import Buffer, Index, Position, Term, slots_dataclass

LARGE_BODY: Final = 32 << 10
"""A body of this size is a run by itself: its bytes are not copied."""
_ALL_BUT_CHAIN: Final = struct.Struct(">36s4x8s")
"""Packed again, the header has zeros in place of ``chainCrc``."""
_chain_crc_at = struct.Struct(">36xI").unpack_from
_crcs_at = struct.Struct(">36xII").unpack_from


@slots_dataclass()
class EntryRun:
    """One run; see above. ``index`` and ``pos`` are the first entry's, ``starts`` the place of each
    in the run's bytes and, last, their number. ``pieces`` are those bytes; of one entry alone, its
    header and its body may be two pieces."""

    index: Index
    term: Term
    magic: int
    pos: int
    starts: Sequence[int]
    pieces: tuple[Buffer, ...]

    @staticmethod
    def of(entry: Entry) -> EntryRun:
        """A run of one."""
        starts, pieces = (0, entry.size), (entry.header, entry.body)
        return EntryRun(entry.index, entry.term, entry.magic, entry.pos, starts, pieces)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def last(self) -> Index:
        """Index of the last entry."""
        return Index(self.index + len(self.starts) - 2)

    @property
    def end_pos(self) -> int:
        """Byte offset in the log just behind the last entry."""
        return self.pos + self.starts[-1]

    @property
    def end(self) -> LogEnd:
        """The end of a log that ends with this run."""
        at = 0 if len(self.pieces) > 1 else self.starts[-2]
        (chain_crc,) = _chain_crc_at(self.pieces[0], at)
        return LogEnd(Position(self.term, self.last), self.end_pos, chain_crc)

    def entry(self, at: int) -> Entry:
        """The entry at this place in the run."""
        header, data = self.pieces[0], self.body(at)
        if len(self.pieces) == 1:
            start = self.starts[at]
            header = memoryview(header)[start : start + HEADER_SIZE]
        chain_crc, body_crc = _crcs_at(header)
        index, pos = Index(self.index + at), self.pos + self.starts[at]
        return Entry(index, self.term, self.magic, pos, chain_crc, body_crc, header, data)

    def body(self, at: int) -> Buffer:
        """The body of the entry at this place in the run."""
        if len(self.pieces) > 1:
            return self.pieces[1]
        starts = self.starts
        return memoryview(self.pieces[0])[starts[at] + HEADER_SIZE : starts[at + 1]]

    def bodies(self) -> list[Buffer]:
        """The body of each entry."""
        if len(self.pieces) > 1:
            return [self.pieces[1]]
        view = memoryview(self.pieces[0])
        return [view[start + HEADER_SIZE : stop] for start, stop in pairwise(self.starts)]

    def body_crcs(self) -> list[int]:
        """``bodyCrc`` of each entry."""
        header = self.pieces[0]
        return [_crcs_at(header, start)[1] for start in self.starts[:-1]]

    def has_body_with(self, prefix: bytes) -> bool:
        """Whether the body of one begins with these bytes."""
        size = len(prefix)
        if len(self.pieces) > 1 or not size:
            return bool(self.pieces[-1][:size] == prefix)
        data, byte = memoryview(self.pieces[0]), prefix[-1]
        for start, stop in pairwise(self.starts):
            end = start + HEADER_SIZE + size
            # the last byte first: a slice costs more than all the rest
            if end <= stop and data[end - 1] == byte and data[end - size : end] == prefix:
                return True
        return False

    def cut(self, begin: int, end: int) -> EntryRun:
        """The part of the run from one place to another; at least one entry."""
        if end - begin == len(self.starts) - 1:
            return self
        first, stop = self.starts[begin], self.starts[end]
        starts = [start - first for start in self.starts[begin : end + 1]]
        pieces = (memoryview(self.pieces[0])[first:stop],)
        index, pos = Index(self.index + begin), self.pos + first
        return EntryRun(index, self.term, self.magic, pos, starts, pieces)


class Entries(Sequence[Entry]):
    """Consecutive entries, kept as runs; makes an `Entry` where one is asked for."""

    __slots__ = ("_count", "runs")

    def __init__(self, runs: tuple[EntryRun, ...]) -> None:
        self.runs = runs
        self._count = sum(map(len, runs)) if len(runs) != 1 else len(runs[0].starts) - 1

    @staticmethod
    def of(entries: Sequence[Entry]) -> Entries:
        """The same entries; each is a run by itself where they come from elsewhere."""
        return (
            entries if isinstance(entries, Entries) else Entries(tuple(map(EntryRun.of, entries)))
        )

    @property
    def first_index(self) -> Index:
        return self.runs[0].index

    @property
    def last_index(self) -> Index:
        return self.runs[-1].last

    @property
    def span(self) -> int:
        """Bytes of the log from the first one to the end of the last, with the padding between."""
        return self.runs[-1].end_pos - self.runs[0].pos

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
    index, pos, chain_crc = end.position.index, end.end_pos, end.chain_crc
    runs: list[EntryRun] = []
    parts: list[Buffer] = []
    starts, at, was_large = [0], 0, False
    pack = HEADER.pack
    for body in bodies:
        length = len(body)
        size = HEADER_SIZE + length
        room = segment_size - pos % segment_size
        is_full, is_large = size + MIN_BLANK_SIZE > room, length >= LARGE_BODY
        if parts and (is_full or is_large or was_large):
            runs.append(_joined(LogEnd(Position(term, index), pos), magic, starts, parts))
            parts, starts, at = [], [0], 0
        if is_full:
            if size + MIN_BLANK_SIZE > segment_size:
                raise ValueError(
                    f"an entry of {size} bytes does not fit a segment of {segment_size} bytes"
                )
            pos += room  # as `place`
        index += 1  # type: ignore[assignment]
        body_crc = crc32(body)
        chain_crc = crc32(pack(magic, size, index, term, pos, 0, 0, body_crc, length), chain_crc)
        parts += (pack(magic, size, index, term, pos, 0, chain_crc, body_crc, length), body)
        pos += size
        at += size
        starts.append(at)
        was_large = is_large
    if parts:
        runs.append(_joined(LogEnd(Position(term, index), pos), magic, starts, parts))
    return Entries(tuple(runs))


def _joined(end: LogEnd, magic: int, starts: list[int], parts: list[Buffer]) -> EntryRun:
    """The run that ends there, of headers and bodies."""
    is_large = len(parts) == 2 and len(parts[1]) >= LARGE_BODY
    pieces = tuple(parts) if is_large else (b"".join(parts),)
    position, size = end.position, starts[-1]
    first = Index(position.index - len(starts) + 2)
    return EntryRun(first, position.term, magic, end.end_pos - size, starts, pieces)


def read_entries(payload: Buffer, sizes: Sequence[int]) -> Entries:
    """Entries of these sizes that came one behind the other, as far as runs as they may be; checks
    shape, not checksums. They keep ``payload`` alive.

    Raises:
        ValueError: the sizes do not agree with one another.
    """
    if sum(sizes) != len(payload):
        raise ValueError(f"{sum(sizes)} bytes announced, {len(payload)} came")
    if sizes and min(sizes) < HEADER_SIZE:
        raise ValueError(f"an entry has at least {HEADER_SIZE} bytes, not {min(sizes)}")
    view, fields_at = memoryview(payload).toreadonly(), HEADER.unpack_from
    runs: list[EntryRun] = []
    starts: list[int] = []
    at = begin = first = first_pos = due = due_pos = kind = era = 0
    for size in sizes:
        magic, stated, index, term, pos, _, _, _, body_size = fields_at(view, at)
        if stated != size or body_size != size - HEADER_SIZE:
            raise ValueError(f"entry {index} says size {stated}, body {body_size}, in {size} bytes")
        if index != due or pos != due_pos or magic != kind or term != era:
            if starts:
                starts.append(at - begin)
                piece = view[begin:at]
                runs.append(EntryRun(Index(first), Term(era), kind, first_pos, starts, (piece,)))
            begin, first, first_pos, kind, era, starts = at, index, pos, magic, term, []
        starts.append(at - begin)
        at += size
        due, due_pos = index + 1, pos + size
    if starts:
        starts.append(at - begin)
        piece = view[begin:at]
        runs.append(EntryRun(Index(first), Term(era), kind, first_pos, starts, (piece,)))
    return Entries(tuple(runs))


def pack_sizes(entries: Sequence[Entry]) -> bytes:
    """The sizes of entries, 4 bytes each, as messages tell them."""
    sizes = [
        stop - start for run in Entries.of(entries).runs for start, stop in pairwise(run.starts)
    ]
    return struct.pack(f">{len(sizes)}I", *sizes)


def pieces_of(entries: Sequence[Entry]) -> list[Buffer]:
    """The bytes of entries, one behind the other."""
    return [piece for run in Entries.of(entries).runs for piece in run.pieces]


def count_following(end: LogEnd, entries: Sequence[Entry], segment_size: int) -> int:
    """How many of ``entries`` go right behind one another, the first one behind ``end``: in index,
    pos and chain of checksums, with no lower term, and verified if the one before is. Bodies are
    not looked at."""
    count, index, term = 0, end.position.index, end.position.term
    pos, chain_crc = end.end_pos, end.chain_crc
    for run in Entries.of(entries).runs:
        if run.index != index + 1 or run.term < term:
            break
        if run.pos != place(pos, run.starts[1], segment_size):
            break
        room = segment_size - run.pos % segment_size - MIN_BLANK_SIZE
        fitting = max(0, bisect_right(run.starts, room) - 1)
        sound, chain_crc = _count_chained(run, fitting, chain_crc)
        count += sound
        if sound < len(run):
            break
        index, term, pos = run.last, run.term, run.end_pos
    return count


def _count_chained(run: EntryRun, most: int, chain_crc: int) -> tuple[int, int]:
    """How many of the first ``most`` entries continue the chain of checksums, and the last one's
    ``chainCrc``."""
    header, unpack, pack = run.pieces[0], _ALL_BUT_CHAIN.unpack_from, _ALL_BUT_CHAIN.pack
    for at, start in enumerate(run.starts[:most]):
        stated, body_crc = _crcs_at(header, start)
        found = crc32(pack(*unpack(header, start)), chain_crc)
        if found != stated and (chain_crc or stated or body_crc):
            return at, chain_crc
        chain_crc = stated
    return most, chain_crc


def bodies_are_sound(entries: Sequence[Entry]) -> bool:
    """Whether all bodies are those that the leader stamped. That of an unverified entry is taken on
    trust, as DLedger does."""
    for run in Entries.of(entries).runs:
        is_sound = list(map(crc32, run.bodies())) == run.body_crcs()
        if not is_sound and not all(map(body_is_sound, map(run.entry, range(len(run))))):
            return False
    return True
