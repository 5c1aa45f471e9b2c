"""One file of the index by key, open for putting: read through a memory map, written by offset.

Keys are gathered and go to the file by ``write``: units, then slots, then the header. A process
that is killed in between leaves a header that counts only units that are there. Slots are written
through a map, whose space is taken from the file system before.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dledger.errors import CorruptStore, FormatError
from dledger.rocketmq.format.index_file import HEADER, SLOT, UNIT, IndexHead, IndexReader
from dledger.rocketmq.store.files import HOST, clear, make_file, storing, sync_directory
from dledger.storage.disk.disk import Disk

MAX_INT: Final = 0x7FFF_FFFF
CHUNK: Final = 1 << 14
"""Units that are looked at together when a file is cut."""
SLOTS_AT: Final = HEADER.size
SLOT_SIZE: Final = SLOT.size
slot_at: Final = SLOT.unpack_from
pack_unit: Final = UNIT.pack


def index_size(slots: int, units: int) -> int:
    """Bytes of an index file."""
    return HEADER.size + slots * SLOT.size + units * UNIT.size


class OpenIndex(IndexHead):
    """An index file of ``slots`` hash slots and room for ``units`` units, of which unit 0 is never
    used."""

    def __init__(self, path: Path, slots: int, *, units: int, disk: Disk = HOST) -> None:
        """Open a file that exists.

        Raises:
            CorruptStore: it has another size, or a header that cannot be.
            StorageError: it cannot be read.
        """
        self.path = path
        self.slots = slots
        self.capacity = units
        self._units_at = HEADER.size + slots * SLOT.size
        with storing("open", path):
            self._file = disk.open(path)
            self._map = self._mapped(index_size(slots, units))
            # so that no write to the table can lack space
            self._file.fallocate(self._units_at)
            self.table = self._file.map(self._units_at, write=True)
            """Header and slots, to be written to."""
        try:
            head = self.reader()
        except FormatError as error:
            raise CorruptStore(f"{path}: {error}; remove the file, which loses its keys") from None
        super().__init__(*head.head)
        self.count = max(1, head.count)
        self._units: list[bytes] = []
        self._slots: dict[int, int] = {}
        self._is_dirty = True
        self._failed: Exception | None = None

    def _mapped(self, size: int) -> memoryview:
        found = self._file.size()
        if found != size:
            raise CorruptStore(
                f"{self.path} has {found:,} bytes, and an index file of {self.slots:,} slots and "
                f"{self.capacity:,} units {size:,}: give the numbers that it was made with, or "
                "remove the file, which loses its keys"
            )
        return self._file.map(size)

    @staticmethod
    def make(
        path: Path, slots: int, units: int, after: OpenIndex | None, disk: Disk = HOST
    ) -> OpenIndex:
        """A new file; as a broker's, it begins with place and time at which the one before it
        ended.

        Raises:
            DiskFull, StorageError: it cannot be made.
        """
        at, stored = (after.end_offset, after.end_timestamp) if after else (0, 0)
        head = IndexHead(stored, stored, at, at, used_slots=0, count=1)
        make_file(path, index_size(slots, units), disk, head.pack_head())
        sync_directory(path.parent, disk)
        return OpenIndex(path, slots, units=units, disk=disk)

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def is_empty(self) -> bool:
        return self.count <= 1

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Add a key; the file must not be full."""
        slot, count = key_hash % self.slots, self.count
        previous = self._slots.get(slot)
        if previous is None:
            (previous,) = slot_at(self.table, SLOTS_AT + slot * SLOT_SIZE)
            if not 0 < previous < count:
                previous = 0
                self.used_slots += 1
        if count <= 1:
            self.begin_timestamp, self.begin_offset = store_timestamp, physical_offset
        seconds = (store_timestamp - self.begin_timestamp) // 1000
        seconds = 0 if seconds < 0 else seconds if seconds < MAX_INT else MAX_INT
        self._units.append(pack_unit(key_hash, physical_offset, seconds, previous))
        self._slots[slot] = count
        self.count = count + 1
        self.end_timestamp, self.end_offset = store_timestamp, physical_offset

    def write(self) -> None:
        """Hand the put keys to the file system.

        Raises:
            DiskFull, StorageError: nothing of it counts as written; calling again writes it all.
        """
        if not self._units:
            return
        with storing("write", self.path):
            self._is_dirty = True
            first = self.count - len(self._units)
            self._file.pwritev([b"".join(self._units)], self._units_at + first * UNIT.size)
            table, set_slot = self.table, SLOT.pack_into
            for slot, unit in self._slots.items():
                set_slot(table, SLOTS_AT + slot * SLOT_SIZE, unit)
            self._file.pwritev([self.pack_head()], 0)
        self._units.clear()
        self._slots.clear()

    def write_units(
        self, units: bytes, set_slots: Callable[[], int], end_offset: int, end_timestamp: int
    ) -> None:
        """Write encoded units behind those that are there, in the same order as `write` does.

        Args:
            set_slots: puts the numbers of units into ``table``; how many of the slots were empty.
            end_offset, end_timestamp: place and store time of the last unit's message.
        """
        with storing("write", self.path):
            self._is_dirty = True
            self._file.pwritev([units], self._units_at + self.count * UNIT.size)
            self.used_slots += set_slots()
            self.count += len(units) // UNIT.size
            self.end_offset, self.end_timestamp = end_offset, end_timestamp
            self._file.pwritev([self.pack_head()], 0)

    def flush(self) -> None:
        """Return when everything that was put is on the disk.

        Raises:
            StorageError: it is not, or perhaps not; when a sync has failed, asking again gives the
                same error.
        """
        if self._failed is not None:
            raise self._failed
        self.write()
        if self._is_dirty:
            try:
                with storing("sync", self.path):
                    self._file.fdatasync()
            except Exception as error:
                self._failed = error
                raise
            self._is_dirty = False

    def reader(self) -> IndexReader:
        """The written part, for looking up."""
        return IndexReader(
            lambda place, length: self._map[place : place + length],
            len(self._map),
            slots=self.slots,
        )

    def last_units(self, physical_offset: int) -> int:
        """How many of the last units that were written are of the message at this place."""
        number = self.count - 1
        while number and self._unit(number)[1] == physical_offset:
            number -= 1
        return self.count - 1 - number

    def _unit(self, number: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = UNIT.unpack_from(
            self._map, self._units_at + number * UNIT.size
        )
        return found

    def cut(self, physical_offset: int) -> bool:
        """Keep the units of messages before this place in the commit log, and make the slots anew.

        Units are kept up to the first one that no broker would write: which lies before its
        predecessor, leads elsewhere than to the one before it in its chain, or is all zeros. A
        power failure leaves such.

        Returns:
            Whether all that were to be kept are sound.

        Raises:
            StorageError: the disk failed.
        """
        self.write()
        slots = array("i", bytes(4 * self.slots))
        sound, kept = self._rebuild(slots, physical_offset)
        last = self._unit(kept - 1) if kept > 1 else None
        if kept < self.count:
            self.end_offset = last[1] if last else self.begin_offset
            self.end_timestamp = self.begin_timestamp + (last[2] * 1000 + 999 if last else 0)
        self.count, self.used_slots = kept, self.slots - slots.count(0)
        if struct.pack("=i", 1) != SLOT.pack(1):
            slots.byteswap()
        with storing("write", self.path):
            self._is_dirty = True
            self._file.pwritev([self.pack_head()], 0)
            self._file.pwritev([memoryview(slots).cast("B")], HEADER.size)
            units_end = self._units_at + kept * UNIT.size
            clear(self._file, units_end, index_size(self.slots, self.capacity))
        self.flush()
        return sound

    def _rebuild(self, slots: array[int], physical_offset: int) -> tuple[bool, int]:
        """Enter units into the slots; whether all are sound, and the number of the first that is
        not kept."""
        count, before, size = self.slots, self.begin_offset, UNIT.size
        for first in range(1, self.count, CHUNK):
            begin = self._units_at + first * size
            part = self._map[begin : begin + min(CHUNK, self.count - first) * size]
            for number, (key_hash, physical, seconds, previous) in enumerate(
                UNIT.iter_unpack(part), first
            ):
                if physical >= physical_offset:
                    return True, number
                slot = key_hash % count
                zeros = not (key_hash or physical or seconds or previous)
                if zeros or key_hash < 0 or physical < before or previous != slots[slot]:
                    return False, number
                slots[slot], before = number, physical
        return True, self.count

    def close(self) -> None:
        """Let go of the file; nothing is written."""
        self._map.release()
        self.table.release()
