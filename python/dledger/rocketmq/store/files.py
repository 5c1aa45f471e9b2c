"""Open files, and the few ways in which a store's small files are written."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger.errors import DiskFull, DLedgerError, PathError, StorageError
from dledger.types import Buffer

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
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
        raise disk_error(doing, path, error) from error


def disk_error(doing: str, path: Path, error: OSError) -> DLedgerError:
    """The error of a store for an error of the system."""
    if error.errno in FULL:
        return DiskFull(f"no space left to {doing} {path}: free some, or move the store")
    return StorageError(f"cannot {doing} {path}: {error.strerror}; see the system's log")


class FileHandles:
    """Open files for reading and writing, at most so many: the one that has not been used for
    longest is closed.

    A store with thousands of queues has more files than a process may have open: those that were
    used last stay so. Any thread may use a file, forget it, and close all: none is closed while it
    is in use.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._users: dict[int, int] = {}
        """Descriptor -> how many use it now."""
        self._leaving: set[int] = set()
        """Descriptors that are closed at the end of their last use."""
        self._lock = threading.Lock()
        weakref.finalize(self, close_all, self._open)

    @contextmanager
    def using(self, doing: str, path: Path) -> Iterator[int]:
        """The descriptor of a file that exists, which stays open up to the end of the block; errors
        are as `storing`'s.

        Raises:
            DiskFull, StorageError: it cannot be opened, or an operation of the block failed.
        """
        users = self._users
        with self._lock:
            handle = self._get(path)
            users[handle] = users.get(handle, 0) + 1
        try:
            yield handle
        except DLedgerError:
            raise
        except OSError as error:
            raise disk_error(doing, path, error) from error
        finally:
            with self._lock:
                left = users[handle] = users[handle] - 1
                if not left:
                    del users[handle]
                    if handle in self._leaving:
                        self._leaving.remove(handle)
                        os.close(handle)

    def _get(self, path: Path) -> int:
        assert self._lock.locked(), "handles are opened under FileHandles._lock"
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        while len(self._open) >= self._limit:
            self._let_go(self._open.popitem(last=False)[1])
        with storing("open", path):
            found = self._open[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return found

    def _let_go(self, handle: int) -> None:
        assert self._lock.locked(), "handles are closed under FileHandles._lock"
        if handle in self._users:
            self._leaving.add(handle)
        else:
            os.close(handle)

    def forget(self, path: Path) -> None:
        """Close a file that is going to be removed."""
        with self._lock:
            found = self._open.pop(path, None)
            if found is not None:
                self._let_go(found)

    def close(self) -> None:
        """Close all; files that have no reference any more are closed by themselves."""
        with self._lock:
            while self._open:
                self._let_go(self._open.popitem()[1])


def close_all(handles: OrderedDict[Path, int]) -> None:
    """Close and forget these descriptors."""
    while handles:
        os.close(handles.popitem()[1])


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably.

    Raises:
        PathError: there is a file in the way, or it may not be made.
    """
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(
            f"{path} cannot be made: {error.strerror}; name one that this user may write"
        ) from error
    for one in reversed(missing):
        sync_directory(one.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        StorageError: the disk failed.
    """
    with storing("sync", path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_whole(path: Path, data: Buffer, *, backup: bool = False) -> None:
    """Put a small file in the place of another one, durably: a reader sees the old bytes or the new
    ones, never both.

    Args:
        backup: keep the bytes that were there as ``<name>.bak``, which a broker reads when the file
            itself is bad.

    Raises:
        DiskFull, StorageError: it was not written, or perhaps not.
    """
    with storing("write", path):
        if backup and path.exists():
            write_whole(path.with_name(path.name + ".bak"), path.read_bytes())
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    sync_directory(path.parent)


def clear(handle: int, begin: int, end: int) -> bool:
    """Write zeros over the bytes of [begin, end) of a file; holes stay holes. Whether anything was
    there.

    Raises:
        OSError: the disk failed.
    """
    found = False
    at = begin
    while at < end:
        try:
            at = max(at, os.lseek(handle, at, os.SEEK_DATA))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        length = min(STRETCH, end - at)
        if length > 0 and os.pread(handle, length, at) != ZEROS[:length]:
            os.pwrite(handle, ZEROS[:length], at)
            found = True
        at += length if length > 0 else end
    return found
