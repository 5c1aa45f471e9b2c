"""The disk as the store sees it: a small protocol, and the real one.

Everything the store does to a disk goes through `Disk`, so that a test can fail or stop it at any
operation (see ``verification.disk.memory_disk``). Methods raise OSError; the store decides what
an error means.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from dledger.errors import DiskFull, PathError, StorageError
from dledger.forks import check_lock, let_go, open_for_lock
from dledger.storage.disk.allocation_steps import FIRST_STEP
from dledger.storage.disk.direct_io import DIRECT_BYTES, PIECE_BYTES, DirectWriter, is_refusal
from dledger.storage.disk.first_byte_lock import FirstByteLock
from dledger.storage.disk.modes import OWNER, Modes, make_directories, restrict
from dledger.types import Buffer, slots_dataclass

IOV_MAX: Final = 1024


def is_full(error: OSError) -> bool:
    """Whether there is no room, rather than a disk that fails."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def storage_error(what: str, where: Path, error: OSError) -> StorageError:
    """The error for an OSError of any part of the store: the disk failed (D2)."""
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        why = (
            "No more files can be opened, so this node stops; raise the limit (ulimit -n, "
            "fs.file-max)"
        )
    elif error.errno == errno.ELOOP:
        why = "A new file cannot be made through a symbolic link; see who put it there, remove it"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        why = "That is not allowed, so this node stops; give its user the right to write there"
    else:
        why = (
            "The disk failed, so this node stops; see the system's log, and replace the disk "
            "or free space"
        )
    return StorageError(f"{what} {where}: {error}. {why} before it starts again")


@contextmanager
def fatal(what: str, where: Path) -> Iterator[None]:
    """Raise OSErrors as `storage_error`; a path that cannot be used says so itself."""
    try:
        yield
    except PathError:
        raise
    except OSError as error:
        raise storage_error(what, where, error) from error


@contextmanager
def fatal_unless_full(what: str, where: Path) -> Iterator[None]:
    """As `fatal`, but for want of room: that is a DiskFull."""
    with fatal(what, where):
        try:
            yield
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"{what} {where}: {error}; free some space") from error
            raise


@slots_dataclass()
class DiskSpace:
    """Bytes of the file system that holds a path; ``free`` is what this user may still take."""

    total: int
    free: int


class DiskFile(Protocol):
    """One open file. Its handle goes when the last reference does, so that a reader never meets a
    closed one."""

    @property
    def path(self) -> Path: ...
    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end of the file."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers back to back, or raise."""

    def fdatasync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def fallocate(self, size: int, begin: int = 0) -> None:
        """Reserve blocks for the bytes from ``begin`` up to ``size``; new ones read as zero."""

    def size(self) -> int: ...
    def next_data(self, offset: int) -> int | None:
        """A place at or behind ``offset`` in front of which there are only zeros; None: zeros to
        the end."""

    def map(self, size: int, *, write: bool = False) -> memoryview:
        """The first ``size`` bytes of the file, which it has, in memory; with ``write``, what is
        changed there is written as `pwritev` does, where there are blocks for it. The file keeps
        its size meanwhile."""


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None: ...


Witness = Callable[[Path, int, int], None]
"""Told that bytes from one place to another of the log in a directory are about to be called
durable; raises when no sync covers them that began after they were written."""


class Disk(Protocol):
    """The few operations that the store needs."""

    @property
    def witness(self) -> Witness | None:
        """A disk of a test has one (`verification.disk.coverage`)."""

    @property
    def first_step(self) -> int:
        """Bytes for which a new file of the log gets blocks at once
        (`dledger.storage.disk.allocation_steps`)."""

    def open(self, path: Path, create: bool = False) -> DiskFile:
        """Open for reading and writing; with ``create`` also make it when it is not there."""

    def open_read_only(self, path: Path) -> DiskFile: ...
    def mkdir(self, path: Path) -> None:
        """Make the directory and those above it, if need be."""

    def restrict(self, path: Path) -> int:
        """Take rights from other users that a new file would not have: see
        `dledger.storage.disk.modes`; the number of files that changed."""

    def listdir(self, path: Path) -> list[str]:
        """Sorted names; empty when there is no such directory."""

    def exists(self, path: Path) -> bool: ...
    def is_dir(self, path: Path) -> bool: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def fsync_dir(self, path: Path) -> None: ...
    def size(self, path: Path) -> int: ...
    def mtime_ms(self, path: Path) -> int: ...
    def copy_times(self, source: Path, target: Path) -> None:
        """Give a file the times of another one."""

    def statvfs(self, path: Path) -> DiskSpace: ...
    def lock(self, path: Path) -> Lock:
        """Take the lock file for this process. Raises BlockingIOError when another opener holds it,
        and PathError when the file system's locks keep no other process out."""

    def lock_first_byte(self, path: Path, word: bytes) -> Lock:
        """As `lock`, in the way in which Java's programs lock a file; it begins with ``word``."""

    def boot_id(self) -> bytes:
        """16 bytes that differ after each start of the operating system; empty when it cannot be
        told."""


