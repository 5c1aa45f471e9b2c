"""The catalog's tables in files: rows of one size, appended, never changed, numbered for ever.

::

    tables/<name>.<first row, 20 digits>
    byte 0                                                       64
         | "DLtb" | version | row size | first row | crc32 | zeros | row | crc32 | row | crc32 ...

Each row carries a CRC-32 over its number and its bytes, so that a damaged or misplaced row is never
believed. Rows wait in memory until there are enough of them or `TableFiles.sync` is called; the
owner calls it before it saves a snapshot that counts on them, and truncates to the snapshot's
counts at a restart.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.compiled import compiled
from dledger.errors import CatalogLost, CorruptStore, DiskFull
from dledger.storage.disk.disk import Disk, DiskFile, RealDisk, fatal, fatal_unless_full
from dledger.storage.disk.file_names import NEW_SUFFIX, file_name
from dledger.storage.disk.small_files import make_directory
from dledger.types import Buffer

_HEADER: Final = struct.Struct(">4sHHIQI")
HEADER_BYTES: Final = 64
VERSION: Final = 1
CRC_BYTES: Final = 4
_crc = struct.Struct(">I").pack
BUFFER_BYTES: Final = 1 << 18
"""Rows are written when so many bytes of them wait."""
CHUNK_ROWS: Final = 4096
TABLES: Final = "tables"
"""The directory, in that of the node."""


class FileTable:
    """One table; see ``dledger.catalog.topics.table.Table``."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        name: str,
        row_size: int,
        first: int = 0,
        is_there: bool = True,
    ) -> None:
        """``is_there``: whether it has a file. One that has none gets it with its first rows."""
        self._disk, self._directory, self._name = disk, directory, name
        self.row_size = row_size
        self._step = row_size + CRC_BYTES
        self._first = first
        """Number of the first row in the file."""
        self._file: DiskFile | None = disk.open(self._path(first)) if is_there else None
        size = self._file.size() if self._file is not None else 0
        self._written = max(size - HEADER_BYTES, 0) // self._step + first
        """Number behind the last row in the file."""
        self.end = self._written
        """Number behind the last row. Not the sum of two fields, of which a checkpoint changes one
        after the other."""
        self._waiting = bytearray()
        self._dirty = False
        self._lock = threading.RLock()
        """A checkpoint syncs from another thread."""
        self.begin = first

    def _path(self, first: int) -> Path:
        return self._directory / f"{self._name}.{file_name(first)}"

    @property
    def _rows(self) -> DiskFile:
        """The file, which is there as soon as a row is in it."""
        assert self._file is not None
        return self._file

    def append(self, row: bytes) -> None:
        """Add one row, or several back to back. They wait in memory as long as there is no room for
        them."""
        size = self.row_size
        with self._lock:
            if len(row) == size:  # nearly always, and once for every entry on every node
                self._waiting += row
                self._waiting += crc32(row, self.end & 0xFFFFFFFF).to_bytes(CRC_BYTES, "big")
                self.end += 1
            elif len(row) % size:
                raise ValueError(f"table {self._name}: {len(row)} bytes are no rows of {size}")
            else:
                self._waiting += pack_rows(row, size, self.end)
                self.end += len(row) // size
            if len(self._waiting) >= BUFFER_BYTES and self._file is not None:
                with suppress(DiskFull):
                    self.write()

    def write(self) -> None:
        """Hand the waiting rows to the file, if it is there.

        Raises:
            DiskFull: there is no room; they go on waiting.
        """
        with self._lock:
            if not self._waiting or self._file is None:
                return
            offset = HEADER_BYTES + (self._written - self._first) * self._step
            with fatal_unless_full("write rows to", self._path(self._first)):
                self._file.pwritev([bytes(self._waiting)], offset)
            self._written += len(self._waiting) // self._step
            self._waiting.clear()
            self._dirty = True

    def sync(self) -> None:
        """Make all rows durable, while others are appended. Only here is the file made, so that an
        append never waits for that.

        Raises:
            DiskFull: there is no room; the rows not synced are still to be.
        """
        if self._file is None:
            if not self._waiting:
                return
            with fatal_unless_full("make", self._path(self._first)):
                self._replace_file(self._first, self._first)
        with self._lock:
            self.write()
            file, dirty, self._dirty = self._rows, self._dirty, False
        if dirty:
            with fatal("sync", file.path):
                file.fdatasync()

    def read(self, start: int, stop: int) -> Buffer:
        """The rows [start, stop), back to back, verified.

        Raises:
            CatalogLost: one is damaged.
        """
        if not self.begin <= start <= stop <= self.end:
            raise CorruptStore(
                f"table {self._name}: rows {start} to {stop} are not all there, only {self.begin} "
                f"to {self.end}"
            )
        with self._lock:
            stored = self._stored(start, stop)
        if len(stored) != (stop - start) * self._step:
            raise self._damaged(start)
        return self._verified(stored, start)

    def _stored(self, start: int, stop: int) -> bytes:
        """The bytes of these rows, from the file and from memory."""
        step, stored = self._step, b""
        if start < self._written:
            count = min(stop, self._written) - start
            with fatal("read", self._path(self._first)):
                stored = self._rows.pread(count * step, HEADER_BYTES + (start - self._first) * step)
        if stop > self._written:
            low = max(start - self._written, 0) * step
            stored += self._waiting[low : (stop - self._written) * step]
        return stored

    def _verified(self, stored: bytes, start: int) -> bytes:
        each = struct.iter_unpack(f"{self.row_size}s{CRC_BYTES}x", stored)
        rows = b"".join(chain.from_iterable(each))
        if pack_rows(rows, self.row_size, start) != stored:
            found = unpack_rows(stored, self.row_size, start)
            raise self._damaged(next(number for number, _, is_sound in found if not is_sound))
        return rows

    def _damaged(self, number: int) -> CatalogLost:
        return CatalogLost(f"row {number} of {self._path(self._first)} is damaged")

    def truncate(self, end: int) -> None:
        """Take away the rows from ``end`` on."""
        with self._lock:
            if end > self.end:
                raise CorruptStore(
                    f"table {self._name} has {self.end} rows, fewer than the {end} it should keep"
                )
            if end < self._first:
                self._replace(end, end)
                return
            if end < self._written:
                self._waiting.clear()
                with fatal("truncate", self._path(self._first)):
                    self._rows.truncate(HEADER_BYTES + (end - self._first) * self._step)
                self._written, self._dirty = end, True
            else:
                del self._waiting[(end - self._written) * self._step :]
            self.begin, self.end = min(self.begin, end), end

    def drop_front(self, begin: int) -> None:
        """Rows below ``begin`` may go; they do once they are half of the file."""
        with self._lock:
            self.begin = max(self.begin, min(begin, self.end))
            dead, live = self.begin - self._first, self.end - self.begin
            if self._file is not None and dead >= CHUNK_ROWS and dead >= live:
                with suppress(DiskFull):  # no room for two copies of the rest: another time
                    self.write()
                    self._replace(self.begin, self._written)

    def _replace(self, first: int, end: int) -> None:
        """A new file with the rows [first, end) of this one takes its place; durable on return."""
        with fatal_unless_full("replace", self._path(self._first)):
            self._replace_file(first, end)
        self._first = self.begin = first
        self._written = self.end = end
        self._waiting.clear()
        self._dirty = False

    def _replace_file(self, first: int, end: int) -> None:
        path = self._path(first)
        fresh = path.with_name(path.name + NEW_SUFFIX)
        new = self._disk.open(fresh, create=True)
        new.truncate(0)
        new.pwritev([pack_header(self.row_size, first)], 0)
        for at in range(first, end, CHUNK_ROWS):
            count = min(CHUNK_ROWS, end - at)
            rows = self._rows.pread(
                count * self._step, HEADER_BYTES + (at - self._first) * self._step
            )
            new.pwritev([rows], HEADER_BYTES + (at - first) * self._step)
        new.fdatasync()
        self._disk.rename(fresh, path)
        if first == self._first:
            self._disk.fsync_dir(self._directory)
        else:
            # no want of room any more: of two files one must go now
            with fatal("replace", self._path(self._first)):
                self._disk.fsync_dir(self._directory)
                self._disk.unlink(self._path(self._first))
                self._disk.fsync_dir(self._directory)
        self._file = self._disk.open(path)


