"""The body of one record without Arrow's work for it: payloads whose values and keys have the same
lengths are alike in all other bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header

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
FLAGS: Final = {
    (keyed, staged): Flag(keyed * Flag.HAS_KEYS | staged * Flag.STAGED)
    for keyed in (False, True)
    for staged in (False, True)
}
OFFSETS: Final = 8
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
        flags=FLAGS[key is not None, staged],
    )
    return encode_header(header), payload


def frame_that_comes_again(value_size: int, key_size: int) -> Frame | None:
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


def forget_lengths() -> None:
    """As in a new process: which lengths were met before decides how many bodies a reader opens
    together."""
    _frames.clear()
    _met.clear()


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
    # most frames are known; what makes one is loaded for the first
    from dledger.records.body.build import make_records
    from dledger.records.body.records import encode_batch

    records = make_records(value, keys=key)
    return bytes(encode_batch(records, topic_id=0, partition=0, now_us=0)[1])


def _learn(value_size: int, key_size: int) -> Frame | None:
    """Keep the other bytes of payloads with such lengths, by one of Arrow's whose value and key are
    of bytes that padding never has. It has the key's bytes, the value's offsets and the value's
    bytes at its end, the bytes of each padded to a multiple of eight; None where it has not."""
    value, key = b"\xff" * value_size, b"\xff" * max(key_size, 0)
    payload = _by_arrow(value, None if key_size < 0 else key)
    value_at = len(payload) - padded(value_size)
    key_at = 0 if key_size < 0 else value_at - OFFSETS - padded(key_size)
    key_end, value_end = key_at + len(key), value_at + value_size
    if (payload[key_at:key_end], payload[value_at:value_end]) != (key, value):
        return None
    if len(_frames) >= LENGTHS:
        _frames.clear()
    frame = payload[:key_at], payload[key_end:value_at], payload[value_end:]
    _frames[value_size, key_size] = frame
    return frame


def padded(size: int) -> int:
    """Bytes that a value takes in a payload."""
    return -(-size // 8) * 8
