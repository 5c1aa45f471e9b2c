"""The index file: messages by key, a hash table of slots with chains of units.

::

    header, 40 bytes: beginTimestamp, endTimestamp, beginPhyOffset, endPhyOffset, hashSlotCount,
        indexCount
    slots, 4 bytes each: number of the newest unit with this hash modulo the slots, 0 for none
    units, 20 bytes each: keyHash, phyOffset, seconds since beginTimestamp, number of the unit
        before in the chain

``indexCount`` begins at 1 and unit 0 is never used. Only a hash is stored: a reader must compare
the key in the message itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import Final

from dledger.errors import FormatError
from dledger.rocketmq.format.properties import POWERS, java_hash
from dledger.types import Buffer

Read = Callable[[int, int], Buffer]

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
UNIT: Final = struct.Struct(">iqii")
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_UNITS: Final = 20_000_000
NAME_DIGITS: Final = 17
"""Of a file: when it was made, to the millisecond."""
TAIL: Final = 8
"""Characters at the end of a key, which mostly differ from those of the key before. In a client's
unique keys these count on for a minute behind the same characters."""
TAIL_POWERS: Final = POWERS[-TAIL - 1 : -1]
MANY: Final = 10_000
"""So many beginnings of keys are remembered."""


def is_index_name(name: str) -> bool:
    """Whether a file in the folder ``index`` is one of the index."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def key_hash(topic: str, key: str) -> int:
    """The hash under which a topic's key stands: Java's of ``topic#key``, made positive.

    Keys of one client begin alike, with its address and process, and differ in their last
    characters; the common begin is hashed once.
    """
    tail = key[-TAIL:]
    if tail.isascii():
        hashed, size = _begin_hash(topic, key[:-TAIL]), len(tail)
        value = hashed * POWERS[-size - 2] + sum(map(mul, tail.encode(), TAIL_POWERS[-size:]))
    else:
        value = java_hash(f"{topic}#{key}")
    value &= 0xFFFF_FFFF
    return value if value < 1 << 31 else 0 if value == 1 << 31 else (1 << 32) - value


@lru_cache(MANY)
def _begin_hash(topic: str, begin: str) -> int:
    return java_hash(f"{topic}#{begin}")


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """One key of one message."""

    key_hash: int
    physical_offset: int
    seconds: int
    """Between the file's beginTimestamp and the message's store time, never negative."""
    previous: int
    """Number of the unit before this one in the chain, 0 for none."""


