"""Writes that go to another place of their file than they should.

A node can lose an entry that it acknowledged in its last moment to such a write without knowing of
it: the mark that would tell is not on the disk yet. docs/guarantees.md promises nothing of a disk
that does this just before its process ends, so these disks do not: `Stray.put_right`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dledger.storage.disk.disk import DiskFile
from dledger.storage.meta.recovery_point import MARK_FILE, MARK_MAGIC, RecoveryPoint
from dledger.storage.meta.slots import SLOT_SIZE, unpack_slot
from dledger.types import Buffer
from verification.disk.memory_inode import SECTOR, Inode


@dataclass(frozen=True, slots=True)
class Stray:
    """A write of ``data`` to ``offset`` that went to ``place``, and the bytes at both from
    before."""

    path: Path
    inode: Inode
    offset: int
    place: int
    data: bytes
    at_offset: bytes
    at_place: bytes

    def put_right(self, names: Mapping[Path, Inode]) -> None:
        """Undo what the node's mark does not speak of yet."""
        start, settled = (
            int(self.path.stem),
            settled_end(names[self.path.parent.parent / MARK_FILE].durable),
        )
        size = len(self.data)
        if start + self.place + size > settled:
            self._replace(self.place, self.data, self.at_place)
        if start + self.offset + size > settled:
            self._replace(self.offset, self.at_offset, self.data)

    def _replace(self, offset: int, old: bytes, new: bytes) -> None:
        inode, end = self.inode, offset + len(old)
        if inode.written[offset:end] == old:  # else something else was written there meanwhile
            inode.written[offset:end] = new
            sectors = set(range(offset // SECTOR, (end - 1) // SECTOR + 1))
            if inode.dirty.isdisjoint(sectors):  # synced as it was, and so it is now
                inode.durable[offset:end] = new


def settled_end(mark: bytes | bytearray) -> int:
    """The position that the newest readable record of a file with marks tells of; 0 when there is
    none."""
    slots = [
        unpack_slot(MARK_MAGIC, bytes(mark[n * SLOT_SIZE : (n + 1) * SLOT_SIZE])) for n in range(2)
    ]
    found = max((slot for slot in slots if slot is not None), default=None)
    return 0 if found is None else RecoveryPoint.unpack(found[1]).durable.end_pos


class AstrayFile:
    """A file whose next writes go astray as far as ``ways`` says, the last of them first."""

    def __init__(
        self, file: DiskFile, inode: Inode, ways: list[int], went: Callable[[Stray], None]
    ) -> None:
        """``went`` is told of each that did."""
        self._file = file
        self._inode = inode
        self._ways = ways
        self._went = went
        self.path = file.path
        self.pread = file.pread
        self.fdatasync = file.fdatasync
        self.truncate = file.truncate
        self.fallocate = file.fallocate
        self.size = file.size
        self.next_data = file.next_data
        self.map = file.map

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Where it goes, if the file goes as far."""
        if self._ways:
            size, place = sum(map(len, buffers)), offset + self._ways[-1]
            if place >= 0 and place + size <= len(self._inode.written):
                self._ways.pop()
                written = self._inode.written
                before = (
                    bytes(written[offset : offset + size]),
                    bytes(written[place : place + size]),
                )
                self._went(Stray(self.path, self._inode, offset, place, b"".join(buffers), *before))
                offset = place
        self._file.pwritev(buffers, offset)
