"""A disk of a simulated host: `verification.disk.memory_disk` with time, counted faults, and
power cuts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dledger.storage.disk.disk import DiskFile, DiskSpace
from verification.disk.coverage import Uncovered
from verification.disk.memory_disk import Failure, MemoryDisk, ProcessKilled, _apply
from verification.disk.memory_inode import SECTOR, Inode
from verification.sim.astray import AstrayFile, Stray
from verification.sim.loop import SimLoop
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng
from verification.sim.scheduler import US

READS: Final = frozenset({"pread", "open", "statvfs"})
SYNCS: Final = frozenset({"fdatasync", "fsync_dir"})
NAMES: Final = {"pread": "read", "pwritev": "write", "fdatasync": "fsync"}
READ_NS: Final = 20 * US
WRITE_NS: Final = 10 * US


class Beside(Protocol):
    """Files of a host that are not on its simulated disk, and have its fate."""

    def let_go(self) -> None:
        """The process that uses them is gone."""

    def cut_power(self) -> None:
        """So is the power."""

    def empty(self) -> None:
        """Another disk is in its place."""

    def exchange(self, tree: dict[Path, bytes | None]) -> dict[Path, bytes | None]:
        """Another machine is, with these files; None: a folder. Those that were there."""


@dataclass(frozen=True, slots=True)
class Files:
    """The content of one machine's disk and memory; see `SimDisk` for the fields."""

    names: dict[Path, Inode]
    durable_names: dict[Path, Inode]
    pending_names: list[tuple[Path, Path | None, Inode | None]]
    boots: int
    rotten: bool
    beside: dict[Path, bytes | None]


