"""Open files, and the few ways in which a store's small files are written."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger.errors import DiskFull, DLedgerError, PathError, StorageError
from dledger.storage.disk.disk import Disk, DiskFile, RealDisk, is_full
from dledger.storage.disk.file_names import is_file_name
from dledger.storage.disk.modes import UMASK
from dledger.storage.disk.small_files import read_all, replace_whole, sync_names_above
from dledger.types import Buffer

HOST: Final[Disk] = RealDisk(modes=UMASK)
"""The disks of this host."""
NEW: Final = ".tmp"
"""Ends the name of a file that is not ready."""
STRETCH: Final = 1 << 20
ZEROS: Final = bytes(STRETCH)


@contextmanager
def storing(doing: str, path: Path) -> Iterator[None]:
    """Raise OSErrors as errors of a store: ``doing`` says what was tried, as in ``write``.

    Raises:
        DiskFull: no space is left; the operation has not been done.
        StorageError: the disk failed; whether it was done is not known.
    """
    try:
        yield
    except DLedgerError:
        raise
    except OSError as error:
        if is_full(error):
            text = f"no space left to {doing} {path}: free some, or move the store"
            raise DiskFull(text) from error
        text = f"cannot {doing} {path}: {error.strerror}; see the system's log"
        raise StorageError(text) from error


class FileHandles:
    """Open files for reading and writing, at most so many: the one that has not been used for
    longest is let go.

    A store with thousands of queues has more files than a process may have open: those that were
    used last stay so. A file is closed when nobody uses it any more.
    """

    def __init__(self, limit: int = 256, *, disk: Disk = HOST) -> None:
        self.disk = disk
        self.durable: set[Path] = set()
        """Directories whose names are on the disk."""
        self._limit = limit
        self._open: OrderedDict[Path, DiskFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path) -> DiskFile:
        """A file that exists. Raises OSError."""
        with self._lock:
            found = self._open.get(path)
            if found is None:
                while len(self._open) >= self._limit:
                    self._open.popitem(last=False)
                found = self._open[path] = self.disk.open(path)
            else:
                self._open.move_to_end(path)
            return found

    def forget(self, path: Path) -> None:
        """Let go of a file that is going to be removed."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._open.clear()


def make_directory(path: Path, disk: Disk = HOST, durable: set[Path] | None = None) -> None:
    """Make a directory and those above it, durably.

    Args:
        durable: directories whose names are on the disk; these are added.

    Raises:
        PathError: there is a file in the way, or it may not be made.
        StorageError: the disk failed.
    """
    if durable and path.absolute() in durable and disk.is_dir(path):
        return
    was_there = disk.is_dir(path)
    try:
        disk.mkdir(path)
    except OSError as error:
        raise PathError(
            f"{path} cannot be made: {error.strerror}; name one that this user may write"
        ) from error
    with storing("sync", path.parent):
        try:
            sync_names_above(disk, path.absolute(), durable)
        except PermissionError:  # of a folder that somebody else has made
            if not was_there:
                raise


def make_file(path: Path, size: int, disk: Disk, begin: bytes = b"") -> None:
    """Make a file of this size, durably but for its name; the bytes behind ``begin`` are zeros.

    Raises:
        DiskFull, StorageError: it cannot be made.
    """
    fresh = path.with_name(path.name + NEW)
    with storing("make", path):
        file = disk.open(fresh, create=True)
        file.truncate(0)
        if begin:
            file.pwritev([begin], 0)
        file.truncate(size)
        file.fdatasync()
        disk.rename(fresh, path)


def sync_directory(path: Path, disk: Disk = HOST) -> None:
    """Make the names in a directory durable.

    Raises:
        StorageError: the disk failed.
    """
    with storing("sync", path):
        disk.fsync_dir(path)


def mapped(path: Path, disk: Disk = HOST) -> memoryview:
    """The bytes of a file, which are read when they are looked at.

    Raises:
        StorageError: it cannot be read.
    """
    with storing("read", path):
        file = disk.open_read_only(path)
        return file.map(file.size())


def read_whole(path: Path, disk: Disk = HOST) -> bytes | None:
    """The bytes of a small file; None where there is none.

    Raises:
        StorageError: it cannot be read.
    """
    with storing("read", path):
        return read_all(disk, path)


def write_whole(path: Path, data: Buffer, *, backup: bool = False, disk: Disk = HOST) -> None:
    """Put a small file in the place of another one, durably: a reader sees the old bytes or the new
    ones, never both.

    Args:
        backup: keep the bytes that were there as ``<name>.bak``, which a broker reads when the file
            itself is bad.

    Raises:
        DiskFull, StorageError: it was not written, or perhaps not.
    """
    before = read_whole(path, disk) if backup else None
    with storing("write", path):
        if before is not None:
            replace_whole(disk, path.with_name(path.name + ".bak"), before, NEW)
        replace_whole(disk, path, data, NEW)


def remove(path: Path, disk: Disk = HOST) -> None:
    """Remove a file, if it is there, durably.

    Raises:
        StorageError: the disk failed.
    """
    with storing("remove", path):
        if disk.exists(path):
            disk.unlink(path)
    sync_directory(path.parent, disk)


def folders(path: Path, disk: Disk = HOST) -> list[str]:
    """Names of the folders in a folder.

    Raises:
        StorageError: it cannot be read.
    """
    with storing("read", path):
        there = disk.listdir(path) if disk.is_dir(path) else []
        return [name for name in there if disk.is_dir(path / name)]


def log_names(directory: Path, disk: Disk = HOST) -> dict[int, int]:
    """Files that are named by 20 digits: where each begins, and its bytes; by offset. Without a
    directory, none.

    Raises:
        PathError: it is no directory, or may not be read.
    """
    try:
        names = filter(is_file_name, disk.listdir(directory))
        return {int(name): disk.size(directory / name) for name in names}
    except OSError as error:
        raise PathError(f"{directory} cannot be read: {error.strerror}") from error


def file_paths(directory: Path, disk: Disk = HOST) -> Iterator[Path]:
    """All files in a directory and below it. Raises OSError."""
    for name in disk.listdir(directory):
        path = directory / name
        if disk.is_dir(path):
            yield from file_paths(path, disk)
        else:
            yield path


def clear(file: DiskFile, begin: int, end: int) -> bool:
    """Write zeros over what there is in [begin, end) of a file; holes stay holes. Whether anything
    was there.

    Raises:
        OSError: the disk failed.
    """
    found = False
    at = file.next_data(begin)
    while at is not None and at < end:
        length = min(STRETCH, end - at)
        if file.pread(length, at) != ZEROS[:length]:
            file.pwritev([ZEROS[:length]], at)
            found = True
        at = file.next_data(at + length)
    return found
