"""The body of one record with a key, for nodes, which load no Arrow.

The payload is what Arrow makes of such a record: the metadata of a record batch of two binary
columns, ``key`` and ``value``, and their buffers. But for lengths and places all of it is the same
for each record.
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header

_BEFORE: Final = bytes.fromhex(
    "ffffffffd800000014000000000000000c0016000600050008000c000c0000000003040018000000"
)
"""Up to the length of the body behind the metadata."""
_TABLES: Final = bytes.fromhex(
    "00000a0018000c00040008000a0000007c00000010000000"
    "0100000000000000"  # rows
    "0000000006000000"  # buffers
)
_NODES: Final = bytes.fromhex(
    "0000000002000000" + 2 * "01000000000000000000000000000000"  # rows and nulls of each column
)
_BUFFERS: Final = struct.Struct("<12q")
"""Place and length of validity, offsets and bytes, of key and value; there is no validity."""
_LENGTH: Final = struct.Struct("<q")
_OFFSETS: Final = struct.Struct("<2i")


def encode_keyed_record(
    key: bytes,
    value: bytes,
    *,
    topic_id: int,
    time_us: int,
    producer_id: int,
    epoch: int,
    sequence: int,
) -> bytes:
    """The whole body, for partition 0 of a topic.

    Args:
        time_us: of the record, in microseconds since 1970 UTC.
        producer_id, epoch, sequence: as in `BodyHeader`.
    """
    header = BodyHeader(
        BodyKind.DATA,
        topic_id,
        count=1,
        first_time_us=time_us,
        last_time_us=time_us,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        flags=Flag.HAS_KEYS,
    )
    keys, values = _padded(key), _padded(value)
    offsets = _OFFSETS.size
    value_at = offsets + len(keys)
    return b"".join(
        (
            encode_header(header),
            _BEFORE,
            _LENGTH.pack(value_at + offsets + len(values)),
            _TABLES,
            _BUFFERS.pack(
                *(0, 0, 0, offsets, offsets, len(key)),
                *(value_at, 0, value_at, offsets, value_at + offsets, len(value)),
            ),
            _NODES,
            _OFFSETS.pack(0, len(key)),
            keys,
            _OFFSETS.pack(0, len(value)),
            values,
        )
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
