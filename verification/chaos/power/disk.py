"""A disk whose power can be cut: it notes every change in a journal, and keeps what a change of
names would destroy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from dledger.storage.disk.disk import DiskFile
from dledger.types import Buffer
from verification.chaos.panel import Panel
from verification.chaos.power.journal import Journal
from verification.chaos.sick import SickDisk, SickFile


class PoweredFile(SickFile):
    """A file whose bytes and length are noted before they change. It stands above all ways to
    write, so past the page cache (O_DIRECT) is no other way: such a write, too, is in the device's
    own cache until a sync."""

    __slots__ = ("_inode", "_journal")

    def __init__(self, path: Path, flags: int, panel: Panel, journal: Journal) -> None:
        super().__init__(path, flags, panel)
        self._journal = journal
        self._inode = os.fstat(self._fd).st_ino

    @property
    def inode(self) -> int:
        return self._inode

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        size = sum(len(memoryview(buffer).cast("B")) for buffer in buffers)
        old = self.pread(size, offset)
        number = self._journal.begin(
            "write", old, inode=self._inode, offset=offset, size=size, before=self.size()
        )
        try:
            super().pwritev(buffers, offset)
        finally:
            self._journal.end(number)

    def fdatasync(self) -> None:
        number = self._journal.begin("sync", inode=self._inode)
        try:
            super().fdatasync()
        except OSError:
            self._journal.end(number, well=False)
            raise
        self._journal.end(number)

    def truncate(self, size: int) -> None:
        before = self.size()
        number = self._resize(size, before)
        try:
            super().truncate(size)
        finally:
            self._journal.end(number)

    def fallocate(self, size: int, begin: int = 0) -> None:
        before = self.size()
        if size <= before:
            super().fallocate(size, begin)
            return
        number = self._resize(size, before)
        try:
            super().fallocate(size, begin)
        finally:
            self._journal.end(number)

    def _resize(self, size: int, before: int) -> int:
        gone = self.pread(before - size, size).rstrip(b"\0") if size < before else b""
        return self._journal.begin("resize", gone, inode=self._inode, size=size, before=before)


class PoweredDisk(SickDisk):
    """See `SickDisk`.

    Args:
        journal: where changes are noted.
        kept: a directory of the same file system, and not below the node's: files without a name
            wait there until a sync of their directory covers that.
    """

    def __init__(self, panel: Panel, journal: Journal, kept: Path) -> None:
        super().__init__(panel)
        self._journal = journal
        self._kept = kept
        self._kept.mkdir(exist_ok=True)
        self._waiting: dict[Path, list[Path]] = {}
        self._count = 0

    def open(self, path: Path, create: bool = False) -> DiskFile:
        if not create or path.exists():
            return PoweredFile(path, os.O_RDWR, self.panel, self._journal)
        number = self._journal.begin("made", path=str(path), directory=str(path.parent))
        try:
            file = PoweredFile(path, os.O_RDWR | os.O_CREAT, self.panel, self._journal)
            self._journal.note("fresh", inode=file.inode)
        finally:
            self._journal.end(number)
        return file

    def mkdir(self, path: Path) -> None:
        missing = [above for above in (path, *path.parents) if not above.exists()]
        for directory in reversed(missing):
            number = self._journal.begin(
                "made", path=str(directory), directory=str(directory.parent)
            )
            super().mkdir(directory)
            self._journal.end(number)

    def rename(self, source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise ValueError(
                f"{source} -> {target}: a rename into another directory is none that the store "
                f"makes"
            )
        kept = self._keep(target) if target.exists() else ""
        number = self._journal.begin(
            "renamed",
            path=str(source),
            directory=str(target.parent),
            target=str(target),
            kept=kept,
            inode=source.stat().st_ino,
        )
        try:
            super().rename(source, target)
        finally:
            self._end(number, target.parent, kept)

    def unlink(self, path: Path) -> None:
        kept = self._keep(path)
        number = self._journal.begin(
            "removed", path=str(path), directory=str(path.parent), kept=kept
        )
        try:
            super().unlink(path)
        finally:
            self._end(number, path.parent, kept)

    def _keep(self, path: Path) -> str:
        self._count += 1
        name = f"{os.getpid()}-{self._count}"
        os.link(path, self._kept / name)
        return name

    def _end(self, number: int, directory: Path, kept: str) -> None:
        self._journal.end(number)
        if kept:
            self._waiting.setdefault(directory, []).append(self._kept / kept)

    def fsync_dir(self, path: Path) -> None:
        number = self._journal.begin("sync", directory=str(path))
        covered = self._waiting.pop(path, [])
        try:
            super().fsync_dir(path)
        except OSError:
            self._journal.end(number, well=False)
            raise
        self._journal.end(number)
        for kept in covered:
            kept.unlink()

    def boot_id(self) -> bytes:
        """The system's, and another one after each power cut."""
        return blake2b(
            super().boot_id() + self._journal.outages.to_bytes(4, "big"), digest_size=16
        ).digest()
