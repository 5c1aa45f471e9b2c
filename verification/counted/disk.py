"""The operating system's files, and a count of what a store calls durable before a sync covers it.

A move is uncovered when it takes in a byte of which no sync has ended that began after the byte's
last write had ended (`verification.disk.coverage`). It is counted and let pass, so that the node
goes on as a user's node does.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger.protocol.messages.entry import MAGIC_BLANK, MIN_BLANK_SIZE
from dledger.storage.disk.disk import DiskFile, RealDisk, RealFile
from dledger.storage.log.index import UNIT_SIZE
from dledger.types import Buffer
from verification.disk.coverage import Coverage, first_uncovered

COUNTS: Final = ("syncs", "moves", "uncovered moves", "uncovered entries")
"""Syncs of files, moves of the end that is called durable or indexed, those of them that no sync
covers, and the entries that these take in too soon."""
_HEAD: Final = struct.Struct(">ii")
"""Magic and size, with which each entry and each padding begins."""


class CountingFile(RealFile):
    """A file that tells of its writes and syncs, past the page cache or not."""

    __slots__ = ("_coverage", "_disk")

    def __init__(self, path: Path, flags: int, disk: CountingDisk, coverage: Coverage) -> None:
        super().__init__(path, flags, direct=True)
        self._disk = disk
        self._coverage = coverage

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        number = self._coverage.writing(
            offset, offset + sum(memoryview(buffer).nbytes for buffer in buffers)
        )
        try:
            super().pwritev(buffers, offset)
        finally:
            self._coverage.wrote(number)

    def fdatasync(self) -> None:
        number = self._coverage.begin()
        try:
            super().fdatasync()
        except OSError:
            self._coverage.failed(number)
            raise
        self._coverage.ended(number)
        self._disk.synced()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._coverage.cut(size)


class CountingDisk(RealDisk):
    """For one store, and all of its threads."""

    def __init__(self) -> None:
        super().__init__(direct=True)
        self.witness = self._look
        self._files: dict[Path, Coverage] = {}
        self._ends: dict[Path, int] = {}
        """By directory: the end that was called durable last."""
        self.counts = dict.fromkeys(COUNTS, 0)
        self._counting = threading.Lock()

    def synced(self) -> None:
        """One more file has been."""
        with self._counting:
            self.counts["syncs"] += 1

    def open(self, path: Path, create: bool = False) -> DiskFile:
        coverage = self._files.setdefault(path, Coverage())
        return CountingFile(path, os.O_RDWR | (os.O_CREAT if create else 0), self, coverage)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._files[target] = self._files.pop(source, Coverage())

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._files.pop(path, None)

    def _look(self, directory: Path, begin: int, end: int) -> None:
        """The witness. Its calls are one after the other: the mark is changed under a lock."""
        if begin >= end or self._ends.get(directory) == end:
            return
        self._ends[directory] = end
        self.counts["moves"] += 1
        first = first_uncovered(list(self._files.items()), directory, begin, end)
        if first is not None:
            begin = int(first[0].name) + first[1]
            self.counts["uncovered moves"] += 1
            self.counts["uncovered entries"] += self._entries(directory, begin, end)

    def _entries(self, directory: Path, begin: int, end: int) -> int:
        """How many there are from one place of the log to another; in the index, units."""
        if directory.name == "index":
            return (end - begin) // UNIT_SIZE
        count = 0
        starts = [int(name) for name in self.listdir(directory) if name.isdecimal()]
        while begin < end:
            start = max(start for start in starts if start <= begin)
            head = self.open_read_only(directory / f"{start:020d}").pread(
                MIN_BLANK_SIZE, begin - start
            )
            magic, size = _HEAD.unpack(head)
            count += magic != MAGIC_BLANK
            begin += max(size, MIN_BLANK_SIZE)  # also where no byte has been written yet
        return count
