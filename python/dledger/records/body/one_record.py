"""The body of one record without Arrow's work for it: payloads whose values and keys have the same
lengths are alike in all other bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, cast

import pyarrow as pa

from dledger.records.body.build import make_records
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Flag,
    encode_header,
)
from dledger.records.body.records import encode_batch
from dledger.records.body.schema import HEADERS, READ_SCHEMA, TIMESTAMP

LENGTHS: Final = 4096
"""Pairs of lengths whose other bytes are kept, some 250 each."""
LARGEST: Final = 16 << 10
"""Bytes of a body. To open a larger one costs less than to copy its value; Arrow copies none."""
Frame = tuple[bytes, bytes, bytes]
"""The bytes before the key, between key and value, and behind the value; without a key the first
are none."""
_frames: dict[tuple[int, int], Frame] = {}
"""By the lengths of value and key; -1: no key."""
_met: set[tuple[int, int]] = set()
"""Lengths that came once in a body that was read."""
_FLAGS: Final = {
    (keyed, staged): Flag(keyed * Flag.HAS_KEYS | staged * Flag.STAGED)
    for keyed in (False, True)
    for staged in (False, True)
}
_OFFSETS: Final = 8
"""Bytes of the two Arrow offsets before one value's own bytes."""


_KEYED: Final = {
    encode_header(BodyHeader(BodyKind.DATA, flags=flags))[:8]: keyed
    for (keyed, _), flags in _FLAGS.items()
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


class OneRecord(NamedTuple):
    """A record that is appended by itself."""

    value: bytes
    key: bytes | None
    num_rows: int = 1
    """As that of a record batch."""


def encode_record(
    record: OneRecord,
    *,
    topic_id: int,
    partition: int,
    producer_id: int = 0,
    epoch: int = 0,
    sequence: int = 0,
    staged: bool = False,
    now_us: int,
) -> tuple[bytes, bytes]:
    """Header and payload of the record's body, byte for byte as `encode_batch` gives them."""
    value, key = record.value, record.key
    frame = frame_of(len(value), -1 if key is None else len(key))
    if frame is None:
        payload = _by_arrow(value, key)
    else:
        before, between, behind = frame
        payload = b"".join((before, key or b"", between, value, behind))
    header = BodyHeader(
        BodyKind.DATA,
        topic_id,
        partition,
        count=1,
        first_time_us=now_us,
        last_time_us=now_us,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        flags=_FLAGS[key is not None, staged],
    )
    return encode_header(header), payload


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
        value_at += _padded(_size(payload, key_at - 4)[0]) + _OFFSETS
    if value_at > len(payload):
        return None
    key_size = _size(payload, key_at - 4)[0] if keyed else -1
    value_size = _size(payload, value_at - 4)[0]
    frame = _frame_that_comes_again(value_size, key_size)
    if frame is None:
        return None
    before, between, behind = frame
    parts = payload[: len(before)], payload[len(before) + max(key_size, 0) : value_at]
    if (*parts, payload[value_at + value_size :]) != (before, between, behind):
        return None
    keys = _NO_KEY
    if keyed:
        keys = _binary(payload[key_at - _OFFSETS : key_at], payload[key_at : key_at + key_size])
    columns = [
        _number(_INT64, offset),
        _number(TIMESTAMP, _time(header)[0]),
        keys,
        _binary(payload[value_at - _OFFSETS : value_at], payload[value_at:]),
        _NO_HEADERS,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def _number(kind: pa.DataType, number: int) -> pa.Array:
    data = pa.py_buffer(number.to_bytes(8, "little", signed=True))
    return pa.Array.from_buffers(kind, 1, [None, data])


def _binary(offsets: bytes, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(_BINARY, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _frame_that_comes_again(value_size: int, key_size: int) -> Frame | None:
    """`frame_of`, but none for the first body with such lengths."""
    place = value_size, key_size
    found = _frames.get(place)
    if found is None and max(place) <= LARGEST:
        if place in _met:
            return _learn(value_size, key_size)
        if len(_met) >= LENGTHS:
            _met.clear()
        _met.add(place)
    return found


def frame_of(value_size: int, key_size: int = -1) -> Frame | None:
    """The other bytes of a payload with such lengths; -1: no key. None where they are not known to
    lie around key and value."""
    return _frames.get((value_size, key_size)) or _learn(value_size, key_size)


def frames_of(places: Iterable[tuple[int, int]], most: int) -> list[Frame] | None:
    """`frame_of` for each; None where one is not known. At most so many are learned, which takes
    Arrow as long as to open a payload."""
    found = []
    for place in places:
        frame = _frames.get(place)
        if frame is None and most:
            frame, most = _learn(*place), most - 1
        found.append(frame)
    return None if None in found else cast("list[Frame]", found)


def _by_arrow(value: bytes, key: bytes | None) -> bytes:
    records = make_records(value, keys=key)
    return bytes(encode_batch(records, topic_id=0, partition=0, now_us=0)[1])


def _learn(value_size: int, key_size: int) -> Frame | None:
    """Keep the other bytes of payloads with such lengths, by one of Arrow's whose value and key are
    of bytes that padding never has. It has the key's bytes, the value's offsets and the value's
    bytes at its end, the bytes of each padded to a multiple of eight; None where it has not."""
    value, key = b"\xff" * value_size, b"\xff" * max(key_size, 0)
    payload = _by_arrow(value, None if key_size < 0 else key)
    value_at = len(payload) - _padded(value_size)
    key_at = 0 if key_size < 0 else value_at - _OFFSETS - _padded(key_size)
    key_end, value_end = key_at + len(key), value_at + value_size
    if (payload[key_at:key_end], payload[value_at:value_end]) != (key, value):
        return None
    if len(_frames) >= LENGTHS:
        _frames.clear()
    frame = payload[:key_at], payload[key_end:value_at], payload[value_end:]
    _frames[value_size, key_size] = frame
    return frame


def _padded(size: int) -> int:
    return -(-size // 8) * 8
