"""The users of a store, and how it was left: ``lock``, ``abort`` and ``checkpoint`` in its root."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import ClassVar, Final

from dledger.errors import PathError
from dledger.rocketmq.format.checkpoint import CHECKPOINT_SIZE, StoreCheckpoint
from dledger.rocketmq.store.files import make_directory, storing, sync_directory

WORD: Final = b"lock"


class StoreLock:
    """The store's lock, which a broker holds while it runs: the first byte of ``lock``, locked as
    Java locks it."""

    held: ClassVar[set[tuple[int, int]]] = set()
    """Device and inode of the locks of this process, which the system would give to it twice."""

    def __init__(self, root: Path) -> None:
        """Take the lock.

        Raises:
            PathError: another process, or this one, has the store open; or the file cannot be made.
        """
        path = root / "lock"
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PathError(
                f"{path} cannot be opened: {error.strerror}; it must be writable"
            ) from error
        status = os.fstat(self._handle)
        self._key = (status.st_dev, status.st_ino)
        busy = (
            f"{root} is in use: a broker, or another dledger, has it open. Stop that one "
            f"first, or work on a copy"
        )
        if self._key in self.held:
            # closing this one would set the other one free: the system counts by process
            self._handle = -1
            raise PathError(busy)
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._handle)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise PathError(busy) from error
            raise PathError(
                f"{path} cannot be locked: {error.strerror}; put the store on a local disk"
            ) from error
        self.held.add(self._key)
        with storing("write", path):
            os.pwrite(self._handle, WORD, 0)

    def release(self) -> None:
        """Give it back."""
        if self._key in self.held:
            self.held.discard(self._key)
            os.close(self._handle)


class AbortFile:
    """``abort`` exists while a store is open: a start that finds it knows that the last one did not
    end well."""

    def __init__(self, root: Path) -> None:
        self._path = root / "abort"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def make(self) -> None:
        """Durably: before anything is written.

        Raises:
            DiskFull, StorageError: it cannot be made.
        """
        make_directory(self._path.parent)
        with storing("make", self._path):
            self._path.touch()
        sync_directory(self._path.parent)

    def remove(self) -> None:
        """When everything is on the disk."""
        with storing("remove", self._path):
            self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)


class CheckpointFile:
    """``checkpoint``: up to which store times commit log, queues and index are on the disk."""

    def __init__(self, root: Path) -> None:
        self._path = root / "checkpoint"

    def read(self) -> StoreCheckpoint:
        """The checkpoint's fields; zeros where there is no file.

        Raises:
            FormatError: it is too short.
            StorageError: it cannot be read.
        """
        with storing("read", self._path):
            if not self._path.exists():
                return StoreCheckpoint()
            data = self._path.read_bytes()
        return StoreCheckpoint.decode(data) if data else StoreCheckpoint()

    def write(self, checkpoint: StoreCheckpoint) -> None:
        """Durably, in place: the numbers lie within one sector. Call it when the state that it
        describes is on the disk.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        data = checkpoint.encode()
        with storing("write", self._path):
            is_new = not self._path.exists() or self._path.stat().st_size != CHECKPOINT_SIZE
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(handle, data, 0)
                os.fsync(handle)
            finally:
                os.close(handle)
        if is_new:
            sync_directory(self._path.parent)


def make_root(root: Path) -> None:
    """Make a store's folder where there is none.

    Raises:
        PathError: it cannot be a plain store's.
    """
    if any(path.is_dir() for path in root.glob("dledger-*")):
        raise PathError(
            f"{root} is the store of a broker in DLedger mode: its log is not the plain commit log"
        )
    make_directory(root)
