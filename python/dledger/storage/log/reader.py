"""Reading entries and bodies out of the files, every checksum verified, beside a running writer."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, TypeVar

from dledger.checksum import crc32
from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAX_MAGIC,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    parse,
)
from dledger.protocol.messages.entry_runs import Entries
from dledger.storage.api import Fault
from dledger.storage.log.index import LogIndex, LogIndexUnit
from dledger.storage.log.index_rebuild import first_index, header_at, rebuild_index, size_at
from dledger.storage.log.run_reader import LEAST_BYTES, read_runs
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.walker import Chain
from dledger.storage.meta.recovery_point import EMPTY_LOG, FIRST, before_first
from dledger.types import Buffer, Index, Term, slots_dataclass

MAX_PREAD: Final = 8 << 20
"""Neighbouring bodies are fetched together up to so many bytes."""

T = TypeVar("T")


@slots_dataclass()
class LogView:
    """The part of the files that is the log, at one moment."""

    begin_index: Index = FIRST
    begin_pos: int = 0
    begin_chain: int = 0
    """chainCrc in front of the first entry; -1 when unknown."""
    end: LogEnd = EMPTY_LOG
    cuts: int = 0
    """Number of truncations so far: a reader that met one reads again."""

    @property
    def begin(self) -> LogEnd:
        """The place before the first entry, as far as it is known."""
        return before_first(self.begin_index, self.begin_pos, self.begin_chain)


class Reader:
    """Reads the log of the current LogView. Thread-safe.

    The writer changes the view before it takes anything away, so that a reader that met a change
    can tell.
    """

    def __init__(
        self,
        data: SegmentFiles,
        index: LogIndex,
        *,
        view: Callable[[], LogView],
        writing: AbstractContextManager[object],
    ) -> None:
        self._data = data
        self._index = index
        self._view = view
        self._writing = writing
        """The writer's lock: taken to mend the index."""
        self._damaged: set[int] = set()
        """Entries whose header is known to be damaged: no need to look for them elsewhere again."""

    def forget_damage(self, index: int) -> None:
        """The entry was repaired."""
        self._damaged.discard(index)

    def read(self, begin: Index, max_bytes: int, end: Index | None = None) -> Sequence[Entry]:
        """See `LogStore.read`."""
        return self._look(
            f"entry {begin}",
            begin,
            lambda view: (
                self._read_runs(view, begin, max_bytes, end)
                or self._read(view, begin, max_bytes, end)
            ),
        )

    def read_bodies(self, refs: Sequence[tuple[int, int, int]]) -> list[Buffer]:
        """See `LogStore.read_bodies`."""
        bodies: list[Buffer] = []
        at, file_size = 0, self._data.file_size
        while at < len(refs):
            first, start, size = refs[at]
            end, stop = start + size, at + 1
            while stop < len(refs):
                _, pos, size = refs[stop]
                if pos != end or end + size - start > MAX_PREAD or pos % file_size == 0:
                    break
                end, stop = pos + size, stop + 1
            bodies += self._look(
                f"entry {first}",
                Index(first),
                partial(self._bodies_of_run, refs[at:stop], end - start),
            )
            at = stop
        return bodies

    def read_run(self, first: Index, pos: int, size: int) -> Buffer:
        """See `LogStore.read_run`."""
        self._check_range(self._view(), first)
        return self._data.pread(pos, size)

    def index_at(self, pos: int) -> Index | None:
        """See `LogStore.index_at`. The header there says which entry it is; where it is damaged,
        the index knows."""
        first, where = self._view().begin_index, f"log position {pos}"
        try:
            return self._look(where, first, partial(self._index_at, pos))
        except OSError as error:
            raise CorruptEntry(
                f"{where} cannot be read from {self._data.path(pos)}: {error}", first
            ) from error

    def _look(self, where: str, first: Index, look: Callable[[LogView], T]) -> T:
        """The result of ``look`` at a place of the log; ``first`` is the entry of its damage.
        Damage counts only if no file was taken away or exchanged meanwhile: the sound copy of a
        damaged entry may be in its place by now."""
        while True:
            view, exchanged = self._view(), self._data.exchanged
            try:
                return look(view)
            except (CorruptEntry, OSError, struct.error) as error:
                with self._writing:
                    pass  # an exchange that is under way comes first
                if not self.unchanged(view) or self._data.exchanged != exchanged:
                    continue
                if isinstance(error, FileNotFoundError | struct.error):
                    text = (
                        f"{where}: the file that should hold it is missing or too short ({error})"
                    )
                    raise CorruptEntry(text, first) from error
                raise

    def _index_at(self, pos: int, view: LogView) -> Index | None:
        if not view.begin_pos <= pos < view.end.end_pos:
            return None

        def place_of(index: int) -> int:
            return self.locate(Index(index), view).pos

        low, high = view.begin_index, view.end.position.index + 1
        claimed = Index(header_at(self._data, pos)[2])
        if low <= claimed < high and place_of(claimed) == pos:
            return claimed
        found = Index(bisect_left(range(high), pos, lo=low, key=place_of))
        return found if found < high and place_of(found) == pos else None

    def _bodies_of_run(
        self, run: Sequence[tuple[int, int, int]], size: int, view: LogView
    ) -> list[Buffer]:
        first, start, _ = run[0]
        self._check_range(view, Index(first))
        data = memoryview(self._data.pread(start, size)) if start >= 0 else memoryview(b"")
        bodies: list[Buffer] = []
        unpack, path = HEADER.unpack_from, self._data.path
        for index, pos, size in run:
            at, end = pos - start, pos - start + size
            if size < HEADER_SIZE or end > len(data):
                raise CorruptEntry(
                    f"entry {index}: {path(pos)} has no {size} bytes at pos {pos}", index
                )
            magic, found_size, found, _, own_pos, _, chain_crc, body_crc, body_size = unpack(
                data, at
            )
            due = (index, pos, size, size - HEADER_SIZE)
            if magic < 1 or (found, own_pos, found_size, body_size) != due:
                raise CorruptEntry(
                    f"entry {index}: its header at pos {pos} in {path(pos)} is damaged", index
                )
            body = data[at + HEADER_SIZE : end]
            if (chain_crc or body_crc) and crc32(body) != body_crc:
                raise CorruptEntry(
                    f"entry {index}: the body at pos {pos} in {path(pos)} does not match its "
                    f"checksum",
                    index,
                )
            bodies.append(body)
        return bodies

    def _read_runs(
        self, view: LogView, begin: Index, max_bytes: int, end: Index | None
    ) -> Entries | None:
        """Many entries at once, where all is as it should be."""
        self._check_range(view, begin)
        most = view.end.position.index + 1 - begin if end is None else end - begin
        if max_bytes < LEAST_BYTES or most < 2:
            return None
        unit = self.locate(begin, view)
        if begin == view.begin_index:
            chain_crc = view.begin_chain
        else:
            chain_crc = header_at(self._data, self.locate(Index(begin - 1), view).pos)[6]
        if chain_crc < 0:
            return None
        end_pos = view.end.end_pos
        return read_runs(self._data, self._index, unit, chain_crc, end_pos, max_bytes, most)

    def _read(self, view: LogView, begin: Index, max_bytes: int, end: Index | None) -> list[Entry]:
        self._check_range(view, begin)
        last = view.end.position.index if end is None else min(view.end.position.index, end - 1)
        if begin > last:
            return []
        unit = self.locate(begin, view)
        pos, chain = unit.pos, self.chain_before(begin, view)
        entries: list[Entry] = []
        taken, want = 0, max(unit.size, min(max_bytes, MAX_PREAD))
        data, data_pos = memoryview(b""), pos
        for index in range(begin, last + 1):
            pos = self._skip_padding(pos, index, data, data_pos)
            at = pos - data_pos
            size = size_at(data, at)
            if at + size > len(data):
                if entries and taken + HEADER_SIZE > max_bytes:
                    break
                data, data_pos, at = self._fetch(pos, max(want, HEADER_SIZE), view), pos, 0
                size = size_at(data, 0)
                if HEADER_SIZE < size > len(data) and size <= view.end.end_pos - pos:
                    data = self._fetch(pos, size, view)
            if entries and taken + size > max_bytes:
                break
            entry, reason = self._check(data[at : at + size], index, pos, chain)
            # A damaged checksum in the header before must not condemn this entry: compute it.
            if entry is None and not entries and "chainCrc" in reason:
                thorough = self.chain_before(begin, view, thorough=True)
                entry, reason = self._check(data[at : at + size], index, pos, thorough)
            if entry is None:
                if entries:
                    break
                raise CorruptEntry(
                    f"entry {index} at pos {pos} in {self._data.path(pos)}: {reason}", index
                )
            if not entries:
                chain = Chain(entry.chain_crc)
            entries.append(entry)
            taken += size
            pos = entry.end_pos
            if taken >= max_bytes:
                break
            want = min(max(max_bytes - taken, HEADER_SIZE), MAX_PREAD)
        return entries

    def _fetch(self, pos: int, size: int, view: LogView) -> memoryview:
        return memoryview(self._data.pread(pos, min(size, max(view.end.end_pos - pos, 0))))

    def _skip_padding(self, pos: int, index: int, data: memoryview, data_pos: int) -> int:
        remaining = self._data.file_size - pos % self._data.file_size
        if remaining == self._data.file_size:
            return pos
        if remaining < HEADER_SIZE + MIN_BLANK_SIZE:
            return pos + remaining
        at = pos - data_pos
        head = data[at : at + 4] if at + 4 <= len(data) else self._data.pread(pos, 4)
        return pos + remaining if bytes(head) == b"\xff\xff\xff\xff" else pos

    def _check(
        self, data: memoryview, index: int, pos: int, chain: Chain | None
    ) -> tuple[Entry | None, str]:
        try:
            entry = parse(data)
        except ValueError:
            return None, "its header is damaged"
        if (entry.index, entry.pos) != (index, pos) or not 1 <= entry.magic <= MAX_MAGIC:
            return None, f"its header is damaged: it names entry {entry.index} at {entry.pos}"
        if not body_is_sound(entry):
            return None, "the body does not match its checksum bodyCrc"
        if chain is not None and not chain.follows(entry):
            return None, "the header does not match its checksum chainCrc"
        return entry, ""

    def chain_before(self, index: Index, view: LogView, thorough: bool = False) -> Chain | None:
        """The chain in front of an entry, out of the header before it; ``thorough``: should that
        one be damaged."""
        if index == view.begin_index:
            return None if view.begin_chain < 0 else Chain(view.begin_chain)
        previous = self.locate(Index(index - 1), view)
        head = self._data.pread(previous.pos, HEADER_SIZE)
        if not thorough:
            return Chain(HEADER.unpack(head)[6])
        chain = self.chain_before(Index(index - 1), view)
        if chain is None:
            return None
        chain.skip(head)
        return chain

    def header_of(self, index: Index, view: LogView) -> Entry | None:
        """An entry's header with no body, unchecked; None when nothing like it is there."""
        head = self._data.pread(self.locate(index, view).pos, HEADER_SIZE)
        magic, _, found, term, pos, _, chain_crc, body_crc, _ = HEADER.unpack(head)
        return (
            Entry(found, term, magic, pos, chain_crc, body_crc, head, b"")
            if found == index
            else None
        )

    def term_of(self, index: Index, view: LogView, faults: list[Fault]) -> Term:
        """The term of an entry. Where neither data nor index tells it any more, the term of the
        entry before it stands in: terms never fall, and a log that is taken for an older one is
        never chosen over one that is not. The last entry's term is known. An entry without a sound
        header is added to ``faults`` unless it is there."""
        if index == view.end.position.index:
            return view.end.position.term
        begins = {index: fault.first for fault in faults for index in (fault.first, fault.last)}
        while index >= view.begin_index:
            try:
                unit = self.locate(index, view)
            except CorruptEntry as error:
                self._note(faults, index, -1, str(error))
                index = Index(begins.get(index, index) - 1)
                continue
            if index in self._damaged:
                self._note(faults, index, unit.pos, "its header is damaged")
            return unit.term
        return Term(0)

    def _note(self, faults: list[Fault], index: Index, pos: int, reason: str) -> None:
        if not any(fault.first <= index <= fault.last for fault in faults):
            faults.append(Fault(index, index, pos, str(self._data.directory), reason))

    def locate(self, index: Index, view: LogView) -> LogIndexUnit:
        """Where an entry lies, checked against its header. A header that is damaged is left to the
        caller to name."""
        unit = self._index.get(index)
        if unit is not None and (index in self._damaged or self._fits(unit, view)):
            return unit
        with self._writing:
            # Units of cut entries may not be written: compare; under this lock no cut can come.
            if self._view().cuts != view.cuts:
                raise CorruptEntry(f"entry {index}: cut while it was looked for", index)
            start = self._file_of(index)
            _, found = rebuild_index(self._data, self._index, start, view.end, view.begin, index)
        if found is not None:  # be it in the index by now or not: a disk may lose this write too
            self._damaged.discard(index)
            return found
        unit = self._index.get(index)
        if unit is None:
            raise CorruptEntry(
                f"entry {index}: not found in {self._data.path(start)}, which is damaged there",
                index,
            )
        self._damaged.add(index)
        if self._fits(unit, view):
            self._damaged.discard(index)
        return unit

    def _fits(self, unit: LogIndexUnit, view: LogView) -> bool:
        inside = view.begin_pos <= unit.pos and unit.pos + unit.size <= view.end.end_pos
        if not (inside and self._data.has(unit.pos)):
            return False
        return header_at(self._data, unit.pos)[:5] == unit.header_fields

    def _file_of(self, index: int) -> int:
        """Start of the data file that holds an entry, by the first headers of the files."""

        def first(start: int) -> int:
            found = first_index(self._data, start)
            # A damaged header leads to an earlier file, from which the walk gets there too.
            return index + 1 if found is None else found

        starts = self._data.starts
        return starts[max(bisect_right(starts, index, key=first) - 1, 0)]

    def _check_range(self, view: LogView, index: Index) -> None:
        if index < view.begin_index:
            raise OffsetOutOfRange(
                f"entry {index} is not kept any more: this log begins at entry {view.begin_index}",
                view.begin_index,
                view.end.position.index + 1,
            )

    def unchanged(self, view: LogView) -> bool:
        """Whether nothing was taken away since the view was so: neither by a truncation nor, with
        the entry in front of which a read begins, by retention."""
        now = self._view()
        return (now.cuts, now.begin_index) == (view.cuts, view.begin_index)
