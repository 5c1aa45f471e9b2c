"""The mark: how far queues and index are made, in a file of its own."""

from __future__ import annotations

import struct
from dataclasses import astuple
from typing import Final

from dledger.checksum import crc32
from dledger.types import NO_INDEX, Index, slots_dataclass

MARK_FILE: Final = "dispatched"


MARK: Final = struct.Struct(">8sqqqqqqI")


MARK_MAGIC: Final = b"DLREPUT2"


FORMER_MARK: Final = struct.Struct(">8sqqqqI")


FORMER_MAGIC: Final = b"DLREPUT1"


UNTOLD: Final = -2


@slots_dataclass()
class DispatchMark:
    """Queues and index are whole and durable up to this entry."""

    index: Index = NO_INDEX
    end_pos: int = 0
    """Log position behind the entry."""
    queues: int = 0
    """Queues with a message."""
    units: int = 0
    """Sum of the queue offsets that their next messages get."""
    last_key: int = UNTOLD
    """Place of the last message with a key in the index, -1 for none; `UNTOLD` in a mark of release
    0.1."""
    last_keys: int = 0
    """How many keys of that message the index has."""

    def pack(self) -> bytes:
        """With a checksum."""
        data = MARK.pack(MARK_MAGIC, *astuple(self), 0)
        return data[:-4] + struct.pack(">I", crc32(data))

    @staticmethod
    def unpack(data: bytes) -> DispatchMark | None:
        """None for anything that `pack` has not made, now or in release 0.1."""
        for form, magic in ((MARK, MARK_MAGIC), (FORMER_MARK, FORMER_MAGIC)):
            if len(data) == form.size and data.startswith(magic):
                *values, crc = form.unpack(data)
                return DispatchMark(*values[1:]) if crc == crc32(data[:-4] + bytes(4)) else None
        return None
