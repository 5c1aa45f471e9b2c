"""An old plain commit log that a group shall go on behind, and the changes of its files for that.

The place where the two meet is the original's: the last file is closed by a blank where its last
message ends, and dividedCommitlogOffset is where that file ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.rocketmq.format.message import encode_blank
from dledger.rocketmq.store.files import make_directory, storing, sync_directory

STAGED: Final = "adopting-"
"""Begins the name of a node's directory that is not ready."""
PIECE_BYTES: Final = 4 << 20
LEFT_OUT: Final = ("lock", "abort")
"""Of a store that is copied: the files that say that it is in use."""


@dataclass(slots=True)
class Adoption:
    """An old log, and how a group goes on behind it."""

    root: Path
    """The store's root."""
    file_size: int
    """Bytes of each file."""
    starts: list[int]
    """Where the files begin."""
    end: int = 0
    """Behind the last message."""
    has_blank: bool = False
    """The last file is closed already."""
    tail: str = ""
    """The bytes behind the last message where there should be none."""
    messages: int = 0
    store_ms: int = 0
    """Store time of the last message, milliseconds since 1970."""
    queues: dict[str, dict[int, int]] = field(default_factory=dict)
    """topic -> queue id -> queue offset of the next message, of queues that ever had one."""
    reborn: list[str] = field(default_factory=list)
    """Queues (``topic/queue``) of which the log has more than their consume queue: of topics that
    were deleted."""
    fingerprint: int = 0
    """CRC-32 of where the log ends and of the last file's messages: equal where the old logs of two
    members are."""

    @property
    def divided_offset(self) -> int:
        """Where the old log ends and the group's begins."""
        return self.starts[-1] + self.file_size

    @property
    def last_file(self) -> Path:
        return self.root / "commitlog" / f"{self.starts[-1]:020d}"


def close_last_file(old: Adoption) -> None:
    """Write the blank, durably, unless it is there.

    Raises:
        StorageError: the disk failed.
    """
    path, start = old.last_file, old.starts[-1]
    with storing("close", path):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not old.has_blank:
                os.pwrite(handle, encode_blank(old.divided_offset - old.end), old.end - start)
            os.fsync(handle)
        finally:
            os.close(handle)


def copy_store(root: Path, target: Path) -> None:
    """Copy a store's files, holes as holes, with their times; durable on return, but for the
    target's own name.

    Raises:
        DiskFull, StorageError: it is not all there.
    """
    for folder, folders, names in os.walk(root):
        here = target / Path(folder).relative_to(root)
        folders[:] = [name for name in folders if not name.startswith(STAGED)]
        make_directory(here)
        for name in names:
            if Path(folder) != root or name not in LEFT_OUT:
                with storing("copy to", here / name):
                    _copy_file(Path(folder) / name, here / name)
        sync_directory(here)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        status = os.fstat(old.fileno())
        at = 0
        while at < status.st_size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            stop = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < stop and (data := os.pread(old.fileno(), min(PIECE_BYTES, stop - at), at)):
                os.pwrite(new.fileno(), data, at)
                at += len(data)
        os.ftruncate(new.fileno(), status.st_size)
        os.fsync(new.fileno())
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
