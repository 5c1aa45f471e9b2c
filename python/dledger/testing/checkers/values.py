"""Records that can be told apart: a value's bytes hold its number, a checksum of that, and filler
made from both.

A checker works with the numbers. The client that reads a record turns its bytes back into the
number. Bytes that were changed anywhere become `DAMAGED`, so that a wrong byte is seen without a
copy of the written bytes.
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.checksum import crc32
from dledger.types import Buffer

DAMAGED: Final = -1
"""The number that stands for changed bytes."""
MIN_VALUE_BYTES: Final = 12

_HEAD: Final = struct.Struct(">qI")
_NUMBER: Final = struct.Struct(">q")
_SEQUENCE_BITS: Final = 40


def value_id(producer: int, sequence: int) -> int:
    """The number of the ``sequence``-th record of a producer; no two are equal.

    Args:
        producer: from 0 to 2**22 - 1.
        sequence: from 0 to 2**40 - 1.
    """
    return producer << _SEQUENCE_BITS | sequence


def split_id(value: int) -> tuple[int, int]:
    """Producer and sequence of a `value_id`."""
    return value >> _SEQUENCE_BITS, value & ((1 << _SEQUENCE_BITS) - 1)


def encode_value(value: int, size: int = MIN_VALUE_BYTES) -> bytes:
    """The bytes to append for ``value``: ``size`` of them, but at least MIN_VALUE_BYTES."""
    head = _HEAD.pack(value, crc32(_NUMBER.pack(value)))
    return head if size <= MIN_VALUE_BYTES else (head * (size // MIN_VALUE_BYTES + 1))[:size]


def decode_value(data: Buffer) -> int:
    """The number that `encode_value` put into ``data``; DAMAGED when a single byte of it is
    another."""
    if len(data) < MIN_VALUE_BYTES:
        return DAMAGED
    value = int(_NUMBER.unpack_from(data)[0])
    return value if value >= 0 and data == encode_value(value, len(data)) else DAMAGED
