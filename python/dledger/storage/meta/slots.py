"""A small record that is replaced without ever being half there: two slots, each with a number and
a checksum.

::

    byte 0       4         6         8          16       20          24
         | magic | version | reserved | sequence | length | crc32     | payload ... zeros to 4096

The checksum covers the slot's header, with its own field zeroed, and the payload. Slots are 4096
bytes, so that they share no sector and no page. The valid slot with the highest sequence counts.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.storage.disk.disk import Disk, DiskFile
from dledger.storage.disk.small_files import replace_whole

SLOT_SIZE: Final = 4096
SLOT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sHHQII")


def pack_slot(magic: bytes, sequence: int, payload: bytes) -> bytes:
    """The 4096 bytes of one slot."""
    crc = crc32(payload, crc32(_HEADER.pack(magic, SLOT_VERSION, 0, sequence, len(payload), 0)))
    slot = _HEADER.pack(magic, SLOT_VERSION, 0, sequence, len(payload), crc) + payload
    if len(slot) > SLOT_SIZE:
        raise ValueError(f"a record of {len(payload)} bytes does not fit a slot")
    return slot.ljust(SLOT_SIZE, b"\0")


def unpack_slot(magic: bytes, slot: bytes) -> tuple[int, bytes] | None:
    """(sequence, payload), or None when any byte of the slot is not as written."""
    if len(slot) != SLOT_SIZE:
        return None
    found, version, _, sequence, length, _ = _HEADER.unpack_from(slot)
    if found != magic or version != SLOT_VERSION or length > SLOT_SIZE - _HEADER.size:
        return None
    payload = slot[_HEADER.size : _HEADER.size + length]
    return (sequence, payload) if pack_slot(magic, sequence, payload) == slot else None


class SlotFile:
    """Two slots in one file. Not thread-safe."""

    def __init__(self, file: DiskFile, magic: bytes) -> None:
        self._file = file
        self._magic = magic
        slots = [unpack_slot(magic, file.pread(SLOT_SIZE, n * SLOT_SIZE)) for n in range(2)]
        valid = sorted((slot[0], n, slot[1]) for n, slot in enumerate(slots) if slot is not None)
        self.damaged = [n for n, slot in enumerate(slots) if slot is None]
        """Slots that cannot be read: a write that a crash cut short, or rot. A sound one counts."""
        self.payload: bytes | None = valid[-1][2] if valid else None
        self._sequence = valid[-1][0] if valid else 0
        self._next = 1 - valid[-1][1] if valid else 0
        """The slot that the next write goes to: never the one that is known to be durable."""

    def note_damage(self, notes: list[str]) -> None:
        """Tell of a damaged slot next to a sound one, whose record is about to be written again."""
        if self.damaged:
            notes.append(
                f"{self._file.path.name}: one of two copies was damaged; written again from the "
                "other one"
            )

    def write(self, payload: bytes) -> None:
        """Put the record into the spare slot; a crash may lose it, but never the durable one."""
        self._sequence += 1
        self._file.pwritev(
            [pack_slot(self._magic, self._sequence, payload)], self._next * SLOT_SIZE
        )
        self.payload = payload

    def settle(self) -> None:
        """Make the last `write` durable; the other slot becomes the spare one."""
        self._file.fdatasync()
        self._next = 1 - self._next

    def write_both(self, payload: bytes) -> None:
        """Durable in both slots on return, so that damage to either of them does not bring an older
        record back."""
        for _ in range(2):
            self.write(payload)
            self.settle()


def create_slots(disk: Disk, path: Path, magic: bytes, payload: bytes) -> None:
    """Make the file, complete or not at all; durable on return, its name too."""
    replace_whole(disk, path, pack_slot(magic, 1, payload) + pack_slot(magic, 2, payload))
