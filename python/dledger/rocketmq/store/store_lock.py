"""The users of a store, and how it was left: ``lock``, ``abort`` and ``checkpoint`` in its root."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dledger.errors import PathError
from dledger.rocketmq.format.checkpoint import CHECKPOINT_SIZE, StoreCheckpoint
from dledger.rocketmq.store.files import (
    HOST,
    folders,
    make_directory,
    read_whole,
    remove,
    storing,
    sync_directory,
    write_whole,
)
from dledger.storage.disk.disk import Disk

WORD: Final = b"lock"


class StoreLock:
    """The store's lock, which a broker holds while it runs: the first byte of ``lock``, locked as
    Java locks it."""

    def __init__(self, root: Path, disk: Disk = HOST) -> None:
        """Take the lock.

        Raises:
            PathError: another process, or this one, has the store open; or the file cannot be made.
        """
        path = root / "lock"
        try:
            self._lock = disk.lock_first_byte(path, WORD)
        except BlockingIOError as error:
            raise PathError(
                f"{root} is in use: a broker, or another dledger, has it open. Stop that one "
                f"first, or work on a copy"
            ) from error
        except OSError as error:
            raise PathError(
                f"{path} cannot be locked: {error.strerror}; it must be writable, on a local disk"
            ) from error

    def release(self) -> None:
        """Give it back."""
        self._lock.release()


class AbortFile:
    """``abort`` exists while a store is open: a start that finds it knows that the last one did not
    end well."""

    def __init__(self, root: Path, disk: Disk = HOST) -> None:
        self._path, self._disk = root / "abort", disk

    @property
    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def make(self) -> None:
        """Durably: before anything is written.

        Raises:
            DiskFull, StorageError: it cannot be made.
        """
        with storing("make", self._path):
            self._disk.open(self._path, create=True)
        sync_directory(self._path.parent, self._disk)

    def remove(self) -> None:
        """When everything is on the disk."""
        remove(self._path, self._disk)


class CheckpointFile:
    """``checkpoint``: up to which store times commit log, queues and index are on the disk."""

    def __init__(self, root: Path, disk: Disk = HOST) -> None:
        self._path, self._disk = root / "checkpoint", disk

    def read(self) -> StoreCheckpoint:
        """The checkpoint's fields; zeros where there is no file.

        Raises:
            FormatError: it is too short.
            StorageError: it cannot be read.
        """
        data = read_whole(self._path, self._disk)
        return StoreCheckpoint.decode(data) if data else StoreCheckpoint()

    def write(self, checkpoint: StoreCheckpoint) -> None:
        """Durably, in place where there is one: the numbers lie within one sector. Call it when the
        state that it describes is on the disk.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        disk, path, data = self._disk, self._path, checkpoint.encode()
        with storing("write", path):
            is_there = disk.exists(path) and disk.size(path) == CHECKPOINT_SIZE
            if is_there:
                file = disk.open(path)
                file.pwritev([data], 0)
                file.fdatasync()
        if not is_there:
            write_whole(path, data, disk=disk)


def make_root(root: Path, disk: Disk = HOST) -> None:
    """Make a store's folder where there is none.

    Raises:
        PathError: it cannot be a plain store's.
    """
    if any(name.startswith("dledger-") for name in folders(root, disk)):
        raise PathError(
            f"{root} is the store of a broker in DLedger mode: its log is not the plain commit log"
        )
    make_directory(root, disk)
