"""A disk in memory that fails, fills up, loses power and loses its process on command. For tests.

The model: written bytes are visible at once. A file takes room as far as it was written or
reserved, however long it is. A file's bytes survive a power cut when they were synced; of those
that were not, any set of 512-byte sectors may have reached the disk. A sync writes the bytes that
were there when it began. One that fails leaves the pages marked clean: the next one succeeds and
does not write them (ATC'20, "Can applications recover from fsync failures?"). Names survive when
their directory was synced; of later changes, a prefix may have.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from dledger.storage.disk.allocation_steps import FIRST_STEP
from dledger.storage.disk.disk import DiskFile, DiskSpace, Lock
from dledger.types import Buffer
from verification.disk.coverage import found, uncovered
from verification.disk.memory_inode import Choose, Inode, cut_power

Made = TypeVar("Made", bound=tuple[Any, ...])


class ProcessKilled(BaseException):
    """The process is gone: no `except` of the program under test may see it."""


@dataclass(slots=True)
class Failure:
    """``operation`` on a path that contains ``part`` raises ``code`` after ``skip`` more of them,
    ``times`` times."""

    operation: str
    part: str
    code: int
    skip: int = 0
    times: int = 1 << 30
    short: int | None = None
    """For a write: so many bytes of it are written before the error."""


class MemoryDisk:
    """See `dledger.storage.disk.disk.Disk`."""

    def __init__(self, total: int = 1 << 30, first_step: int = FIRST_STEP) -> None:
        self.total = total
        self.free = total
        self.now_ms = 1_700_000_000_000
        self.first_step = first_step
        self.names: dict[Path, Inode] = {}
        self.durable_names: dict[Path, Inode] = {}
        self.pending_names: list[tuple[Path, Path | None, Inode | None]] = []
        """Changes of names that no directory sync covers: (directory, path, inode or None for
        gone)."""
        self.layout = 0
        """Another number after every change of what all files together take."""
        self.directories: set[Path] = set()
        self.new_directories: list[Path] = []
        """Those whose names no directory sync covers."""
        self.loses_directories = False
        """Whether a power cut takes such names. Parts of a store are tested below directories that
        the store itself would have synced."""
        self.failures: list[Failure] = []
        self.locked: set[Path] = set()
        self.boots = 1
        self.operations = 0
        """Mutating operations so far."""
        self.kill_at: int | None = None
        """The process dies instead of doing the operation of this number."""
        self.kill_short: int | None = None
        """If that operation is a write: so many of its bytes are written first."""
        self.trace: list[str] = []
        self.meanwhile: list[tuple[str, str, Callable[[], None]]] = []
        """Actions of others while an operation is under way: (operation, part of its path, action),
        each once."""

    def check(self, operation: str, path: Path) -> Failure | None:
        """Count an operation; raise what was ordered for it. A write that fails half way is
        returned instead."""
        if operation not in {"pread", "open", "statvfs"}:
            if self.kill_at is not None and self.operations >= self.kill_at:
                if (
                    operation == "pwritev"
                    and self.kill_short is not None
                    and self.operations == self.kill_at
                ):
                    self.operations += 1
                    return Failure(operation, "", 0, short=self.kill_short)
                self.operations += 1
                raise ProcessKilled(f"{operation} {path.name}")
            self.operations += 1
            self.trace.append(f"{operation} {path.name}")
        for event in self.meanwhile[:]:
            if event[0] == operation and event[1] in str(path):
                self.meanwhile.remove(event)
                event[2]()
        for failure in self.failures:
            if failure.operation == operation and failure.part in str(path) and failure.times > 0:
                if failure.skip > 0:
                    failure.skip -= 1
                    continue
                failure.times -= 1
                if failure.short is not None and operation == "pwritev":
                    return failure
                raise OSError(failure.code, os.strerror(failure.code), str(path))
        return None

    def killed_in_write(self) -> None:
        """The first part of the last write is done, and the process is about to be gone."""

    def fail(self, operation: str, part: str = "", code: int = errno.EIO, **how: int) -> None:
        """Order a `Failure`."""
        self.failures.append(Failure(operation, part, code, **how))

    def reboot(self, power: bool, choose: Choose | None = None) -> None:
        """The process is gone, and with ``power`` the system too; then both can start again.

        Args:
            choose: which unsynced sectors and names survive a power cut; None: none of them does.
        """
        self.kill_at = self.kill_short = None
        self.failures.clear()
        self.locked.clear()
        if not power:
            return
        self.boots += 1
        keep = choose(len(self.pending_names) + 1) if choose else 0
        for path, target, inode in self.pending_names[:keep]:
            _apply(self.durable_names, path, target, inode)
        self.pending_names.clear()
        for path in self.new_directories:
            if self.loses_directories and (choose is None or not choose(2)):
                self._lose_directory(path)
        self.new_directories.clear()
        self.names = dict(self.durable_names)
        self.layout += 1
        for inode in {id(node): node for node in self.names.values()}.values():
            cut_power(inode, choose)

    def _lose_directory(self, path: Path) -> None:
        """With all that is below it."""
        self.directories = {each for each in self.directories if not each.is_relative_to(path)}
        for each in [each for each in self.durable_names if each.is_relative_to(path)]:
            del self.durable_names[each]

    def open(self, path: Path, create: bool = False) -> DiskFile:
        self.check("open", path)
        if create and path not in self.names:
            self.check("create", path)
            inode = self.names[path] = Inode(mtime_ms=self.now_ms)
            self.pending_names.append((path, path, inode))
        return self.opened(path, self._inode(path))

    def opened(self, path: Path, inode: Inode) -> MemoryFile:
        """An open file of this disk's kind."""
        return MemoryFile(self, path, inode)

    def open_read_only(self, path: Path) -> DiskFile:
        return self.open(path)

    def mkdir(self, path: Path) -> None:
        if path in self.names:
            raise FileExistsError(errno.EEXIST, "is a file", str(path))
        missing = [each for each in (path, *path.parents) if each not in self.directories]
        self.directories.update(missing)
        self.new_directories += [each for each in missing if each != each.parent]

    def restrict(self, path: Path) -> int:
        return 0  # no other users

    def listdir(self, path: Path) -> list[str]:
        directory = f"{path}/"
        below = [
            name.removeprefix(directory)
            for name in map(str, (*self.names, *self.directories))
            if name.startswith(directory)
        ]
        return sorted(name for name in below if name and "/" not in name)

    def exists(self, path: Path) -> bool:
        return path in self.names or path in self.directories

    def is_dir(self, path: Path) -> bool:
        return path in self.directories

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", target)
        inode = self._inode(source)
        del self.names[source]
        self.names[target] = inode
        self.layout += 1
        self.pending_names.append((source, target, inode))

    def unlink(self, path: Path) -> None:
        self.check("unlink", path)
        self._inode(path)
        del self.names[path]
        self.layout += 1
        self.pending_names.append((path, None, None))

    def fsync_dir(self, path: Path) -> None:
        self.check("fsync_dir", path)
        rest = []
        for change in self.pending_names:
            if change[0].parent == path:
                _apply(self.durable_names, *change)
            else:
                rest.append(change)
        self.pending_names = rest
        self.new_directories = [each for each in self.new_directories if each.parent != path]

    def size(self, path: Path) -> int:
        return len(self.names[path].written)

    def mtime_ms(self, path: Path) -> int:
        return self._inode(path).mtime_ms

    def _inode(self, path: Path) -> Inode:
        found = self.names.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return found

    def copy_times(self, source: Path, target: Path) -> None:
        self.check("copy_times", target)
        self.names[target].mtime_ms = self.names[source].mtime_ms

    def statvfs(self, path: Path) -> DiskSpace:
        self.check("statvfs", path)
        return DiskSpace(self.total, self.free)

    def lock(self, path: Path) -> Lock:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
        self.locked.add(path)
        return MemoryLock(self, path)

    def lock_first_byte(self, path: Path, word: bytes) -> Lock:
        lock = self.lock(path)
        try:
            self.open(path, create=True).pwritev([word], 0)
        except BaseException:
            lock.release()
            raise
        return lock

    def boot_id(self) -> bytes:
        return self.boots.to_bytes(16, "big")

    def witness(self, directory: Path, begin: int, end: int) -> None:
        """See `dledger.storage.disk.disk.Witness`."""
        files = [
            (path, inode.coverage) for path, inode in list(self.names.items()) if inode.coverage
        ]
        if text := uncovered(files, directory, begin, end):
            raise found(text)

    def content(self, path: Path) -> bytearray:
        """A file's bytes, to look at or to damage."""
        return self.names[path].written

    def flip(self, path: Path, offset: int, mask: int = 0xFF) -> None:
        """Rot: change one byte, on the disk too."""
        inode = self.names[path]
        inode.written[offset] ^= mask
        if offset < len(inode.durable):
            inode.durable[offset] ^= mask


