"""The Arrow message behind the header of a body: one IPC record batch message, without its schema.

Before Arrow decompresses anything, the sizes that the message declares are read from its flatbuffer and held against a
limit, because a few bytes can declare any size.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from dledger.batch.header import Codec
from dledger.errors import CorruptEntry
from dledger.types import Buffer

MAX_DECODED_BYTES: Final = 256 << 20
"""Largest batch in memory, compressed or not."""

_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3  # MessageHeader.RecordBatch of Arrow's format/Message.fbs
_END_OF_STREAM: Final = 8  # bytes of the marker that a stream writer adds
_u16 = struct.Struct("<H").unpack_from
_u32 = struct.Struct("<I").unpack_from
_i32 = struct.Struct("<i").unpack_from
_i64 = struct.Struct("<q").unpack_from

_OPTIONS: Final = {
    Codec.LZ4: pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False),
    Codec.ZSTD: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False),
}


def serialize(batch: pa.RecordBatch, codec: Codec) -> tuple[pa.Buffer, Codec]:
    """The message, and how its buffers are compressed: not at all when that would not make it smaller."""
    if codec is not Codec.NONE:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS[codec]) as writer:
            writer.write_batch(batch)
        stream = sink.getvalue()
        start = 8 + _i32(stream, 4)[0]  # behind the schema message
        if stream.size - start - _END_OF_STREAM < pa.ipc.get_record_batch_size(batch):
            return stream.slice(start, stream.size - start - _END_OF_STREAM), codec
    return batch.serialize(), Codec.NONE


def deserialize(payload: Buffer, schema: pa.Schema, codec: Codec, count: int) -> pa.RecordBatch:
    """The batch, its buffers still in ``payload`` unless they are compressed; safe to use whatever the bytes were.

    Raises:
        CorruptEntry: not ``count`` records of that schema, or more than MAX_DECODED_BYTES.
    """
    try:
        _check_sizes(payload, codec)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError, struct.error, OSError, MemoryError) as error:
        raise CorruptEntry(f"the payload is no batch of records: {error}") from error
    if batch.num_rows != count:
        raise CorruptEntry(f"the header promises {count} records, the payload has {batch.num_rows}")
    return batch


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


def _check_sizes(payload: Buffer, codec: Codec) -> None:
    """Raises ValueError or struct.error unless the message's sizes are sound and its compression is ``codec``'s."""
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
    compressed = _field(meta, table, 3) != 0
    if compressed != (codec is not Codec.NONE):
        raise ValueError("its compression is not the header's")
    if not compressed:
        return  # no buffer can be larger than the payload
    vector = _field(meta, table, 2)
    if not vector:
        raise ValueError("it has no buffers")
    vector += _u32(meta, vector)[0]
    total = 0
    for number in range(_u32(meta, vector)[0]):
        offset, length = struct.unpack_from("<qq", meta, vector + 4 + 16 * number)
        if offset < 0 or length < 0 or body + offset + length > len(data):
            raise ValueError("a buffer lies outside of it")
        if length:
            declared = _i64(data, body + offset)[0]  # -1: this buffer is stored as it is
            if declared < -1:
                raise ValueError(f"a buffer of {declared} bytes")
            total += length if declared == -1 else declared
            if total > MAX_DECODED_BYTES:
                raise ValueError(f"decompressed it has over {MAX_DECODED_BYTES} bytes")


__all__ = ["MAX_DECODED_BYTES", "deserialize", "serialize"]