@dataclass(eq=False)
class IndexHead:
    """The header of an index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    used_slots: int
    count: int
    """Number of the next unit."""

    @property
    def head(self) -> tuple[int, int, int, int, int, int]:
        """All of it, in the order of the file."""
        begin, end = self.begin_timestamp, self.end_timestamp
        return begin, end, self.begin_offset, self.end_offset, self.used_slots, self.count

    def pack_head(self) -> bytes:
        """40 bytes."""
        return HEADER.pack(*self.head)


class IndexReader(IndexHead):
    """An index file of which only those places are read that are asked for."""

    def __init__(self, read: Read, size: int, *, slots: int = DEFAULT_SLOTS) -> None:
        """Read the header.

        Args:
            read: ``read(place, length)`` gives exactly these bytes of the file.
            size: bytes of the file.
            slots: hash slots of the file (maxHashSlotNum), which the file itself does not say.

        Raises:
            FormatError: the file is too short for the slots, or its length or count cannot be.
        """
        self._read = read
        self.slots = slots
        space = size - HEADER.size - slots * SLOT.size
        if slots < 1 or space < 0 or space % UNIT.size:
            raise FormatError(f"an index file of {size:,} bytes cannot have {slots:,} slots")
        self.capacity = space // UNIT.size
        """Units that have room, unit 0, which stays empty, counted."""
        super().__init__(*HEADER.unpack(read(0, HEADER.size)))
        if not 0 <= self.count <= max(self.capacity, 1) or not 0 <= self.used_slots <= slots:
            raise FormatError(
                f"an index file for {self.capacity:,} units says it has {self.count:,} in "
                f"{self.used_slots:,} slots"
            )

    def slot(self, number: int) -> int:
        """Number of the newest unit in this slot, 0 for none."""
        return int(SLOT.unpack(self._read(HEADER.size + number * SLOT.size, SLOT.size))[0])

    def unit(self, number: int) -> IndexUnit:
        """A unit by its number, from 1 to ``count`` - 1."""
        return IndexUnit(*UNIT.unpack(self._read(self._unit_at(number), UNIT.size)))

    def check_ends(self) -> None:
        """See that header, slots and the first and the last unit agree, as they do in a file with
        so many slots.

        Raises:
            FormatError: they do not; it says how.
        """
        if self.count <= 1:
            return
        first, last = self.unit(1), self.unit(self.count - 1)
        if (first.physical_offset, last.physical_offset) != (self.begin_offset, self.end_offset):
            raise FormatError(
                f"an index file from {self.begin_offset:,} to {self.end_offset:,}, whose units "
                f"begin at {first.physical_offset:,} and end at {last.physical_offset:,}"
            )
        newest = self.slot(last.key_hash % self.slots) if last.key_hash >= 0 else 0
        if (
            newest < self.count - 1
            or first.key_hash < 0
            or not self.slot(first.key_hash % self.slots)
        ):
            raise FormatError(
                f"an index file whose {self.slots:,} slots do not lead to its first and last unit"
            )

    def lookup(
        self, topic: str, key: str, begin: int | None = None, end: int | None = None
    ) -> list[int]:
        """Physical offsets of messages that may have this key, the newest first.

        Args:
            topic: the topic.
            key: a word of the message's ``KEYS``, or its unique key.
            begin, end: store times in milliseconds, both included; the file knows whole seconds, so
                that a message within the second before ``begin`` may be among them.

        Raises:
            FormatError: a chain leads to a unit that is not before the one it comes from, or
                belongs into another chain, which no broker writes.
        """
        wanted = key_hash(topic, key)
        slot, found = wanted % self.slots, []
        number = self.slot(slot)
        newest = self.count
        while number:
            if not 0 < number < newest:
                raise FormatError(
                    f"index unit {newest} leads on to unit {number}; chains lead to older units "
                    f"only"
                )
            newest, unit = number, self._read(self._unit_at(number), UNIT.size)
            hashed, place, seconds, previous = UNIT.unpack(unit)
            if hashed % self.slots != slot:
                raise FormatError(
                    f"index unit {number}, of hash {hashed}, is in the chain of slot {slot}"
                )
            stored = self.begin_timestamp + seconds * 1000
            late = begin is None or stored + 999 >= begin
            if hashed == wanted and late and (end is None or stored <= end):
                found.append(place)
            number = previous
        return found

    def _unit_at(self, number: int) -> int:
        if not 0 <= number < self.capacity:
            raise FormatError(f"index unit {number} in a file for {self.capacity:,}")
        return HEADER.size + self.slots * SLOT.size + number * UNIT.size


class IndexFile(IndexReader):
    """An index file in memory, over bytes that may be read-only (then ``put`` fails) or not."""

    def __init__(self, data: Buffer, slots: int = DEFAULT_SLOTS) -> None:
        """Read the header; arguments and errors as for `IndexReader`."""
        self._data = view = memoryview(data)
        super().__init__(lambda place, length: view[place : place + length], len(view), slots=slots)

    @staticmethod
    def empty(slots: int = DEFAULT_SLOTS, units: int = DEFAULT_UNITS) -> IndexFile:
        """A new file without any key."""
        data = bytearray(HEADER.size + slots * SLOT.size + units * UNIT.size)
        data[: HEADER.size] = IndexHead(0, 0, 0, 0, 0, 1).pack_head()
        return IndexFile(data, slots)

    def encode(self) -> bytes:
        """The whole file."""
        return bytes(self._data)

    @property
    def is_full(self) -> bool:
        return bool(self.count >= self.capacity)

    def units(self) -> list[IndexUnit]:
        """All units in the order they were put."""
        return [self.unit(n) for n in range(1, self.count)]

    def put(self, topic: str, key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Add a key; False when the file is full."""
        if self.is_full:
            return False
        hashed = key_hash(topic, key)
        number, previous = hashed % self.slots, self.slot(hashed % self.slots)
        if self.count <= 1:
            self.begin_timestamp, self.begin_offset = store_timestamp, physical_offset
        seconds = max(0, (store_timestamp - self.begin_timestamp) // 1000)
        unit = hashed, physical_offset, min(seconds, 0x7FFF_FFFF), previous
        UNIT.pack_into(self._data, self._unit_at(self.count), *unit)
        SLOT.pack_into(self._data, HEADER.size + number * SLOT.size, self.count)
        self.used_slots += previous == 0
        self.count += 1
        self.end_timestamp, self.end_offset = store_timestamp, physical_offset
        self._data[: HEADER.size] = self.pack_head()
        return True

    def check(self) -> list[str]:
        """The contradictions in this file, one sentence each: chains, slots, and their counts."""
        wrong, in_chains, used = [], 0, 0
        for number in range(self.slots):
            at, newest = self.slot(number), self.count
            used += at != 0
            while at:
                if not 0 < at < newest:
                    wrong.append(
                        f"slot {number}: a chain leads to unit {at}, which is not before unit "
                        f"{newest}"
                    )
                    break
                unit, newest = self.unit(at), at
                if unit.key_hash % self.slots != number:
                    wrong.append(
                        f"slot {number}: unit {at} has hash {unit.key_hash}, which belongs "
                        f"elsewhere"
                    )
                    break
                in_chains, at = in_chains + 1, unit.previous
        if used != self.used_slots:
            wrong.append(f"{used} slots are in use; the header says {self.used_slots}")
        if not wrong and in_chains != max(0, self.count - 1):
            wrong.append(f"{in_chains} units are in chains; the header says {self.count - 1}")
        return wrong
