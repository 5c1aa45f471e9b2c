"""A disk that takes down every operation that changes something, with its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from dledger.storage.disk.disk import DiskFile
from dledger.types import Buffer
from verification.disk.memory_disk import MemoryDisk, MemoryFile
from verification.disk.memory_inode import Inode

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


class RecordingDisk(MemoryDisk):
    """Notes operations in `ops` when they have succeeded."""

    def __init__(self, first_step: int = STEP) -> None:
        super().__init__(first_step=first_step)
        self.ops: list[Op] = []
        self.counts: list[int] = []
        """Behind each of them, how many operations the disk has counted: those that changed
        nothing, too."""
        self._numbers: dict[Path, int] = {}
        self._made = 0

    def number_files(self) -> None:
        """The files that are there before the first operation come first, in the order of their
        names."""
        self._numbers = {path: number for number, path in enumerate(sorted(self.names))}
        self._made = len(self._numbers)

    def note(self, op: Op) -> None:
        """It was carried out."""
        self.ops.append(op)
        self.counts.append(self.operations)

    def open(self, path: Path, create: bool = False) -> DiskFile:
        fresh = create and not self.exists(path)
        super().open(path, create)
        if fresh:
            self._numbers[path] = self._made
            self.note(Op(OperationType.CREATE, path, self._made))
            self._made += 1
        return RecordingFile(self, path, self.names[path], self._numbers[path])

    def mkdir(self, path: Path) -> None:
        missing = [
            part for part in (path, *path.parents) if part != part.parent and not self.exists(part)
        ]
        super().mkdir(path)
        for part in reversed(missing):
            self.note(Op(OperationType.MKDIR, part))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        number = self._numbers[target] = self._numbers.pop(source)
        self.note(Op(OperationType.RENAME, source, number, target=target))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.note(Op(OperationType.UNLINK, path, self._numbers.pop(path)))

    def fsync_dir(self, path: Path) -> None:
        super().fsync_dir(path)
        self.note(Op(OperationType.SYNC_DIR, path))

    def rot(self, path: Path, offset: int, mask: int) -> None:
        """Change one byte that is at rest."""
        self.flip(path, offset, mask)
        self.note(Op(OperationType.ROT, path, self._numbers[path], offset, bytes([mask])))


class RecordingFile(MemoryFile):
    """An open file of a `RecordingDisk`."""

    _disk: RecordingDisk

    def __init__(self, disk: RecordingDisk, path: Path, inode: Inode, number: int) -> None:
        super().__init__(disk, path, inode)
        self._number = number

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        super().pwritev([data], offset)
        self._note(OperationType.WRITE, offset, data)

    def fdatasync(self) -> None:
        super().fdatasync()
        self._note(OperationType.SYNC)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._note(OperationType.RESIZE, size)

    def fallocate(self, size: int, begin: int = 0) -> None:
        before = self.size()
        super().fallocate(size, begin)
        if self.size() != before:  # else it is about blocks, not about bytes
            self._note(OperationType.RESIZE, size)

    def map(self, size: int, *, write: bool = False) -> memoryview:
        assert not write, "what is written to memory is not recorded"
        return super().map(size)

    def _note(self, kind: OperationType, offset: int = 0, data: bytes = b"") -> None:
        self._disk.note(Op(kind, self.path, self._number, offset, data))
