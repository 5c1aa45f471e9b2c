"""An old plain commit log that a group shall go on behind, and the changes of its files for that.

The place where the two meet is the original's: the last file is closed by a blank where its last
message ends, and dividedCommitlogOffset is where that file ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.rocketmq.format.message import encode_blank
from dledger.rocketmq.store.files import HOST, make_directory, storing, sync_directory
from dledger.storage.disk.disk import Disk
from dledger.storage.disk.file_names import file_name

STAGED: Final = "adopting-"
"""Begins the name of a node's directory that is not ready."""
PIECE_BYTES: Final = 64 << 10
"""Copied at once, unless it is zeros."""
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
    disk: Disk = HOST
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
        return self.root / "commitlog" / file_name(self.starts[-1])


def close_last_file(old: Adoption) -> None:
    """Write the blank, durably, unless it is there.

    Raises:
        StorageError: the disk failed.
    """
    path, start = old.last_file, old.starts[-1]
    with storing("close", path):
        file = old.disk.open(path)
        if not old.has_blank:
            file.pwritev([encode_blank(old.divided_offset - old.end)], old.end - start)
        file.fdatasync()


def copy_store(root: Path, target: Path, disk: Disk = HOST) -> None:
    """Copy a store's files, holes as holes, with their times; durable on return, but for the
    target's own name.

    Raises:
        DiskFull, StorageError: it is not all there.
    """
    _copy_folder(root, target, disk, LEFT_OUT, set())


def _copy_folder(
    source: Path, target: Path, disk: Disk, left_out: Collection[str], durable: set[Path]
) -> None:
    make_directory(target, disk, durable)
    for name in disk.listdir(source):
        path = source / name
        if disk.is_dir(path):
            if not name.startswith(STAGED):
                _copy_folder(path, target / name, disk, (), durable)
        elif name not in left_out:
            with storing("copy to", target / name):
                _copy_file(path, target / name, disk)
    sync_directory(target, disk)


def _copy_file(source: Path, target: Path, disk: Disk) -> None:
    old, new = disk.open_read_only(source), disk.open(target, create=True)
    new.truncate(0)
    at = old.next_data(0)
    while at is not None and (data := old.pread(PIECE_BYTES, at)):
        if data.count(0) < len(data):
            new.pwritev([data], at)
        at = old.next_data(at + len(data))
    new.truncate(old.size())
    new.fdatasync()
    disk.copy_times(source, target)
