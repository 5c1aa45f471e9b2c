"""A disk in memory whose every operation is a switching point, before it and behind it.

A sync covers bytes that were written before it began, and none that come while it is under way.
Until it has ended, the bytes that it covers may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.types import Buffer
from verification.disk.memory_disk import Failure, MemoryDisk, MemoryFile, ProcessKilled
from verification.disk.memory_inode import Inode
from verification.interleave.scheduler import Scheduler

UNDER_WAY: Final = frozenset({"fdatasync under way", "fsync_dir under way"})
"""Switching points inside a sync."""
CHANGES: Final = frozenset(
    {
        "pwritev",
        "half written",
        "written",
        "rename",
        "renamed",
        "unlink",
        "unlinked",
        "fdatasync",
        "synced",
        *UNDER_WAY,
    }
)
"""Those in front of what changes what others see of the disk, or lose with it, and those behind
it."""
READS: Final = frozenset({"open", "pread", "has read"})

FIRST_STEP: Final = 256
"""A file of a schedule gets its blocks in steps, as a long one does on a real disk."""


@dataclass(slots=True)
class Image:
    """The files of a disk that was at rest."""

    files: dict[Path, bytes]
    directories: set[Path]
    now_ms: int = 1_700_000_000_000

    @staticmethod
    def of(disk: MemoryDisk) -> Image:
        return Image(
            {path: bytes(inode.written) for path, inode in disk.names.items()},
            set(disk.directories),
        )


@dataclass(slots=True)
class Style:
    """How a disk behaves in one schedule."""

    torn: bool = False
    """A write becomes visible in two halves."""
    choose: Callable[[int], int] | None = field(default=None)
    """Which of n outcomes a power cut has; None: no unsynced byte is left."""


class SwitchingDisk(MemoryDisk):
    """See `dledger.storage.disk.disk.Disk`. Without a scheduler it is a `MemoryDisk`."""

    def __init__(self, image: Image, style: Style) -> None:
        super().__init__(first_step=FIRST_STEP)
        self.scheduler: Scheduler | None = None
        self.torn = style.torn
        self._choose = style.choose
        self.names = {
            path: Inode(bytearray(data), bytearray(data), mtime_ms=self.now_ms)
            for path, data in image.files.items()
        }
        self.durable_names = dict(self.names)
        self.directories = image.directories

    def point(self, what: str, path: Path) -> None:
        """A switching point, in a schedule."""
        if self.scheduler is not None:
            self.scheduler.point(what, path)

    def check(self, operation: str, path: Path) -> Failure | None:
        if operation != "create":  # as `open`
            self.point(operation, path)
            self.operations += 1
        return None

    def cut_power(self) -> None:
        """Unsynced bytes are lost, or not, each by choice; so are those of a sync under way."""
        self.reboot(power=True, choose=self._choose)

    def holds(self, path: Path, low: int, high: int) -> bool:
        """Whether a power cut now would leave these bytes of the file as they are; while a file
        takes its place whose name is not durable yet, whether both do."""
        now = self.names.get(path)
        known = self.durable_names.get(path)
        if now is None or known is None:
            return False
        wanted = now.written[low:high]
        return all(inode.durable[low:high] == wanted for inode in (known, now))

    # --- operations -------------------------------------------------------------------------------

    def opened(self, path: Path, inode: Inode) -> MemoryFile:
        return SwitchingFile(self, path, inode)

    def exists(self, path: Path) -> bool:
        self.check("look for", path)
        return super().exists(path)

    def listdir(self, path: Path) -> list[str]:
        self.check("list", path)
        return super().listdir(path)

    def mtime_ms(self, path: Path) -> int:
        self.check("mtime of", path)
        return super().mtime_ms(path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.point("renamed", target)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.point("unlinked", path)

    def fsync_dir(self, path: Path) -> None:
        self.check("fsync_dir", path)
        covered = [change for change in self.pending_names if change[0].parent == path]
        made = [each for each in self.new_directories if each.parent == path]
        self.point("fsync_dir under way", path)
        names = self.durable_names
        for change in covered:
            if any(change is pending for pending in self.pending_names):
                source, target, inode = change
                names.pop(source, None)
                if target is not None and inode is not None:
                    names[target] = inode
        self.pending_names = [
            change for change in self.pending_names if not any(change is c for c in covered)
        ]
        self.new_directories = [each for each in self.new_directories if each not in made]
        self.point("fsync_dir done", path)


class SwitchingFile(MemoryFile):
    """An open file of a `SwitchingDisk`."""

    _disk: SwitchingDisk

    def pread(self, size: int, offset: int) -> bytes:
        found = super().pread(size, offset)
        self._disk.point("has read", self.path)
        return found

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        super().pwritev(buffers, offset)
        self._disk.point("written", self.path)

    def _put(self, data: bytes, offset: int) -> None:
        half = len(data) // 2 if self._disk.torn else 0
        if half:
            super()._put(data[:half], offset)
            self._disk.point("half written", self.path)
        super()._put(data[half:], offset + half)

    def fdatasync(self) -> None:
        disk, inode = self._disk, self._inode
        disk.check("fdatasync", self.path)
        flight = inode.begin_sync()
        try:
            disk.point("fdatasync under way", self.path)
        except ProcessKilled:
            inode.drop_sync(flight)
            raise
        inode.end_sync(flight)
        disk.point("synced", self.path)