def pack_header(row_size: int, first: int) -> bytes:
    """The first 64 bytes of a table file."""
    crc = crc32(_HEADER.pack(b"DLtb", VERSION, 0, row_size, first, 0))
    return _HEADER.pack(b"DLtb", VERSION, 0, row_size, first, crc).ljust(HEADER_BYTES, b"\0")


@compiled
def pack_rows(rows: bytes, row_size: int, number: int) -> bytes:
    """Rows as they stand in a file; ``number``: that of the first."""
    packed: list[bytes] = []
    for (row,) in struct.iter_unpack(f"{row_size}s", rows):
        packed += (row, _crc(crc32(row, number & 0xFFFFFFFF)))
        number += 1
    return b"".join(packed)


def unpack_rows(stored: bytes, row_size: int, first: int) -> Iterator[tuple[int, bytes, bool]]:
    """The rows of `pack_rows`, each with its number and whether it is as it was written."""
    starts = range(0, len(stored), row_size + CRC_BYTES)
    for number, at in enumerate(starts, first):
        row, crc = stored[at : at + row_size], stored[at + row_size : at + row_size + CRC_BYTES]
        yield number, row, crc32(row, number & 0xFFFFFFFF).to_bytes(CRC_BYTES, "big") == crc


def unpack_header(data: bytes) -> tuple[int, int] | None:
    """(row size, first row), or None when any byte of the header is not as written."""
    if len(data) != HEADER_BYTES:
        return None
    _, _, _, row_size, first, _ = _HEADER.unpack_from(data)
    return (row_size, first) if pack_header(row_size, first) == data else None


