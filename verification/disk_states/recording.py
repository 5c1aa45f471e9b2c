"""A disk that takes down every operation that changes something, with its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from dledger.storage.disk.disk import DiskFile, DiskSpace, Lock, Witness
from dledger.types import Buffer
from verification.disk.memory_disk import MemoryDisk

STEP: Final = 256
"""Files of these disks get their blocks in steps, as long ones do on a real disk."""


class OperationType(Enum):
    """The kind of an operation."""

    MKDIR = "mkdir"
    CREATE = "create"
    WRITE = "write"
    RESIZE = "resize"
    """Cut or extend to a length; new bytes read as zeros."""
    SYNC = "sync"
    RENAME = "rename"
    UNLINK = "unlink"
    SYNC_DIR = "sync_dir"
    ROT = "rot"
    """The device itself changes bytes that were at rest."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. ``file`` numbers the files in the order of their creation: names come and
    go."""

    kind: OperationType
    path: Path
    file: int = -1
    offset: int = 0
    """Of a write in bytes; the length that a resize gives."""
    data: bytes = b""
    target: Path | None = None
    """The new name that a rename gives."""

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.path.name}"
        if self.kind is OperationType.WRITE:
            return f"{what} {len(self.data)} bytes at {self.offset}"
        if self.kind is OperationType.RESIZE:
            return f"{what} to {self.offset} bytes"
        return f"{what} -> {self.target.name}" if self.target else what


class RecordingDisk:
    """See `dledger.storage.disk.disk.Disk`. Operations are carried out on ``inner`` and noted in
    `ops` when they succeed."""

    def __init__(self, inner: MemoryDisk) -> None:
        self.inner = inner
        self.ops: list[Op] = []
        self.counts: list[int] = []
        """Behind each of them, how many operations ``inner`` has counted: those that changed
        nothing, too."""
        self._numbers = {path: number for number, path in enumerate(sorted(inner.names))}
        self._made = len(self._numbers)

    def note(self, op: Op) -> None:
        """It was carried out."""
        self.ops.append(op)
        self.counts.append(self.inner.operations)

    def open(self, path: Path, create: bool = False) -> DiskFile:
        fresh = create and not self.inner.exists(path)
        file = self.inner.open(path, create)
        if fresh:
            self._numbers[path] = self._made
            self.note(Op(OperationType.CREATE, path, self._made))
            self._made += 1
        return RecordingFile(self, file, self._numbers[path])

    def open_read_only(self, path: Path) -> DiskFile:
        return self.inner.open_read_only(path)

    def mkdir(self, path: Path) -> None:
        missing = [
            part
            for part in (path, *path.parents)
            if part != part.parent and not self.inner.exists(part)
        ]
        self.inner.mkdir(path)
        for part in reversed(missing):
            self.note(Op(OperationType.MKDIR, part))

    def listdir(self, path: Path) -> list[str]:
        return self.inner.listdir(path)

    def exists(self, path: Path) -> bool:
        return self.inner.exists(path)

    def is_dir(self, path: Path) -> bool:
        return self.inner.is_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.inner.rename(source, target)
        number = self._numbers[target] = self._numbers.pop(source)
        self.note(Op(OperationType.RENAME, source, number, target=target))

    def unlink(self, path: Path) -> None:
        self.inner.unlink(path)
        self.note(Op(OperationType.UNLINK, path, self._numbers.pop(path)))

    def fsync_dir(self, path: Path) -> None:
        self.inner.fsync_dir(path)
        self.note(Op(OperationType.SYNC_DIR, path))

    def size(self, path: Path) -> int:
        return self.inner.size(path)

    def mtime_ms(self, path: Path) -> int:
        return self.inner.mtime_ms(path)

    def copy_times(self, source: Path, target: Path) -> None:
        self.inner.copy_times(source, target)

    def statvfs(self, path: Path) -> DiskSpace:
        return self.inner.statvfs(path)

    def lock(self, path: Path) -> Lock:
        return self.inner.lock(path)

    def lock_first_byte(self, path: Path, word: bytes) -> Lock:
        return self.inner.lock_first_byte(path, word)

    def boot_id(self) -> bytes:
        return self.inner.boot_id()

    @property
    def first_step(self) -> int:
        """That of the disk beneath."""
        return self.inner.first_step

    @property
    def witness(self) -> Witness | None:
        """That of the disk beneath."""
        return self.inner.witness

    def rot(self, path: Path, offset: int, mask: int) -> None:
        """Change one byte that is at rest."""
        self.inner.flip(path, offset, mask)
        self.note(Op(OperationType.ROT, path, self._numbers[path], offset, bytes([mask])))


class RecordingFile:
    """An open file of a `RecordingDisk`."""

    def __init__(self, disk: RecordingDisk, inner: DiskFile, number: int) -> None:
        self._disk = disk
        self._inner = inner
        self._number = number
        self.path = inner.path

    def pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        self._inner.pwritev([data], offset)
        self._note(OperationType.WRITE, offset, data)

    def fdatasync(self) -> None:
        self._inner.fdatasync()
        self._note(OperationType.SYNC)

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)
        self._note(OperationType.RESIZE, size)

    def fallocate(self, size: int, begin: int = 0) -> None:
        before = self._inner.size()
        self._inner.fallocate(size, begin)
        if self._inner.size() != before:  # else it is about blocks, not about bytes
            self._note(OperationType.RESIZE, size)

    def size(self) -> int:
        return self._inner.size()

    def next_data(self, offset: int) -> int | None:
        return self._inner.next_data(offset)

    def map(self, size: int, *, write: bool = False) -> memoryview:
        assert not write, "what is written to memory is not recorded"
        return self._inner.map(size)

    def _note(self, kind: OperationType, offset: int = 0, data: bytes = b"") -> None:
        self._disk.note(Op(kind, self.path, self._number, offset, data))
