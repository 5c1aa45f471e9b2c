"""Batches that nobody can open, each as header and payload of a body: bombs and lies."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from dledger.records.body.build import make_records
from dledger.records.body.header import BodyHeader, BodyKind, Codec, encode_header
from dledger.records.body.payload import compress
from dledger.records.body.records import encode_batch
from dledger.records.body.unpacked_size import MAX_DECODED_BYTES, MAX_RECORDS

COUNT: Final = 5
"""Records that each of them says that it has."""
Poison = tuple[bytes, bytes]


def _body(
    payload: bytes, codec: Codec = Codec.NONE, count: int = COUNT, version: int = 0
) -> Poison:
    header = BodyHeader(
        BodyKind.DATA, 0, 0, count, codec=codec, first_time_us=7, last_time_us=7,
        schema_version=version,
    )  # fmt: skip
    return encode_header(header), payload


def _sound(codec: Codec = Codec.NONE, size: int = 1000) -> bytes:
    """The payload of so many records."""
    records = make_records([b"x" * size] * COUNT)
    return bytes(encode_batch(records, topic_id=0, partition=0, codec=codec, now_us=7)[1])


def bomb(codec: Codec) -> Poison:
    """A megabyte that becomes 320."""
    zeros = pa.record_batch([pa.array([bytes(64 << 20)] * COUNT, pa.binary())], names=["value"])
    payload, used = compress(zeros, codec)
    assert used is codec
    return _body(bytes(payload), codec)


def bomb_that_lies(codec: Codec) -> Poison:
    """Some kilobytes that say they become five, and become 50,000,000."""
    size = 10_000_000
    payload = _sound(codec, size)
    true, said = struct.pack("<q", COUNT * size), struct.pack("<q", 5000)
    assert true in payload
    return _body(payload.replace(true, said, 1), codec)  # in front of the packed bytes


def bomb_of_many_buffers() -> Poison:
    """Each buffer is below the limit."""
    size = MAX_DECODED_BYTES // COUNT - 1000
    columns = {"key": pa.array([b"k"] * COUNT), "value": pa.array([b"v" * 100] * COUNT)}
    payload, _ = compress(pa.record_batch(columns), Codec.ZSTD)
    data, said = bytes(payload), struct.pack("<q", COUNT * 100)
    if data.count(said) != 1:  # so small that Arrow did not pack it
        records = make_records([b"v" * 1000] * COUNT, keys=[b"k" * 1000] * COUNT)
        data = bytes(compress(records.select(["key", "value"]), Codec.ZSTD)[0])
        said = struct.pack("<q", COUNT * 1000)
    return _body(data.replace(said, struct.pack("<q", COUNT * size)), Codec.ZSTD)


def count_that_lies() -> Poison:
    """The payload has two records less."""
    payload = encode_batch(make_records([b"x"] * (COUNT - 2)), topic_id=0, partition=0, now_us=7)[1]
    return _body(bytes(payload))


def no_arrow() -> Poison:
    return _body(b"\x00\xff" * 500)


def offsets_that_lie() -> Poison:
    """A value that ends behind the data."""
    payload = _sound()
    true, said = struct.pack("<i", 1000 * COUNT), struct.pack("<i", 1 << 30)
    assert true in payload
    return _body(payload.replace(true, said))


def rows_of_nothing() -> Poison:
    """Nulls take no byte of a body, and a reader counts each."""
    nothing = pa.record_batch([pa.nulls(MAX_RECORDS + 1)], names=["v"])
    return _body(bytes(nothing.serialize()), count=MAX_RECORDS + 1, version=1)


RAW: Final[dict[str, Callable[[], Poison]]] = {
    "zstd bomb": lambda: bomb(Codec.ZSTD),
    "lz4 bomb": lambda: bomb(Codec.LZ4),
    "zstd bomb that lies": lambda: bomb_that_lies(Codec.ZSTD),
    "lz4 bomb that lies": lambda: bomb_that_lies(Codec.LZ4),
    "bomb of many buffers": bomb_of_many_buffers,
    "count that lies": count_that_lies,
    "no arrow": no_arrow,
    "offsets that lie": offsets_that_lie,
}
"""Of a topic of keys and values."""


def typed_nulls() -> Poison:
    """Of a column ``id long`` that never is null."""
    rows = pa.record_batch({"id": pa.array([1, 2, None, 4, 5], pa.int64()), "name": ["x"] * COUNT})
    return _body(bytes(rows.serialize()), version=1)


def typed_text() -> Poison:
    """Text that is no UTF-8."""
    broken = pa.array([b"\xff\xfe"] * COUNT, pa.binary()).view(pa.string())
    rows = pa.record_batch({"id": pa.array(range(COUNT), pa.int64()), "name": broken})
    return _body(bytes(rows.serialize()), version=1)


def typed_columns() -> Poison:
    """Other columns than those of the version that it names."""
    rows = pa.record_batch({"id": pa.array([1] * COUNT, pa.int8())})
    return _body(bytes(rows.serialize()), version=1)


TYPED: Final[dict[str, Callable[[], Poison]]] = {
    "nulls": typed_nulls,
    "text": typed_text,
    "columns": typed_columns,
}
"""Of a typed topic with the columns ``id long not null, name string``."""
