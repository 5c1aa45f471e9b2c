"""The Arrow message behind the header of a body: one IPC record batch message, without its schema.

Before Arrow decompresses anything, the sizes that the message declares are checked
(`dledger.records.body.unpacked_size`).
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from dledger.errors import CorruptEntry
from dledger.interrupts import is_interrupt
from dledger.records.body.header import Codec
from dledger.records.body.soundness import check_values
from dledger.records.body.unpacked_size import check_sizes
from dledger.types import Buffer

_END_OF_STREAM: Final = 8  # bytes of the marker that a stream writer adds
_i32 = struct.Struct("<i").unpack_from

_OPTIONS: Final = {
    Codec.LZ4: pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False),
    Codec.ZSTD: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False),
}


def compress(batch: pa.RecordBatch, codec: Codec) -> tuple[pa.Buffer, Codec]:
    """The message, its buffers compressed by ``codec``, and which codec it has: NONE where that
    would not make it smaller."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS[codec]) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    start = 8 + _i32(stream, 4)[0]  # behind the schema message
    if stream.size - start - _END_OF_STREAM < pa.ipc.get_record_batch_size(batch):
        return stream.slice(start, stream.size - start - _END_OF_STREAM), codec
    return batch.serialize(), Codec.NONE


def deserialize(payload: Buffer, schema: pa.Schema, codec: Codec, count: int) -> pa.RecordBatch:
    """The batch, its buffers still in ``payload`` unless they are compressed; safe to use with any
    bytes.

    Raises:
        CorruptEntry: not ``count`` records of that schema, or more than MAX_DECODED_BYTES.
    """
    try:
        check_sizes(payload, codec, count)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        check_values(batch)
    except (pa.ArrowException, ValueError, IndexError, struct.error, OSError, MemoryError) as error:
        if is_interrupt(error):
            raise
        raise CorruptEntry(f"the payload is no batch of records: {error}") from error
    return batch
