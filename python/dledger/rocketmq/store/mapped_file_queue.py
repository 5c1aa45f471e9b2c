"""Files of one size, one behind the other: the bytes of a log, named by the offset at which each
file begins.

The original maps them into memory, whence the name; here they are read and written by offset, which
fails with an error and not by a signal when a disk is full. Each file has its full size from the
moment it has its name, zeros (holes) first, as the original makes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger.errors import CorruptStore, OffsetOutOfRange, StorageError
from dledger.rocketmq.store.files import (
    FileHandles,
    clear,
    log_names,
    make_directory,
    make_file,
    storing,
    sync_directory,
)
from dledger.storage.disk.file_names import file_name
from dledger.types import Buffer

PIECE: Final = 1 << 20
LAST_OFFSET: Final = (1 << 63) - 1


class MappedFileQueue:
    """A log of bytes in ``directory``, in files of ``file_size`` bytes.

    When opened, everything up to the last file's end counts as written: only a caller that knows
    the content of the files can say where the log ends, and does so by `truncate_dirty`. One thread
    appends and cuts; any others may `read`, `flush` and `delete_before` meanwhile, and none of
    these waits for a sync but a flush, a cut and a deletion.
    """

    def __init__(
        self, directory: Path, file_size: int, *, handles: FileHandles | None = None
    ) -> None:
        """Look at the files that there are. The directory is made with the first one.

        Args:
            handles: shared with others that have files open.

        Raises:
            CorruptStore: a file has another size, begins at no multiple of it, or does not follow
                the one before.
            PathError: the directory cannot be read.
        """
        if file_size < 1:
            raise ValueError(f"files of {file_size} bytes")
        self.directory = directory
        self.file_size = file_size
        self._handles = FileHandles() if handles is None else handles
        self._named = (-1, directory)
        """The file whose path was asked for last: where it begins, and its path."""
        self._starts = self._found()
        self.max_offset = self._starts[-1] + file_size if self._starts else 0
        """Offset behind the last byte that has been written; 0 where there is no file."""
        self.flushed_offset = self.max_offset
        """Offset up to which everything is on the disk."""
        self._cuts = 0
        """Number of cuts so far: a reader that met one reads again."""
        self._dirty: dict[int, None] = {}
        self._names = self._names_synced = 0
        """Number of changes of names so far, and how many of them are on the disk."""
        self._removed = 0
        """`_names` at the last removal: a file goes only when the one before it is gone on the disk
        too, else a power cut leaves a gap."""
        self._marks = threading.Lock()
        """Of the files and names to be synced. Held for no call of the disk."""
        self._flushing = threading.Lock()
        """One flush at a time, and none during a cut or a deletion. Taken before `_marks`."""
        self._failed: Exception | None = None

    def _found(self) -> list[int]:
        size = self.file_size
        starts: list[int] = []
        for start, length in log_names(self.directory, self._handles.disk).items():
            path = self.path(start)
            if length != size:
                raise CorruptStore(
                    f"{path} has {length:,} bytes, and the files of this log {size:,}: give the "
                    "size that the store was made with, or put the whole file back"
                )
            if start % size:
                raise CorruptStore(
                    f"{path} does not begin at a multiple of the {size:,} bytes that each file has"
                )
            if starts and start != starts[-1] + size:
                raise CorruptStore(
                    f"between {self.path(starts[-1])} and {path} no file has bytes "
                    f"{starts[-1] + size:,} to {start:,}: put the missing files back"
                )
            starts.append(start)
        return starts

    def path(self, start: int) -> Path:
        """The file that begins at this offset."""
        # both at once, for other threads ask too; to make a path takes longer than to write
        begin, path = self._named
        if begin != start:
            path = self.directory / file_name(start)
            self._named = (start, path)
        return path

    @property
    def starts(self) -> list[int]:
        """Where the files begin."""
        return list(self._starts)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return not self._starts

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is kept; 0 where there is no file."""
        return self._starts[0] if self._starts else 0

    @property
    def room(self) -> int:
        """Bytes left in the file that the next byte goes to: a whole file's where that one has not
        been begun."""
        return self.file_size - self.max_offset % self.file_size

    def start_at(self, offset: int) -> None:
        """Begin an empty log somewhere else than at 0; bytes before ``offset`` in its file stay
        zero.

        Raises:
            ValueError: there are files already, or the offset is negative or too large for a name.
        """
        if self._starts:
            raise ValueError(f"{self.directory} begins at {self.min_offset:,} already")
        if not 0 <= offset <= LAST_OFFSET - self.file_size:
            raise ValueError(f"a log cannot begin at {offset}")
        self._make(offset - offset % self.file_size)
        self.max_offset = self.flushed_offset = offset

    def append(self, data: Buffer) -> int:
        """Write bytes at the end, over as many files as it takes; the offset of the first one.

        Raises:
            DiskFull, StorageError: the log ends where it did before.
        """
        offset = at = self.max_offset
        view = memoryview(data).cast("B")
        while view:
            start = at - at % self.file_size
            if not self._starts or start > self._starts[-1]:
                self._make(start)
            part = view[: start + self.file_size - at]
            path = self.path(start)
            try:
                with storing("write", path):
                    self._handles.get(path).pwritev([part], at - start)
            # before it counts as written: a flush that takes the marks now must not be the last one
            # for it
            finally:
                self._mark(start)
            at, view = at + len(part), view[len(part) :]
        self.max_offset = at
        return offset

    def close_file(self, head: Buffer) -> None:
        """Write ``head`` (a blank) at the end and go on at the next file; the bytes behind it stay
        zero."""
        room = self.room
        if len(head) > room:
            raise ValueError(f"{len(head)} bytes for the {room} that are left in the file")
        self.append(head)
        self.max_offset += room - len(head)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly these bytes.

        Raises:
            OffsetOutOfRange: not all of them are there.
            StorageError: the disk failed.
        """
        while True:
            cuts = self._cuts
            if size < 0 or offset < self.min_offset or offset + size > self.max_offset:
                raise OffsetOutOfRange(
                    f"bytes {offset:,} to {offset + size:,} of {self.directory}, which has "
                    f"{self.min_offset:,} to {self.max_offset:,}",
                    self.min_offset,
                    self.max_offset,
                )
            try:
                data = self._read(offset, size)
            except (CorruptStore, StorageError):
                if self._cuts == cuts and offset >= self.min_offset:
                    raise
                continue
            if self._cuts == cuts:
                return data

    def _read(self, offset: int, size: int) -> bytes:
        parts = []
        while size:
            place = offset % self.file_size
            path = self.path(offset - place)
            length = min(size, self.file_size - place)
            with storing("read", path):
                data = self._handles.get(path).pread(length, place)
            if not data:
                raise CorruptStore(f"{path} ends at byte {place:,}; somebody else cut it off")
            parts.append(data)
            offset, size = offset + len(data), size - len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def truncate_dirty(self, offset: int) -> None:
        """Let the log end here: files behind are removed, and bytes written behind in this one
        become zeros, so that they never come back. Before the first file, nothing is left; at or
        behind the last file's end, all is.

        Raises:
            StorageError: the disk failed.
        """
        with self._flushing:
            # before the readers are told, and that before anything goes
            self.max_offset = min(self.max_offset, offset)
            self._cuts += 1
            while self._starts and self._starts[-1] >= offset and not self._keeps(offset):
                self._remove(self._starts.pop())
            if not self._starts:
                self.max_offset = self.flushed_offset = 0
                return
            last = self._starts[-1]
            self.max_offset = min(offset, last + self.file_size)
            path = self.path(last)
            with storing("write", path):
                if clear(self._handles.get(path), self.max_offset - last, self.file_size):
                    self._mark(last)
            self.flushed_offset = min(self.flushed_offset, self.max_offset)

    def _keeps(self, offset: int) -> bool:
        """The one file that is left tells where an empty log goes on."""
        return len(self._starts) == 1 and self._starts[0] == offset

    def delete_before(self, offset: int) -> int:
        """Remove files that end at or before this offset, but never the last one; how many.

        Raises:
            StorageError: the disk failed.
        """
        count = 0
        with self._flushing:
            while len(self._starts) > 1 and self._starts[0] + self.file_size <= offset:
                self._remove(self._starts.pop(0))
                count += 1
        return count

    def destroy(self) -> None:
        """Remove all files."""
        with self._flushing:
            self.max_offset = self.flushed_offset = 0
            self._cuts += 1
            while self._starts:
                self._remove(self._starts.pop())

    def flush(self) -> None:
        """Return when everything that had been written, and every name, is on the disk.

        Raises:
            StorageError: the disk failed; its content is not known, and asking again gives the same
                error.
        """
        with self._flushing:
            if self._failed is not None:
                raise self._failed
            with self._marks:
                end, starts, names = self.max_offset, list(self._dirty), self._names
                self._dirty.clear()
            try:
                self._sync(starts, names)
            except Exception as error:
                self._failed = error
                raise
            self.flushed_offset = end

    def doubt(self, offset: int) -> None:
        """Bytes from here on may not be on the disk, though they can be read: their writer ended
        too soon."""
        with self._flushing:
            with self._marks:
                doubted = [start for start in self._starts if start + self.file_size > offset]
                self._dirty.update(dict.fromkeys(doubted))
                self._names += bool(self._starts)
            self.flushed_offset = min(self.flushed_offset, max(offset, self.min_offset))

    def write_again(self, offset: int) -> None:
        """Write what lies from here on once more: a sync that failed may have left it out, and
        marked it as written.

        Raises:
            DiskFull, StorageError: it is not written again.
        """
        for at, data in self.parts(offset, self.max_offset, PIECE):
            path = self.path(start := at - at % self.file_size)
            with storing("write", path):
                self._handles.get(path).pwritev([data], at - start)
            self._mark(start)

    def _sync(self, starts: list[int], names: int) -> None:
        assert self._flushing.locked(), "files are synced under MappedFileQueue._flushing"
        for start in starts:
            path = self.path(start)
            with storing("sync", path):
                self._handles.get(path).fdatasync()
        self._sync_names(names)

    def _sync_names(self, names: int) -> None:
        """Let these changes of names be on the disk. They count as that afterwards only: another
        thread that is about to make a file behind the newest one asks."""
        if names > self._names_synced:
            sync_directory(self.directory, self._handles.disk)
            with self._marks:
                self._names_synced = max(self._names_synced, names)

    def _mark(self, start: int, *, new: bool = False) -> None:
        """Something in this file, or its name, is not on the disk."""
        with self._marks:
            self._dirty[start] = None
            self._names += new

    def parts(self, begin: int, end: int, most: int) -> Iterator[tuple[int, bytes]]:
        """The bytes of [begin, end) in pieces of at most ``most`` bytes, none over the border of a
        file."""
        while begin < end:
            length = min(most, end - begin, self.file_size - begin % self.file_size)
            yield begin, self.read(begin, length)
            begin += length

    def close(self) -> None:
        """Close the files; nothing is flushed."""
        for start in self._starts:
            self._handles.forget(self.path(start))

    def _make(self, start: int) -> None:
        """A file gets its size before its name, and its name before the next one does: a crash at
        any point shows no file that is too short, and no gap."""
        disk, path = self._handles.disk, self.path(start)
        if not self._starts:
            make_directory(self.directory, disk, self._handles.durable)
        self._sync_names(self._names)
        make_file(path, self.file_size, disk)
        self._starts.append(start)
        self._mark(start, new=True)

    def _remove(self, start: int) -> None:
        assert self._flushing.locked(), "files are removed under MappedFileQueue._flushing"
        path = self.path(start)
        self._sync_names(self._removed)
        self._handles.forget(path)
        with self._marks:
            self._dirty.pop(start, None)
        with storing("remove", path):
            self._handles.disk.unlink(path)
        with self._marks:
            self._names += 1
            self._removed = self._names
