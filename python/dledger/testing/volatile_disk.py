"""A disk without files, for tests: what is written is in this process's memory, and goes with it.

Bytes lie in anonymous files of the kernel, which a store reads, writes and maps as any others.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Final

from dledger.storage.disk.disk import DiskFile, DiskSpace, Lock, RealDisk, RealFile

SPACE: Final = DiskSpace(total=1 << 40, free=1 << 40)
"""How much room there is: the machine's memory is the limit, and the system guards that."""


class VolatileFile(RealFile):
    """A file without a name on any disk; all who open it share one handle."""

    __slots__ = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._may_go_direct = False
        self._direct = None
        self._fd = _anonymous(path.name)
        weakref.finalize(self, os.close, self._fd)

    def fdatasync(self) -> None:
        """Does nothing: there is no drive to wait for."""

    def fallocate(self, size: int, begin: int = 0) -> None:
        """The file grows; its bytes take memory when they are written."""
        if self.size() < size:
            self.truncate(size)

    def mtime_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def take_times(self, other: VolatileFile) -> None:
        status = os.fstat(other._fd)
        os.utime(self._fd, ns=(status.st_atime_ns, status.st_mtime_ns))


class VolatileLock:
    """Of one path of one disk, which no other process can see."""

    def __init__(self, held: set[Path], path: Path) -> None:
        if path in held:
            raise BlockingIOError(errno.EAGAIN, "another node has it", str(path))
        held.add(path)
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class VolatileDisk(RealDisk):
    """Files by their paths, and directories, which are not renamed. For many threads."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, VolatileFile] = {}
        self._directories: set[Path] = set()
        self._held: set[Path] = set()
        self._mutex = threading.Lock()

    def open(self, path: Path, create: bool = False) -> DiskFile:
        with self._mutex:
            if create and path not in self._files:
                if path.parent not in self._directories:
                    raise _missing(path.parent)
                self._files[path] = VolatileFile(path)
            return self._known(path)

    def open_read_only(self, path: Path) -> DiskFile:
        return self.open(path)

    def mkdir(self, path: Path) -> None:
        with self._mutex:
            self._directories.update((path, *path.parents))

    def listdir(self, path: Path) -> list[str]:
        with self._mutex:
            return sorted(p.name for p in (*self._files, *self._directories) if p.parent == path)

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._directories

    def is_dir(self, path: Path) -> bool:
        return path in self._directories

    def rename(self, source: Path, target: Path) -> None:
        with self._mutex:
            file = self._known(source)
            del self._files[source]
            file.path = target
            self._files[target] = file

    def unlink(self, path: Path) -> None:
        with self._mutex:
            self._known(path)
            del self._files[path]

    def fsync_dir(self, path: Path) -> None:
        """Does nothing, as `VolatileFile.fdatasync`."""

    def size(self, path: Path) -> int:
        return self._known(path).size()

    def mtime_ms(self, path: Path) -> int:
        return self._known(path).mtime_ms()

    def copy_times(self, source: Path, target: Path) -> None:
        self._known(target).take_times(self._known(source))

    def statvfs(self, path: Path) -> DiskSpace:
        return SPACE

    def lock(self, path: Path) -> Lock:
        with self._mutex:
            return VolatileLock(self._held, path)

    def lock_first_byte(self, path: Path, word: bytes) -> Lock:
        lock = self.lock(path)
        self.open(path, create=True).pwritev([word], 0)
        return lock

    def _known(self, path: Path) -> VolatileFile:
        try:
            return self._files[path]
        except KeyError:
            raise _missing(path) from None


def _anonymous(name: str) -> int:
    """A descriptor of a new file that has no name and goes with its last descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:  # pragma: no cover - systems without memfd
        return os.dup(file.fileno())


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such file in memory", str(path))
