"""A disk whose power can be cut: it notes every change in a journal, and keeps what a change of
names would destroy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Any

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
        with self._journal.change(
            "write", old, inode=self._inode, offset=offset, size=size, before=self.size()
        ):
            super().pwritev(buffers, offset)

    def fdatasync(self) -> None:
        with self._journal.sync(inode=self._inode):
            super().fdatasync()

    def truncate(self, size: int) -> None:
        with self._resize(size, self.size()):
            super().truncate(size)

    def fallocate(self, size: int, begin: int = 0) -> None:
        before = self.size()
        with self._resize(size, before) if size > before else nullcontext():
            super().fallocate(size, begin)

    def _resize(self, size: int, before: int) -> AbstractContextManager[None]:
        gone = self.pread(before - size, size).rstrip(b"\0") if size < before else b""
        return self._journal.change("resize", gone, inode=self._inode, size=size, before=before)


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
        with self._journal.change("made", path=str(path), directory=str(path.parent)):
            file = PoweredFile(path, os.O_RDWR | os.O_CREAT, self.panel, self._journal)
            self._journal.note("fresh", inode=file.inode)
        return file

    def mkdir(self, path: Path) -> None:
        missing = [above for above in (path, *path.parents) if not above.exists()]
        for directory in reversed(missing):
            with self._journal.change("made", path=str(directory), directory=str(directory.parent)):
                super().mkdir(directory)

    def rename(self, source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise ValueError(
                f"{source} -> {target}: a rename into another directory is none that the store "
                f"makes"
            )
        known = {"target": str(target), "inode": source.stat().st_ino}
        kept = self._keep(target) if target.exists() else ""
        with self._renaming("renamed", source, kept, **known):
            super().rename(source, target)

    def unlink(self, path: Path) -> None:
        with self._renaming("removed", path, self._keep(path)):
            super().unlink(path)

    @contextmanager
    def _renaming(self, kind: str, path: Path, kept: str, **known: Any) -> Iterator[None]:
        """A change of names that takes one from a file, which is kept until its sync."""
        directory = path.parent
        try:
            with self._journal.change(
                kind, path=str(path), directory=str(directory), kept=kept, **known
            ):
                yield
        finally:
            if kept:
                self._waiting.setdefault(directory, []).append(self._kept / kept)

    def _keep(self, path: Path) -> str:
        self._count += 1
        name = f"{os.getpid()}-{self._count}"
        os.link(path, self._kept / name)
        return name

    def fsync_dir(self, path: Path) -> None:
        covered = self._waiting.pop(path, [])
        with self._journal.sync(directory=str(path)):
            super().fsync_dir(path)
        for kept in covered:
            kept.unlink()

    def boot_id(self) -> bytes:
        """The system's, and another one after each power cut."""
        return blake2b(
            super().boot_id() + self._journal.outages.to_bytes(4, "big"), digest_size=16
        ).digest()
