"""Saved states of the catalog: written whole or not at all, checksummed, and the one before kept as
well.

::

    snapshot/<index, 20 digits>
    byte 0        4         6         8       16       24      28
         | "DLsn" | version | reserved | index | length | crc32 | data
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.storage.disk.disk import Disk, RealDisk, fatal, fatal_unless_full
from dledger.storage.disk.file_names import file_name, is_file_name
from dledger.storage.disk.small_files import make_directory, replace_whole
from dledger.types import Index

_HEADER: Final = struct.Struct(">4sHHqQI")
VERSION: Final = 1
KEPT: Final = 2
SNAPSHOTS: Final = "snapshot"
"""The directory, in that of the node."""


def _header(index: int, data: bytes) -> bytes:
    crc = crc32(data, crc32(_HEADER.pack(b"DLsn", VERSION, 0, index, len(data), 0)))
    return _HEADER.pack(b"DLsn", VERSION, 0, index, len(data), crc)


def pack_snapshot(index: Index, data: bytes) -> bytes:
    """The bytes of a snapshot file."""
    return _header(index, data) + data


def unpack_snapshot(stored: bytes) -> tuple[Index, bytes] | None:
    """(index, data), or None when any byte is not as written."""
    if len(stored) < _HEADER.size:
        return None
    index, data = _HEADER.unpack_from(stored)[3], stored[_HEADER.size :]
    return (Index(index), data) if stored[: _HEADER.size] == _header(index, data) else None


class SnapshotFiles:
    """The snapshots of one directory. Methods raise StorageError; the owner stops the node then
    (D2)."""

    def __init__(self, directory: Path, disk: Disk | None = None, *, make: bool = True) -> None:
        """``make``: the directory, if it is not there; for a reader it may be missing."""
        self._directory = directory
        self._disk = disk or RealDisk()
        with fatal("open the snapshots in", directory):
            if make:
                make_directory(self._disk, directory)
        self.skipped: list[str] = []
        """Files that `load` passed over because they are damaged."""

    def save(self, index: Index, data: bytes) -> None:
        """Keep ``data`` as the state after entry ``index``; durable on return. Older ones but one
        go.

        Raises:
            DiskFull: there is no room; the older ones stay.
        """
        with fatal_unless_full("save a snapshot in", self._directory):
            replace_whole(self._disk, self._path(index), pack_snapshot(index, data))
            for old in self._indexes()[:-KEPT]:
                self._disk.unlink(self._path(old))

    def newest(self, above: int) -> Index | None:
        """The index of the latest sound snapshot of those above that one, if there is any."""
        later = (Index(index) for index in reversed(self._indexes()) if index > above)
        return next((index for index in later if self._read(index) is not None), None)

    def load(self, limit: int | None = None) -> tuple[Index, bytes] | None:
        """The latest sound snapshot (of an index up to ``limit``), else the one before it, else
        None."""
        self.skipped = []
        for index in reversed(self._indexes()):
            if limit is not None and index > limit:
                continue
            if (found := self._read(index)) is not None:
                return found
            self.skipped.append(f"{self._path(index)}: damaged, and passed over")
        return None

    def _read(self, index: int) -> tuple[Index, bytes] | None:
        """None: it is damaged."""
        path = self._path(index)
        with fatal("read", path):
            file = self._disk.open(path)
            found = unpack_snapshot(file.pread(file.size(), 0))
        return found if found is not None and found[0] == index else None

    def oldest(self) -> Index | None:
        """The index of the oldest snapshot kept: entries behind it are needed to go back to it."""
        return next(map(Index, self._indexes()), None)

    def remove(self, above: int = -2) -> None:
        """Those of later entries than that one go, by default all; durable on return."""
        with fatal("remove the snapshots in", self._directory):
            gone = [index for index in self._indexes() if index > above]
            for index in gone:
                self._disk.unlink(self._path(index))
            if gone:
                self._disk.fsync_dir(self._directory)

    def _path(self, index: int) -> Path:
        return self._directory / file_name(index)

    def _indexes(self) -> list[int]:
        names = self._disk.listdir(self._directory)
        return sorted(map(int, filter(is_file_name, names)))
