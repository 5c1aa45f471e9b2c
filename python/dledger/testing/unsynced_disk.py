"""The operating system's files without syncs: for tests, whose machines do not lose power."""

from __future__ import annotations

import os
from pathlib import Path

from dledger.storage.disk.disk import DiskFile, RealDisk, RealFile


class UnsyncedFile(RealFile):
    """A file that is left to the page cache."""

    __slots__ = ()

    def fdatasync(self) -> None:
        """Does nothing: written bytes outlive the node, though not the machine."""


class UnsyncedDisk(RealDisk):
    """A `RealDisk` that waits for no drive, however slow, and wears none out."""

    def open(self, path: Path, create: bool = False) -> DiskFile:
        return UnsyncedFile(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def fsync_dir(self, path: Path) -> None:
        """Does nothing, as `UnsyncedFile.fdatasync`."""
