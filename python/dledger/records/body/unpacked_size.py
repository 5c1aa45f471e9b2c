"""How large an Arrow message becomes when its buffers are decompressed, read from its flatbuffer
without Arrow.

A few bytes can declare any size, so readers hold it against a limit before they decompress, and
nodes before they take a batch that no reader could read.
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.records.body.header import Codec
from dledger.types import Buffer

MAX_DECODED_BYTES: Final = 256 << 20
"""Largest batch in memory, compressed or not."""
MAX_RECORDS: Final = 1 << 26
"""Most records of a batch: a reader adds the offset, time and place of each, and a column of nulls
takes no byte of a body."""
MAX_BUFFERS: Final = 1 << 16
"""Most buffers of a compressed batch, some 20,000 columns."""

_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3  # MessageHeader.RecordBatch of Arrow's format/Message.fbs
_u16 = struct.Struct("<H").unpack_from
_u32 = struct.Struct("<I").unpack_from
_i32 = struct.Struct("<i").unpack_from
_i64 = struct.Struct("<q").unpack_from
_buffer = struct.Struct("<qq").unpack_from


def _field(data: Buffer, table: int, number: int) -> int:
    """Where a flatbuffer table keeps a field; 0 when it does not have it."""
    vtable = table - _i32(data, table)[0]
    if vtable < 0 or table < 0:
        raise ValueError("a table lies before the message")
    slot = 4 + 2 * number
    if slot + 2 > _u16(data, vtable)[0]:
        return 0
    at: int = _u16(data, vtable + slot)[0]
    return table + at if at else 0


def check_sizes(payload: Buffer, codec: Codec, count: int) -> None:
    """Hold a message against the limits, and against its header's ``count`` of records.

    Raises:
        ValueError, struct.error: its sizes are not sound, are over a limit, or its compression is
            not ``codec``'s.
    """
    data = memoryview(payload)
    if _u32(data)[0] != _CONTINUATION:
        raise ValueError("it does not start like an Arrow message")
    body = 8 + _i32(data, 4)[0]
    if not 8 < body <= len(data):
        raise ValueError("its metadata is longer than itself")
    meta = data[8:body]
    message = _u32(meta)[0]
    kind, header = _field(meta, message, 1), _field(meta, message, 2)
    if not kind or not header or meta[kind] != _RECORD_BATCH:
        raise ValueError("it is no record batch message")
    table = header + _u32(meta, header)[0]
    length = _field(meta, table, 0)
    rows = _i64(meta, length)[0] if length else 0
    if rows != count:
        raise ValueError(f"the header promises {count} records, the payload has {rows}")
    if rows > MAX_RECORDS:
        raise ValueError(f"it has {rows} records, over {MAX_RECORDS}")
    compressed = _field(meta, table, 3) != 0
    if compressed != (codec is not Codec.NONE):
        raise ValueError("its compression is not the header's")
    if compressed:  # else no buffer can be larger than the payload
        _check_buffers(data, body, meta, table)


def _check_buffers(data: memoryview, body: int, meta: memoryview, table: int) -> None:
    """Hold compressed buffers, which begin at ``body``, against the limit together."""
    vector = _field(meta, table, 2)
    if not vector:
        raise ValueError("it has no buffers")
    vector += _u32(meta, vector)[0]
    buffers, total = _u32(meta, vector)[0], 0
    if buffers > MAX_BUFFERS:  # a node looks at each
        raise ValueError(f"it has {buffers} buffers, over {MAX_BUFFERS}")
    for number in range(buffers):
        offset, length = _buffer(meta, vector + 4 + 16 * number)
        if offset < 0 or length < 0 or body + offset + length > len(data):
            raise ValueError("a buffer lies outside of it")
        if length:
            declared = _i64(data, body + offset)[0]  # -1: this buffer is stored as it is
            if declared < -1:
                raise ValueError(f"a buffer of {declared} bytes")
            total += length if declared == -1 else declared
            if total > MAX_DECODED_BYTES:
                raise ValueError(f"decompressed it has over {MAX_DECODED_BYTES} bytes")