def kills(
    prepare: Callable[[], Made], act: Callable[..., object], least: int = 1
) -> Iterator[Made]:
    """What ``prepare`` has made, a disk first, once for each operation of that disk in front of
    which ``act`` was killed, until it gets to its end; it has ``least`` operations."""
    for at in count():
        made = prepare()
        disk: MemoryDisk = made[0]
        disk.kill_at = disk.operations + at
        try:
            act(*made)
        except ProcessKilled:
            yield made
        else:
            assert at >= least, f"only {at} operations"
            return


def _apply(names: dict[Path, Inode], path: Path, target: Path | None, inode: Inode | None) -> None:
    names.pop(path, None)
    if target is not None and inode is not None:
        names[target] = inode


class MemoryFile:
    """An open file of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: Path, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.check("pread", self.path)
        return bytes(self._inode.written[offset : offset + size])

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        coverage = self._inode.coverage
        number = coverage.writing(offset, offset + len(data))
        try:
            self._pwritev(data, offset)
        finally:
            coverage.wrote(number)

    def _pwritev(self, data: bytes, offset: int) -> None:
        half = self._disk.check("pwritev", self.path)
        if half is not None and half.short is not None:
            self._put(data[: half.short], offset)
            if half.code:
                raise OSError(half.code, os.strerror(half.code), str(self.path))
            self._disk.killed_in_write()
            raise ProcessKilled(f"pwritev {self.path.name}")
        if offset + len(data) - self._inode.reserved > self._disk.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._put(data, offset)

    def _put(self, data: bytes, offset: int) -> None:
        inode, before = self._inode, self._inode.reserved
        inode.put(data, offset)
        if data:
            inode.mtime_ms = self._disk.now_ms
        if inode.reserved != before:
            self._disk.layout += 1

    def fdatasync(self) -> None:
        inode = self._inode
        flight = inode.begin_sync()
        try:
            self._disk.check("fdatasync", self.path)
        except OSError:
            inode.fail_sync(flight)
            raise
        except BaseException:
            inode.drop_sync(flight)
            raise
        inode.end_sync(flight)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        inode = self._inode
        if size == len(inode.written):
            return
        self._disk.layout += 1
        if size < len(inode.written):
            inode.cut(size)
        else:
            inode.grow(size)

    def fallocate(self, size: int, begin: int = 0) -> None:
        self._disk.check("fallocate", self.path)
        inode = self._inode
        if size - inode.reserved > self._disk.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        if size > inode.reserved:
            self._disk.layout += 1
            inode.reserved = size
        if size > len(inode.written):
            inode.grow(size)

    def size(self) -> int:
        return len(self._inode.written)

    def next_data(self, offset: int) -> int | None:
        return offset if self._inode.written[offset:].strip(b"\0") else None

    def map(self, size: int, *, write: bool = False) -> memoryview:
        self._disk.check("map", self.path)
        view = self._inode.map(write)[:size]
        return view if write else view.toreadonly()


class MemoryLock:
    """A held lock of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)