def _no_link(flags: int) -> int:
    """A file that may be new is made where its name says, and not where a link leads."""
    return flags | (os.O_NOFOLLOW if flags & os.O_CREAT else 0)


class RealFile:
    """A file descriptor."""

    __slots__ = ("__weakref__", "_direct", "_fd", "_may_go_direct", "path")

    def __init__(
        self, path: Path, flags: int, *, direct: bool = False, modes: Modes = OWNER
    ) -> None:
        """``direct``: let large writes go past the page cache where that is possible."""
        self.path = path
        self._may_go_direct = direct
        self._direct: DirectWriter | None = None
        self._fd = os.open(path, _no_link(flags) | os.O_CLOEXEC, modes.file)
        weakref.finalize(self, os.close, self._fd)

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        size, count = sum(map(len, buffers)), len(buffers)
        may_pay = self._may_go_direct and size >= DIRECT_BYTES and size >= PIECE_BYTES * count
        if not (may_pay and self._past_cache(buffers, offset)):
            self._through_cache(buffers, offset)

    def _past_cache(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """False where the file system wants none of it; then nothing is tried again."""
        try:
            if self._direct is None:
                self._direct = DirectWriter(self.path, self._fd)
            self._direct.pwritev(buffers, offset, self._through_cache)
        except OSError as error:
            if not is_refusal(error):
                raise
            self._may_go_direct, self._direct = False, None
        return self._may_go_direct

    def _through_cache(self, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX]
            total = sum(map(len, part))
            written = os.pwritev(self._fd, part, offset)
            if written < total:
                self._write_rest(b"".join(part), written, offset)
            offset += total

    def _write_rest(self, data: bytes, written: int, offset: int) -> None:
        while written < len(data):
            count = os.pwrite(self._fd, data[written:], offset + written)
            if count <= 0:
                raise OSError(errno.EIO, "a write made no progress", str(self.path))
            written += count

    def fdatasync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:  # pragma: no cover - macOS has only fsync, and that stops at the drive's cache
            fcntl.fcntl(self._fd, 51)  # F_FULLFSYNC

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fallocate(self, size: int, begin: int = 0) -> None:
        if size <= begin:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, begin, size - begin)
        elif self.size() < size:  # pragma: no cover - a system without it gets a sparse file
            os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset

    def map(self, size: int, *, write: bool = False) -> memoryview:
        if not size:
            return memoryview(b"")
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        return memoryview(mmap.mmap(self._fd, size, access=access))


class RealLock:
    """A flock: the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path, modes: Modes = OWNER) -> None:
        self._fd = open_for_lock(path, _no_link(os.O_RDWR | os.O_CREAT), modes.file)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            check_lock(path)
        except BaseException:
            let_go(self._fd)
            raise

    def release(self) -> None:
        if self._fd >= 0:
            let_go(self._fd)
            self._fd = -1


class RealDisk:
    """The operating system's files.

    Args:
        direct: large writes go past the page cache where that is possible, which suits writes that
            are synced at once.
        modes: of what is made.
    """

    witness: Witness | None = None
    first_step = FIRST_STEP

    def __init__(self, *, direct: bool = False, modes: Modes = OWNER) -> None:
        self._direct = direct
        self._modes = modes

    def open(self, path: Path, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return RealFile(path, flags, direct=self._direct, modes=self._modes)

    def open_read_only(self, path: Path) -> DiskFile:
        return RealFile(path, os.O_RDONLY)

    def mkdir(self, path: Path) -> None:
        make_directories(path, self._modes)

    def restrict(self, path: Path) -> int:
        return restrict(path, self._modes)

    def listdir(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def mtime_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def copy_times(self, source: Path, target: Path) -> None:
        status = source.stat()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def statvfs(self, path: Path) -> DiskSpace:
        stat = os.statvfs(path)
        return DiskSpace(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def lock(self, path: Path) -> Lock:
        return RealLock(path, self._modes)

    def lock_first_byte(self, path: Path, word: bytes) -> Lock:
        return FirstByteLock(path, word, modes=self._modes)

    def boot_id(self) -> bytes:
        try:
            return bytes.fromhex(
                Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
            )
        except (OSError, ValueError):
            return b""
