"""The record of a body that came alone, opened without Arrow's work where other bodies of such
lengths came before it (see `dledger.records.body.one_record`)."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from dledger.records.body.header import BODY_HEADER_SIZE, BodyHeader, BodyKind, encode_header
from dledger.records.body.one_record import (
    FLAGS,
    LARGEST,
    OFFSETS,
    frame_of,
    frame_that_comes_again,
    padded,
)
from dledger.records.body.schema import HEADERS, READ_SCHEMA, TIMESTAMP

_KEYED: Final = {
    encode_header(BodyHeader(BodyKind.DATA, flags=flags))[:8]: keyed
    for (keyed, _), flags in FLAGS.items()
}
"""Whether the record has a key, by the words of a header that say which columns it has."""
_ONE: Final = encode_header(BodyHeader(BodyKind.DATA, count=1))[16:24]
"""Count and schema version in a header."""
_time: Final = struct.Struct(">24xq").unpack_from
_size: Final = struct.Struct("<I").unpack_from
_INT64: Final = pa.int64()
_BINARY: Final = pa.binary()
_NO_KEY: Final = pa.nulls(1, _BINARY)
_NO_HEADERS: Final = pa.nulls(1, HEADERS)


def decode_record(body: memoryview, offset: int) -> pa.RecordBatch | None:
    """The record of a body, in the READ_SCHEMA, as `decode_batch` and `with_offsets` give it. None
    when the body is not of one plain record, laid out in another way, large, or the first one with
    such lengths: to learn them takes longer than Arrow for it."""
    if len(body) > LARGEST:
        return None
    header, payload = bytes(body[:BODY_HEADER_SIZE]), bytes(body[BODY_HEADER_SIZE:])
    keyed = _KEYED.get(header[:8])
    if keyed is None or header[16:24] != _ONE or not payload:
        return None
    shortest = frame_of(0, 0 if keyed else -1)
    if shortest is None:
        return None
    key_at = value_at = len(shortest[0 if keyed else 1])
    if keyed and key_at <= len(payload):
        value_at += padded(_size(payload, key_at - 4)[0]) + OFFSETS
    if value_at > len(payload):
        return None
    key_size = _size(payload, key_at - 4)[0] if keyed else -1
    value_size = _size(payload, value_at - 4)[0]
    frame = frame_that_comes_again(value_size, key_size)
    if frame is None:
        return None
    before, between, behind = frame
    parts = payload[: len(before)], payload[len(before) + max(key_size, 0) : value_at]
    if (*parts, payload[value_at + value_size :]) != (before, between, behind):
        return None
    keys = _NO_KEY
    if keyed:
        keys = _binary(payload[key_at - OFFSETS : key_at], payload[key_at : key_at + key_size])
    columns = [
        _number(_INT64, offset),
        _number(TIMESTAMP, _time(header)[0]),
        keys,
        _binary(payload[value_at - OFFSETS : value_at], payload[value_at:]),
        _NO_HEADERS,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def _number(kind: pa.DataType, number: int) -> pa.Array:
    data = pa.py_buffer(number.to_bytes(8, "little", signed=True))
    return pa.Array.from_buffers(kind, 1, [None, data])


def _binary(offsets: bytes, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(_BINARY, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