class TableFiles:
    """The tables of one directory; see ``dledger.catalog.topics.table.TableFactory``."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or RealDisk()
        self._tables: dict[str, FileTable] = {}
        self._lock = threading.Lock()
        with fatal("open the tables in", directory):
            make_directory(self._disk, directory)
            for name in self._disk.listdir(directory):
                if name.endswith(NEW_SUFFIX):
                    self._disk.unlink(directory / name)
            self._found = self._listed()
            """Tables that were there, and are not open yet, with the first rows of their files."""

    def _listed(self) -> dict[str, list[int]]:
        """The tables that have files, with the first rows of these."""
        listed: dict[str, list[int]] = {}
        for name in self._disk.listdir(self._directory):
            stem, _, number = name.rpartition(".")
            if number.isdecimal():
                listed.setdefault(stem, []).append(int(number))
        return listed

    def open(self, name: str, row_size: int) -> FileTable:
        """The table of that name, empty when there was none.

        Raises:
            CorruptStore: it has another row size, or its header is damaged.
        """
        with self._lock:
            table = self._tables.get(name)
            if table is None:
                with fatal("open a table in", self._directory):
                    table = self._tables[name] = self._open(name, row_size)
            if table.row_size != row_size:
                raise CorruptStore(
                    f"table {name} has rows of {table.row_size} bytes, not {row_size}"
                )
            return table

    def _open(self, name: str, row_size: int) -> FileTable:
        found = self._found.pop(name, None)
        if found is None:
            return FileTable(
                self._disk, self._directory, name=name, row_size=row_size, is_there=False
            )
        # two files: a replacement was interrupted between naming the new one and removing the old
        # one, which is whole
        first = min(found)
        for other in found:
            if other != first:
                self._disk.unlink(self._directory / f"{name}.{file_name(other)}")
        path = self._directory / f"{name}.{file_name(first)}"
        header = unpack_header(self._disk.open(path).pread(HEADER_BYTES, 0))
        if header is None or header != (row_size, first):
            raise CorruptStore(
                f"{path}: its header is damaged, or says rows of another size than {row_size}"
            )
        return FileTable(self._disk, self._directory, name=name, row_size=row_size, first=first)

    def remove(self, name: str) -> None:
        """Delete a table for good."""
        with self._lock, fatal("remove a table from", self._directory):
            self._tables.pop(name, None)
            self._found.pop(name, None)
            for first in self._listed().get(name, ()):
                self._disk.unlink(self._directory / f"{name}.{file_name(first)}")
            self._disk.fsync_dir(self._directory)

    def names(self) -> list[str]:
        """All tables there are, on the disk or only open yet."""
        return sorted(self._listed().keys() | self._tables.keys())

    def sync(self) -> None:
        """Make all rows durable that are there now. From any thread, beside one that appends.

        Raises:
            DiskFull: there is no room for some of them; everything that was not is still to be
                written or synced.
            StorageError: the disk failed; the owner stops the node then (D2).
        """
        with self._lock:
            tables = list(self._tables.values())
        for table in tables:
            table.sync()

    def close(self) -> None:
        """Let go of the files; waiting rows that were not synced are lost, as in a crash."""
        with self._lock:
            self._tables.clear()


def verify_table_file(file: DiskFile) -> str:
    """The damage of a table file, "" for none. Reads all of it."""
    header = unpack_header(file.pread(HEADER_BYTES, 0))
    if header is None:
        return "the table's header is damaged"
    row_size, first = header
    step = row_size + CRC_BYTES
    rows, rest = divmod(file.size() - HEADER_BYTES, step)
    for at in range(0, rows, CHUNK_ROWS):
        block = file.pread(min(CHUNK_ROWS, rows - at) * step, HEADER_BYTES + at * step)
        for number, _, is_sound in unpack_rows(block, row_size, first + at):
            if not is_sound:
                return f"row {number} is damaged"
    return f"{rest} bytes behind the last row" if rest else ""
