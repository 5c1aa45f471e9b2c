"""Small files that are written as a whole, and directories that last."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from dledger.storage.disk.disk import Disk
from dledger.storage.disk.file_names import NEW_SUFFIX
from dledger.types import Buffer

NOT_OURS: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL}
"""Errors of directories that may not be read or changed: nobody makes others in them."""


def read_all(disk: Disk, path: Path) -> bytes | None:
    """The bytes of a file; None where there is none."""
    if not disk.exists(path):
        return None
    file = disk.open_read_only(path)
    return file.pread(file.size(), 0)


def make_directory(disk: Disk, path: Path) -> None:
    """Make a directory, if it is not there; durable on return, and the names in it are: a process
    that was killed may not have come to it."""
    disk.mkdir(path)
    disk.fsync_dir(path.parent)
    disk.fsync_dir(path)


def remove(disk: Disk, path: Path) -> None:
    """Remove a file, if it is there."""
    if disk.exists(path):
        disk.unlink(path)


def replace_whole(disk: Disk, path: Path, data: Buffer, suffix: str = NEW_SUFFIX) -> None:
    """Put a file in the place of another one, or of none; durable on return, its name too. A crash
    leaves the old bytes or the new ones.

    Args:
        suffix: of the name that the new file has until it is whole.
    """
    fresh = path.with_name(path.name + suffix)
    new = disk.open(fresh, create=True)
    new.truncate(0)
    new.pwritev([data], 0)
    new.fdatasync()
    disk.rename(fresh, path)
    disk.fsync_dir(path.parent)


def sync_names_above(disk: Disk, path: Path, known: set[Path] | None = None) -> None:
    """Make the name of a directory durable, and those of all above it: any of them may have been
    made for it, by this process or by one that was killed before it came to syncing them.

    Args:
        known: directories with names that are durable already; these become such.
    """
    known = set() if known is None else known
    disk.fsync_dir(path.parent)
    for directory in path.parents:
        if directory in known or directory == directory.parent:
            break
        try:
            disk.fsync_dir(directory.parent)
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
    known.update((path, *path.parents))