class SimDisk(MemoryDisk):
    """One host's disk. It outlives processes; `plug` connects it with the one that uses it now."""

    def __init__(self, name: str, rng: Rng, counts: SeedCounts, total: int, tear: int) -> None:
        """``tear``: bytes that are written as a whole or not at all: 512 or 4096."""
        super().__init__(total, first_step=8 * tear)
        self.sync_ns = 500 * US
        """How long a sync takes, give or take a half."""
        self.hog = 0
        """Bytes that files of other programs take."""
        self.powered = False
        self.kill_in = 0
        """The process dies in so many changes of the disk; 0: no."""
        self.kill_part = ""
        """Only those count that are made to paths with this in them."""
        self.on_growth: Callable[[], None] | None = None
        """Called once, when a file is to be made longer, before there is room for it."""
        self.misdirect: dict[str, list[int]] = {"data": [], "index": []}
        """Of either kind of the log's files: how far from its place each of the next writes
        goes."""
        self._strayed_ns = -1
        """When a write of this life of its process went astray last."""
        self._strays: list[Stray] = []
        """Those of this life of its process that went to the log."""
        self.kill_with_power = False
        self.rotten = False
        """Something on it is another thing than what was written."""
        self.harmed = False
        """An error was raised in this life of its process."""
        self.is_out = False
        """Its node is not started: these files say that it was removed from its group, or it was
        never a member."""
        self.on_kill: Callable[[], None] = lambda: None
        self.on_uncovered: Callable[[str], None] = lambda text: None
        self.tear = tear
        self.beside: Beside | None = None
        """Files that the host has besides."""
        self._name = name
        self._rng = rng
        self._counts = counts
        self._loop: SimLoop | None = None
        self._used = 0, 0
        """`layout`, and what `used` was then."""

    def plug(self, loop: SimLoop) -> None:
        """A process begins to use it."""
        self._loop = loop
        self.powered = True
        self.kill_in = 0
        self._strayed_ns = -1
        self.harmed = False
        self.locked.clear()
        self.failures.clear()

    def unplug(self) -> None:
        """Its process is gone."""
        for stray in reversed(self._strays):
            stray.put_right(self.names)
        self._strays.clear()
        self.powered = False
        self._stopped_ms = self.now_ms
        self._loop = None
        if self.beside is not None:
            self.beside.let_go()

    def check(self, operation: str, path: Path) -> Failure | None:
        loop = self._loop
        if not self.powered or loop is None or loop.dead:
            raise ProcessKilled(f"{operation} {path.name}")
        loop.turns.point()
        if operation in READS:
            loop.spent_ns += READ_NS
        else:
            # what is under way when another thread fails goes on (I21)
            if not loop.turns.is_going_on:
                self.operations += 1
            if operation in SYNCS:
                loop.spent_ns += self._rng.between(self.sync_ns // 2, self.sync_ns * 3 // 2)
            else:
                loop.spent_ns += WRITE_NS
            if operation == "fallocate" and self.on_growth is not None:
                strike, self.on_growth = self.on_growth, None
                strike()
            if self.kill_in and self.kill_part in str(path):
                self.kill_in -= 1
                if not self.kill_in:
                    return self._die(operation, path)
        return self._ordered(operation, path) if self.failures else None

    def _die(self, operation: str, path: Path) -> Failure:
        """In the middle of a write, or instead of any other operation."""
        self._counts.bite("kill at a disk operation")
        if operation != "pwritev":
            self.on_kill()
            raise ProcessKilled(f"{operation} {path.name}")
        most = 100 if self.kill_part else 600  # a record in a slot is short
        return Failure(operation, "", 0, short=self._rng.below(most))

    def killed_in_write(self) -> None:
        """The half of the write is done."""
        self.on_kill()

    def _ordered(self, operation: str, path: Path) -> Failure | None:
        for failure in self.failures:
            if failure.operation == operation and failure.part in str(path) and failure.times > 0:
                if failure.skip > 0:
                    failure.skip -= 1
                    continue
                failure.times -= 1
                self.harmed = True
                self._counts.bite(
                    f"{errno.errorcode[failure.code]} on {NAMES.get(operation, operation)}"
                )
                raise OSError(failure.code, os.strerror(failure.code), str(path))
        return None

    def open(self, path: Path, create: bool = False) -> DiskFile:
        found, ways = super().open(path, create), self.misdirect.get(path.parent.name)
        return found if ways is None else AstrayFile(found, self.names[path], ways, self._strayed)

    def _strayed(self, stray: Stray) -> None:
        self.rotten = True
        if stray.path.parent.name == "data":
            self._strays.append(stray)
        if self._loop is not None:
            self._strayed_ns = self._loop.scheduler.now_ns
        self._counts.bite("misdirected write")

    @property
    def now_ms(self) -> int:
        """The time of its host's clock, as long as a process uses the disk."""
        return self._stopped_ms if self._loop is None else self._loop.clock.wall_us() // 1000

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._stopped_ms = value

    @property
    def strays(self) -> bool:
        """Whether it puts writes to other places now, so that repaired bytes may be lost, too."""
        now_ns = self._loop.scheduler.now_ns if self._loop is not None else -1
        return any(self.misdirect.values()) or self._strayed_ns == now_ns

    def witness(self, directory: Path, begin: int, end: int) -> None:
        """See `MemoryDisk.witness`; the node may swallow the error. A write that went astray can
        lie where a sync has been, and only the disk knows."""
        if self._strayed_ns >= 0:
            return
        try:
            super().witness(directory, begin, end)
        except Uncovered as error:
            self.on_uncovered(str(error))
            raise

    # --- space ------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes of all files."""
        layout, used = self._used
        if layout != self.layout:
            used = sum([inode.reserved for inode in self.names.values()])
            self._used = self.layout, used
        return used

    @property
    def free(self) -> int:
        return max(0, self.total - self.used - self.hog)

    @free.setter
    def free(self, value: int) -> None:
        self.hog = max(0, self.total - self.used - value) if hasattr(self, "names") else 0

    def statvfs(self, path: Path) -> DiskSpace:
        self.check("statvfs", path)
        return DiskSpace(self.total, self.free)

    # --- another disk -----------------------------------------------------------------------------

    def image(self) -> dict[Path, bytes]:
        """A copy of the disk as it would be with the power off now."""
        return {path: bytes(inode.durable) for path, inode in self.durable_names.items()}

    def exchange(self, files: Files | None = None) -> Files:
        """Another machine, empty or with these files, is in the place of this one. Returns the
        files of this one; bytes that its system has not written yet stay in its memory."""
        there = Files({}, {}, [], self.boots + 1, True, {}) if files is None else files
        beside = self.beside.exchange(there.beside) if self.beside is not None else {}
        here = Files(
            self.names, self.durable_names, self.pending_names, self.boots, self.rotten, beside
        )
        self.names, self.durable_names, self.pending_names = (
            there.names,
            there.durable_names,
            there.pending_names,
        )
        self.boots, self.rotten, self.is_out = there.boots, there.rotten, False
        self.layout += 1
        return here

    def put_back(self, image: dict[Path, bytes]) -> None:
        """Another disk, with these files, is in its place."""
        self.names = {
            path: Inode(bytearray(data), bytearray(data), mtime_ms=self.now_ms)
            for path, data in image.items()
        }
        self.durable_names = dict(self.names)
        self.layout += 1
        self.pending_names.clear()
        self.boots += 1
        self.is_out = False
        if self.beside is not None:
            self.beside.empty()

    # --- power ------------------------------------------------------------------------------------

    def cut_power(self) -> None:
        """Each unsynced block may be on the disk or not, by itself; of later names, a prefix is."""
        self.boots += 1
        rng = self._rng
        keep = rng.below(len(self.pending_names) + 1)
        if keep < len(self.pending_names):
            self._counts.bite("unsynced name lost")
        for path, target, inode in self.pending_names[:keep]:
            _apply(self.durable_names, path, target, inode)
        self.pending_names.clear()
        self.names = dict(self.durable_names)
        self.layout += 1
        odds = rng.pick((0, 500_000, 500_000, 900_000, 1_000_000))
        for inode in self.names.values():
            self._cut(inode, odds)
        if self.beside is not None:
            self.beside.cut_power()

    def _cut(self, inode: Inode, odds: int) -> None:
        """``odds``: of a dirty block to have been written, in millionths."""
        rng = self._rng
        inode.lose_power()
        size = len(inode.durable)
        if inode.resized and rng.chance(500_000):
            size = len(inode.written)
        result = inode.durable[:size].ljust(size, b"\0")
        blocks: dict[int, list[int]] = {}
        for sector in sorted(inode.dirty):
            blocks.setdefault(sector * SECTOR // self.tear, []).append(sector)
        kept = lost = 0
        for block, sectors in blocks.items():
            low, high = block * self.tear, min((block + 1) * self.tear, size, len(inode.written))
            if not rng.chance(odds):
                lost += len(sectors)
            elif low < high:
                result[low:high] = inode.written[low:high]
                kept += len(sectors)
        if lost and result != inode.written:
            self._counts.bite("unsynced write lost")
            if kept:
                self._counts.bite(f"write torn at {self.tear} B")
        inode.settle(result)
