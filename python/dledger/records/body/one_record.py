"""The body of one record without Arrow's work for it: payloads whose values and keys have the same
lengths are alike in all other bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

from dledger.records.body.build import make_records
from dledger.records.body.header import BodyHeader, BodyKind, Codec, Flag, encode_header
from dledger.records.body.records import encode_batch
from dledger.types import Buffer

LENGTHS: Final = 1024
"""Pairs of lengths whose other bytes are kept, some 250 each."""
Frame = tuple[bytes, bytes, bytes]
"""The bytes before the key, between key and value, and behind the value; without a key the first
are none."""
_frames: dict[tuple[int, int], Frame] = {}
"""By the lengths of value and key; -1: no key."""
_PLAIN: Final = Flag(0)
_KEYED: Final = Flag.HAS_KEYS
_OFFSETS: Final = 8
"""Bytes of the two Arrow offsets before one value's own bytes."""


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
    codec: Codec = Codec.NONE,
    now_us: int,
) -> tuple[bytes, Buffer]:
    """Header and payload of the record's body, byte for byte as `encode_batch` gives them."""
    value, key = record.value, record.key
    if codec is not Codec.NONE:
        return encode_batch(
            make_records(value, keys=key),
            topic_id=topic_id,
            partition=partition,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            codec=codec,
            now_us=now_us,
        )
    place = len(value), -1 if key is None else len(key)
    if (frame := _frames.get(place)) is None:
        frame = _learn(value, key)
    before, between, behind = frame
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
        flags=_PLAIN if key is None else _KEYED,
    )
    return encode_header(header), b"".join((before, key or b"", between, value, behind))


def _learn(value: bytes, key: bytes | None) -> Frame:
    """The other bytes of a payload, by Arrow's own. It has the key's bytes, the value's offsets and
    the value's bytes at its end, the bytes of each padded to a multiple of eight."""
    made = encode_batch(make_records(value, keys=key), topic_id=0, partition=0, now_us=0)
    payload = bytes(made[1])
    value_at = len(payload) - _padded(len(value))
    key_at = 0 if key is None else value_at - _OFFSETS - _padded(len(key))
    key_end, value_end = key_at + len(key or b""), value_at + len(value)
    assert payload[key_at:key_end] == (key or b""), "Arrow pads buffers to eight bytes"
    assert payload[value_at:value_end] == value, "Arrow pads buffers to eight bytes"
    frame = payload[:key_at], payload[key_end:value_at], payload[value_end:]
    if len(_frames) >= LENGTHS:
        _frames.clear()
    _frames[len(value), -1 if key is None else len(key)] = frame
    return frame


def _padded(size: int) -> int:
    return -(-size // 8) * 8
