"""Putting sound copies of damaged entries back in their place.

The files that hold them are written anew and renamed, so that a crash leaves the old file or the
new one, and no byte that may still be needed is ever overwritten (CTRL, FAST'18). Only then are the
entries counted as there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from dledger.errors import CorruptEntry, DiskFull
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAGIC_BLANK,
    MAX_MAGIC,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    place,
)
from dledger.storage.disk.allocated_blocks import make_room
from dledger.storage.disk.disk import DiskFile, is_full
from dledger.storage.disk.file_names import NEW_SUFFIX, file_name
from dledger.storage.disk.small_files import remove
from dledger.storage.log.reader import LogView, Reader
from dledger.storage.log.segments import SegmentFiles, is_held
from dledger.storage.log.walker import Chain
from dledger.types import Buffer, Index

CHUNK: Final = 4 << 20
"""Bytes copied at a time."""


def check_run(
    data: SegmentFiles, reader: Reader, view: LogView, run: Sequence[Entry], last_stays: bool
) -> int:
    """See that consecutive entries are the ones that belong between their neighbours in this log.
    With ``last_stays`` entries behind them are about to be cut, and need not vouch.

    Returns:
        Where the log goes on behind them.

    Raises:
        CorruptEntry: their checksums do not match, or the entry before or behind says that they are
            of another log.
    """
    first, last = run[0], run[-1]
    where = f"entry {first.index} at pos {first.pos}"
    inside = view.begin_index <= first.index and last.index <= view.end.position.index
    if not inside or not all(map(body_is_sound, run)):
        raise CorruptEntry(f"{where}: not an entry of this log, or damaged itself", first.index)
    before = reader.chain_before(first.index, view)
    index, term, pos = first.index, first.term, _end_before(reader, view, first.index)
    for entry in run:
        pos = place(pos, entry.size, data.file_size)
        fits = (
            (entry.index, entry.pos) == (index, pos)
            and entry.term >= term
            and 1 <= entry.magic <= MAX_MAGIC
        )
        if not fits or (before is not None and not before.follows(entry)):
            raise CorruptEntry(
                f"{where}: {entry} does not follow the entry before it, so it is of another log",
                index,
            )
        index, term, pos = Index(index + 1), entry.term, entry.end_pos
    if last_stays:
        fits, behind = True, last.end_pos
    elif last.index == view.end.position.index:
        fits, behind = LogEnd.after(last) == view.end, pos
    else:
        following = reader.header_of(Index(last.index + 1), view)
        size = HEADER.unpack(following.header)[1] if following is not None else HEADER_SIZE
        behind = place(pos, size, data.file_size)
        fits = (
            following is not None
            and following.pos == behind
            and Chain(last.chain_crc).follows(following)
        )
    if not fits:
        raise CorruptEntry(
            f"{where}: the entry behind it does not follow it, so it is of another log", first.index
        )
    return behind


def _end_before(reader: Reader, view: LogView, index: Index) -> int:
    if index == view.begin_index:
        return view.begin_pos
    unit = reader.locate(Index(index - 1), view)
    return unit.pos + unit.size


class FileCopy:
    """A new copy of one data file with sound entries in place of damaged ones.

    `begin` does nearly all of the work and needs no lock: the bytes that it copies are not written
    any more. `finish` takes the entries appended meanwhile and puts the copy in place; the log must
    not change during it.
    """

    def __init__(
        self, data: SegmentFiles, start: int, *, run: Sequence[Entry], behind: int
    ) -> None:
        """``run``: entries of this file; ``behind``: where the log goes on, after the last of
        them."""
        self._data = data
        self._start = start
        self._patches: list[tuple[int, list[Buffer]]] = []
        self._skip: list[tuple[int, int]] = []
        self._path = data.directory / (file_name(start) + NEW_SUFFIX)
        self._copied = start
        self._reserved = 0
        for entry, following in zip(run, [*(e.pos for e in run[1:]), behind], strict=True):
            buffers: list[Buffer] = [bytes(entry.header[:HEADER_SIZE]), entry.body]
            rest = following - entry.end_pos
            if rest >= MIN_BLANK_SIZE:  # the padding behind it is ours to write as well
                buffers += (MAGIC_BLANK.to_bytes(4, "big", signed=True), rest.to_bytes(4, "big"))
            self._patches.append((entry.pos - start, buffers))
            self._skip.append((entry.pos, min(following, start + data.file_size)))

    def begin(self, end_pos: int) -> None:
        """Copy the part of the log in this file before ``end_pos``.

        Raises:
            DiskFull: there is no room for a second copy of the file.
            CorruptEntry: another place of the file cannot be read.
            OSError: the disk failed.
        """
        assert is_held(self._data.repairing), (
            "files are copied and exchanged under FileStore._repair_lock"
        )
        size = self._data.file_size
        self.drop()
        try:
            file = self._data.disk.open(self._path, create=True)
            step = make_room(self._data.disk, file, size, min(max(end_pos - self._start, 0), size))
        except OSError as error:
            raise self._no_room(error) from error
        self._reserved = step.end
        for at, buffers in self._patches:
            file.pwritev(buffers, at)
        self._copy(file, end_pos)
        file.fdatasync()

    def finish(self, end_pos: int) -> None:
        """Copy the rest up to ``end_pos`` and take the old file's place; durable on return. Raises
        as `begin`."""
        file = self._data.disk.open(self._path)
        stop = min(end_pos - self._start, self._data.file_size)
        if stop > self._reserved:
            try:
                file.fallocate(stop, self._reserved)
            except OSError as error:
                raise self._no_room(error) from error
        self._copy(file, end_pos)
        file.fdatasync()
        self._data.replace(self._start, self._path)

    def _no_room(self, error: OSError) -> Exception:
        """The exception for an error of taking room: the copy goes, the old file is as it was."""
        self.drop()
        if not is_full(error):
            return error
        return DiskFull(
            f"{self._path}: no room for the copy of up to {self._data.file_size} bytes that a "
            "repair takes; free space on that disk"
        )

    def drop(self) -> None:
        """Remove the copy."""
        remove(self._data.disk, self._path)

    def _copy(self, file: DiskFile, end_pos: int) -> None:
        at, stop = self._copied, min(end_pos, self._start + self._data.file_size)
        old = self._data.file(self._start)
        while at < stop:
            piece = min(stop, at + CHUNK)
            inside = next((skip for skip in self._skip if skip[0] <= at < skip[1]), None)
            if inside is not None:
                at = inside[1]
                continue
            piece = min([piece, *(low for low, _ in self._skip if low > at)])
            file.pwritev([self._read(old, at, piece)], at - self._start)
            at = piece
        self._copied = max(self._copied, stop)

    def _read(self, old: DiskFile, at: int, stop: int) -> bytes:
        try:
            return old.pread(stop - at, at - self._start)
        except OSError as error:
            raise CorruptEntry(
                f"{old.path}: bytes {at} to {stop} of the log cannot be read: {error}"
            ) from error


def repair(
    data: SegmentFiles,
    reader: Reader,
    view: Callable[[], LogView],
    still: Sequence[AbstractContextManager[object]],
    run: Sequence[Entry],
    last_stays: bool,
) -> None:
    """Put a run of sound entries in place of damaged ones, file by file; durable on return.

    Args:
        view: returns the part of the files that is the log now.
        still: held while a copy takes its file's place, so that the log does not change.

    Raises:
        CorruptEntry, DiskFull, OSError: as `check_run` and `FileCopy.begin`.
    """
    seen = view()
    try:
        behind = check_run(data, reader, seen, run, last_stays)
        for start, part, follows_at in by_file(run, data.file_size, behind):
            copy = FileCopy(data, start, run=part, behind=follows_at)
            copy.begin(seen.end.end_pos)
            _put_in_place(copy, view, still, run[0].index, seen)
    # a file, or half of one, that a cut or retention took
    except (FileNotFoundError, struct.error) as error:
        if reader.unchanged(seen):
            raise
        raise _changed(run[0].index) from error


def _put_in_place(
    copy: FileCopy,
    view: Callable[[], LogView],
    still: Sequence[AbstractContextManager[object]],
    first: Index,
    seen: LogView,
) -> None:
    with ExitStack() as held:
        for lock in still:
            held.enter_context(lock)
        now = view()
        # The copy shows the log as it was at ``seen``. Appends since are copied now; after a cut or
        # a deletion the copy would bring entries back.
        if now.cuts != seen.cuts or now.begin_index > first:
            copy.drop()
            raise _changed(first)
        copy.finish(now.end.end_pos)


def _changed(first: Index) -> CorruptEntry:
    return CorruptEntry(f"entry {first}: the log changed during its repair", first)


def by_file(
    run: Sequence[Entry], file_size: int, behind: int
) -> list[tuple[int, list[Entry], int]]:
    """The parts of a run: start of the file, its entries, and where the log goes on behind them."""
    parts: list[tuple[int, list[Entry], int]] = []
    for entry in run:
        start = entry.pos - entry.pos % file_size
        if parts and parts[-1][0] == start:
            parts[-1][1].append(entry)
        else:
            if parts:
                parts[-1] = (*parts[-1][:2], entry.pos)
            parts.append((start, [entry], behind))
    return parts
