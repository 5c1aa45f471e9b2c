"""A disk in memory whose every operation is a switching point, before it and behind it.

A sync covers what was written before it began, and nothing that comes while it is under way; until it has ended, what
it covers may be lost.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.store.files import DiskFile
from dledger.store.memory_disk import Failure, MemoryDisk, MemoryFile
from dledger.store.memory_inode import SECTOR, Inode
from dledger.testing.interleave.scheduler import Scheduler
from dledger.types import Buffer

UNDER_WAY: Final = frozenset({"fdatasync under way", "fsync_dir under way"})
"""Switching points inside a sync."""


@dataclass(slots=True, eq=False)
class Flight:
    """A sync of one file that is under way: it may have come to the disk or not, sector by sector."""

    inode: Inode
    before: dict[int, bytes]
    """What the disk holds of each sector if the sync has not come to it."""


@dataclass(slots=True)
class Image:
    """The files of a disk that was at rest."""

    files: dict[Path, bytes]
    directories: set[Path]
    now_ms: int = 1_700_000_000_000

    @staticmethod
    def of(disk: MemoryDisk) -> Image:
        return Image({path: bytes(inode.written) for path, inode in disk.names.items()}, set(disk.directories))


@dataclass(slots=True)
class Style:
    """How a disk behaves in one schedule."""

    torn: bool = False
    """A write becomes visible in two halves."""
    choose: Callable[[int], int] | None = field(default=None)
    """Which of n outcomes a power cut has; None: nothing that was not synced is left."""


class SwitchingDisk(MemoryDisk):
    """See `dledger.store.files.Disk`. Without a scheduler it is a `MemoryDisk`."""

    def __init__(self, image: Image, style: Style) -> None:
        super().__init__()
        self.scheduler: Scheduler | None = None
        self.torn = style.torn
        self._choose = style.choose
        self.flights: list[Flight] = []
        self.names = {path: Inode(bytearray(data), bytearray(data), mtime_ms=self.now_ms)
                      for path, data in image.files.items()}  # fmt: skip
        self.durable_names = dict(self.names)
        self.directories = image.directories

    def point(self, what: str, path: Path) -> None:
        """A switching point, in a schedule."""
        if self.scheduler is not None:
            self.scheduler.point(what, path)

    def check(self, operation: str, path: Path) -> Failure | None:
        if self.scheduler is not None:
            self.scheduler.point(operation, path)
        self.operations += 1
        return None

    def cut_power(self) -> None:
        """What was not synced is lost, or not; a sync under way is neither here nor there."""
        for flight in reversed(self.flights):
            for sector, before in flight.before.items():
                if self._choose is None or not self._choose(2):
                    low, high = sector * SECTOR, min(sector * SECTOR + len(before), len(flight.inode.durable))
                    if low < high:
                        flight.inode.durable[low:high] = before[: high - low]
                flight.inode.dirty.add(sector)
        self.flights.clear()
        self.reboot(power=True, choose=self._choose)

    def holds(self, path: Path, low: int, high: int) -> bool:
        """Whether a power cut now would leave these bytes of the file as they are; while a file takes its place whose
        name is not durable yet, whether both do."""
        now = self.names.get(path)
        known = self.durable_names.get(path)
        if now is None or known is None:
            return False
        wanted = now.written[low:high]
        return all(self._keeps(inode, low, wanted) for inode in (known, now))

    def _keeps(self, inode: Inode, low: int, wanted: bytearray) -> bool:
        high = low + len(wanted)
        if inode.durable[low:high] != wanted:
            return False
        return all(
            before[max(low - sector * SECTOR, 0) : high - sector * SECTOR]
            == inode.written[max(low, sector * SECTOR) : min(high, sector * SECTOR + len(before))]
            for flight in self.flights
            if flight.inode is inode
            for sector, before in flight.before.items()
            if sector * SECTOR < high and low < sector * SECTOR + len(before)
        )

    # --- operations -----------------------------------------------------------------------------------------------

    def open(self, path: Path, create: bool = False) -> DiskFile:
        self.check("open", path)
        inode = self.names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            inode = self.names[path] = Inode(mtime_ms=self.now_ms)
            self.pending_names.append((path, path, inode))
        return SwitchingFile(self, path, inode)

    def exists(self, path: Path) -> bool:
        self.check("look for", path)
        return super().exists(path)

    def listdir(self, path: Path) -> list[str]:
        self.check("list", path)
        return super().listdir(path)

    def mtime_ms(self, path: Path) -> int:
        self.check("mtime of", path)
        return self._inode(path).mtime_ms

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename to", target)
        self._inode(source)
        self.names[target] = inode = self.names.pop(source)
        self.layout += 1
        self.pending_names.append((source, target, inode))
        self.point("renamed to", target)

    def unlink(self, path: Path) -> None:
        self.check("unlink", path)
        self._inode(path)
        del self.names[path]
        self.layout += 1
        self.pending_names.append((path, None, None))
        self.point("unlinked", path)

    def _inode(self, path: Path) -> Inode:
        found = self.names.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return found

    def fsync_dir(self, path: Path) -> None:
        self.check("fsync_dir", path)
        covered = [change for change in self.pending_names if change[0].parent == path]
        self.point("fsync_dir under way", path)
        names = self.durable_names
        for change in covered:
            if any(change is pending for pending in self.pending_names):
                source, target, inode = change
                names.pop(source, None)
                if target is not None and inode is not None:
                    names[target] = inode
        self.pending_names = [change for change in self.pending_names if not any(change is c for c in covered)]
        self.point("fsync_dir done", path)


class SwitchingFile(MemoryFile):
    """An open file of a `SwitchingDisk`."""

    _disk: SwitchingDisk

    def pread(self, size: int, offset: int) -> bytes:
        found = super().pread(size, offset)
        self._disk.point("has read", self.path)
        return found

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        disk = self._disk
        disk.check("pwritev", self.path)
        data = b"".join(buffers)
        half = len(data) // 2 if disk.torn else 0
        if half:
            self._put(data[:half], offset)
            disk.point("half written", self.path)
        self._put(data[half:], offset + half)
        disk.point("written", self.path)

    def fdatasync(self) -> None:
        disk, inode = self._disk, self._inode
        disk.check("fdatasync", self.path)
        covered = {sector: bytes(inode.durable[sector * SECTOR : (sector + 1) * SECTOR]) for sector in inode.dirty}
        self._flush()
        if not covered:
            disk.point("nothing to sync", self.path)
            return
        flight = Flight(inode, covered)
        disk.flights.append(flight)
        disk.point("fdatasync under way", self.path)
        at = disk.flights.index(flight)
        del disk.flights[at]
        for earlier in disk.flights[:at]:
            if earlier.inode is inode:
                for sector in covered:
                    earlier.before.pop(sector, None)
        disk.point("synced", self.path)

    def _flush(self) -> None:
        """Everything that is written is on the disk."""
        inode, size = self._inode, len(self._inode.written)
        if inode.resized:
            inode.durable = inode.durable[:size].ljust(size, b"\0")
            inode.resized = False
        for sector in inode.dirty:
            low, high = sector * SECTOR, min((sector + 1) * SECTOR, size)
            inode.durable[low:high] = inode.written[low:high]
        inode.dirty.clear()
