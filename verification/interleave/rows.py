"""A table of the catalog under a checkpoint and retention, and the rows that a start has a right to
find."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dledger.storage.meta.tables import CRC_BYTES, HEADER_BYTES, FileTable, TableFiles, pack_rows
from verification.disk.memory_inode import Inode
from verification.disk_states.promise import require
from verification.interleave.disk import SwitchingDisk

ROW: Final = 12
NAME: Final = "rows"


def rows_of(begin: int, end: int) -> bytes:
    """The rows [begin, end): each says its number."""
    return b"".join(b"%0*d" % (ROW, number) for number in range(begin, end))


def _require_rows(table: FileTable, begin: int, end: int) -> None:
    found = bytes(table.read(begin, end))
    require(found == rows_of(begin, end), f"rows {begin} to {end} are not as written")


class Rows:
    """A table, and the rows of it that were made durable."""

    def __init__(self, directory: Path, disk: SwitchingDisk) -> None:
        """One row is durable, and one more is there."""
        self._directory, self._disk = directory, disk
        self._files = TableFiles(directory, disk)
        self._table = self._files.open(NAME, ROW)
        self._end = 0
        """Behind the last row that was handed in."""
        self._ends = [0]
        """Of what each checkpoint counts on; a start goes by the last of them, or by the one
        before."""
        self._front = 0
        """Rows from here on have to stay."""
        self.append(1)
        self.sync()
        self.append(1)

    def append(self, count: int) -> None:
        self._table.append(rows_of(self._end, self._end + count))
        self._end += count

    def drop(self, back: int) -> None:
        """Rows go at the front, up to so many in front of those that are durable."""
        self._front = max(self._front, self._ends[-1] - back)
        self._table.drop_front(self._front)

    def sync(self) -> None:
        """A checkpoint. Rows may go at the front meanwhile, and their file with them: only what is
        to stay is looked for, where a start would look for it."""
        end = self._end
        self._files.sync()
        self._check_durable(end, self._disk.names)
        self._check_durable(end, self._disk.durable_names)
        self._ends.append(end)

    def look(self) -> None:
        """All rows that are there can be read, and are what was written."""
        _require_rows(self._table, self._table.begin, self._end)

    def _check_durable(self, end: int, names: Mapping[Path, Inode]) -> None:
        """A power cut that leaves the files these names leaves the rows up to ``end`` that are to
        stay."""
        found = [
            (int(path.suffix[1:]), inode)
            for path, inode in names.items()
            if path.parent == self._directory and path.stem == NAME and path.suffix[1:].isdecimal()
        ]
        require(bool(found), "the table has no file")
        first, inode = min(found, key=lambda each: each[0])
        require(
            first <= self._front,
            f"rows go up to {first}, and those from {self._front} on are to stay",
        )
        begin = min(max(self._front, first), end)
        low, high = (
            HEADER_BYTES + (max(number, first) - first) * (ROW + CRC_BYTES)
            for number in (begin, end)
        )
        due = pack_rows(rows_of(begin, end), ROW, begin)
        require(inode.durable[low:high] == due, f"rows {begin} to {end} are not on the disk")

    def check_start(self, disk: SwitchingDisk) -> None:
        """The next process finds the rows of the last checkpoint. When it has to go by the
        checkpoint before, whose rows may have gone at the front, it makes the later rows again from
        the log.

        Raises:
            BrokenPromise: rows are missing, or are not what was written.
        """
        before, end = self._ends[-2:]
        there = TableFiles(self._directory, disk).open(NAME, ROW)
        require(
            there.begin <= self._front,
            f"rows go up to {there.begin}, those from {self._front} on are to stay",
        )
        require(there.end >= end, f"{end} rows were synced, {there.end} are there")
        there.truncate(end)
        _require_rows(there, min(self._front, end), end)
        there.truncate(before)
        there.append(rows_of(before, end))
        there.sync()
        disk.cut_power()
        there = TableFiles(self._directory, disk).open(NAME, ROW)
        require(
            there.end == end and there.begin <= max(before, self._front),
            "a start from the checkpoint before "
            f"finds rows {there.begin} to {there.end}, not up to {end}",
        )
        _require_rows(there, max(there.begin, min(self._front, end)), end)
