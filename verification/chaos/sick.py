"""A disk whose operations fail or take long as a panel says."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

from dledger.storage.disk.disk import DiskFile, DiskSpace, RealDisk, RealFile
from dledger.types import Buffer
from verification.chaos.panel import Panel


class SickFile(RealFile):
    """A file whose operations fail or take long as its panel says."""

    __slots__ = ("_panel",)

    def __init__(self, path: Path, flags: int, panel: Panel) -> None:
        super().__init__(path, flags, direct=True)
        self._panel = panel

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._fail("write_error", "write_errors")
        if delay := self._panel["write_delay_us"]:
            time.sleep(delay / 1e6)
        super().pwritev(buffers, offset)

    def fdatasync(self) -> None:
        panel = self._panel
        panel.count("syncs")
        self._fail("sync_error", "sync_errors")
        if delay := panel["sync_delay_us"]:
            panel.count("syncs_delayed")
            time.sleep(delay / 1e6)
        super().fdatasync()

    def fallocate(self, size: int, begin: int = 0) -> None:
        self._fail("full", "full_refusals", errno.ENOSPC)
        super().fallocate(size, begin)

    def _fail(self, switch: str, count: str, number: int = errno.EIO) -> None:
        """Fail where the panel says so."""
        if self._panel[switch]:
            self._panel.count(count)
            raise OSError(number, os.strerror(number), str(self.path))


class SickDisk(RealDisk):
    """The operating system's files, with faults."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(direct=True)
        self.panel = panel

    def open(self, path: Path, create: bool = False) -> DiskFile:
        return SickFile(path, os.O_RDWR | (os.O_CREAT if create else 0), self.panel)

    def statvfs(self, path: Path) -> DiskSpace:
        space = super().statvfs(path)
        return DiskSpace(space.total, 0) if self.panel["full"] else space
