"""Many bodies of one record each, decoded at once.

A log that is written one record at a time has a body for each, and Arrow takes 30 microseconds to
open one. Payloads of plain records are alike in all bytes but those of value and key (see
`dledger.records.body.one_record`), so that bodies whose other bytes are those of the template have
their values in known places: these are compared, and gathered, as columns.
"""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate
from typing import Final

import pyarrow as pa

from dledger.compiled import compiled
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Flag,
    encode_header,
)
from dledger.records.body.one_record import LARGEST, OFFSETS, frame_of, frames_of, padded
from dledger.records.body.schema import HEADERS, RECORD_SCHEMA, TIMESTAMP
from dledger.records.columns.arrays import number_column
from dledger.types import Buffer

WORD: Final = 8
"""All parts of such a body are of as many bytes, or of a multiple of it."""
LEARNED: Final = 4
"""One template is learned for so many bodies."""
_head: Final = struct.Struct(">Q8xQq").unpack_from
"""Of a header: the word that says which columns there are, that with count and schema version, and
the first time."""
_pair: Final = struct.Struct("<II").unpack_from
"""The two Arrow offsets of one value."""
Parts = tuple[bool, bytes, bytes, bytes, bytes, bytes, bytes, list[tuple[int, int]]]


def _kinds_of(flags: int) -> tuple[int, int]:
    """The words of a header that say which columns the one record has, for each flag STAGED."""
    plain, staged = (
        encode_header(BodyHeader(BodyKind.DATA, count=1, flags=Flag(flags | staged)))
        for staged in (0, Flag.STAGED)
    )
    return _head(plain)[0], _head(staged)[0]


KINDS: Final = (*_kinds_of(0), *_kinds_of(Flag.HAS_KEYS))
"""The first word of a header: plain, plain and staged, keyed, keyed and staged."""
ONE: Final = _head(encode_header(BodyHeader(BodyKind.DATA, count=1)))[1]
"""The word of a header with count and schema version."""


def decode_one_records(payload: Buffer, sizes: Buffer, gap: int = 0) -> pa.RecordBatch | None:
    """The records of bodies that lie one behind the other, as `decode_batch` gives them one by one,
    in the RECORD_SCHEMA; None when one of the bodies is not of one plain record, laid out in
    another way, or large.

    Args:
        sizes: of each body, in bytes, as int64; together, with a ``gap`` of bytes in front of each,
            those of ``payload``.
    """
    plain, keyed = frame_of(0), frame_of(0, 0)
    before = _whole(plain[1] if plain else b""), _whole(keyed[0] if keyed else b"")
    parts = one_record_parts(payload, sizes, gap, LARGEST, KINDS, ONE, *before)
    if parts is None:
        return None
    is_keyed, times, values, value_sizes, keys, key_sizes, kind_of, kinds = parts
    frames = frames_of(kinds, -(-len(times) // WORD // LEARNED))
    if frames is None:
        return None
    heads, width = [frame[0 if is_keyed else 1] for frame in frames], before[is_keyed]
    if set(map(len, heads)) != {width}:
        return None
    if not heads_match(payload, keys, kind_of, b"".join(heads), width):
        return None
    count = len(times) // WORD
    columns = [
        number_column(TIMESTAMP, times),
        gather_values(payload, keys, key_sizes) if is_keyed else pa.nulls(count, pa.binary()),
        gather_values(payload, values, value_sizes),
        pa.nulls(count, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _whole(head: bytes) -> int:
    """Its bytes; 0 where they are not words."""
    return 0 if len(head) % WORD else len(head)


@compiled
def one_record_parts(
    payload: Buffer,
    sizes: Buffer,
    gap: int,
    largest: int,
    kinds: tuple[int, int, int, int],
    one: int,
    plain: int,
    keyed: int,
) -> Parts | None:
    """Where the parts of bodies of one plain record lie in their payload, if all of them have a
    key, or none; None when one is of another shape. What else is in them is not looked at.

    Args:
        sizes: of each body, as int64; at most ``largest``, with ``gap`` bytes in front of each.
        kinds: as `KINDS`.
        one: as `ONE`.
        plain: bytes between header and value where there is no key; 0: not known.
        keyed: bytes between header and key; 0: not known.

    Returns:
        Whether they have keys; columns of int64 with times, starts and sizes of values, starts and
        sizes of keys (without keys the starts are those of the values, and the sizes 0); a column
        of int32 with the place of each body's sizes of value and key among those that are met; and
        these, -1 where there is no key.
    """
    data, at, end = memoryview(payload).cast("B"), 0, len(payload)
    found: list[int] = []
    kind_of, met = array("i"), dict[tuple[int, int], int]()
    is_keyed, before, allowed = False, plain, kinds[:2]
    for size in memoryview(sizes).cast("B").cast("q"):
        at += gap
        if gap < 0 or not BODY_HEADER_SIZE < size <= largest or size > end - at or size % WORD:
            return None
        kind, count, time = _head(data, at)
        if not found and kind in kinds[2:]:
            is_keyed, before, allowed = True, keyed, kinds[2:]
        start = at + BODY_HEADER_SIZE + before
        at += size
        if kind not in allowed or count != one or before < OFFSETS or start > at:
            return None
        value, value_size, key_size = start, _pair(data, start - OFFSETS)[1], -1
        if is_keyed:
            key_size, value = value_size, start + padded(value_size) + OFFSETS
            if value > at:
                return None
            first, value_size = _pair(data, value - OFFSETS)
            if first:
                return None
        if value + padded(value_size) != at:
            return None
        found += (time, value, value_size, start, max(key_size, 0))
        kind_of.append(met.setdefault((value_size, key_size), len(met)))
    columns = (array("q", found[one::5]).tobytes() for one in range(5))
    return is_keyed, *columns, kind_of.tobytes(), list(met)  # type: ignore[return-value]


@compiled
def heads_match(payload: Buffer, ends: Buffer, kind_of: Buffer, heads: Buffer, width: int) -> bool:
    """Whether the ``width`` bytes that end at these places are what they are due to be.

    Args:
        ends: as int64.
        kind_of: the place of each one's due bytes in ``heads``, as int32.

    Raises:
        ValueError: a place lies outside of the bytes.
    """
    data, due = bytes(payload), bytes(heads)
    places, kinds = memoryview(ends).cast("B").cast("q"), memoryview(kind_of).cast("B").cast("i")
    if width <= 0 or len(places) != len(kinds):
        raise ValueError("heads that lead out of their bytes")
    known = [due[at : at + width] for at in range(0, len(due) // width * width, width)]
    for end, kind in zip(places, kinds, strict=True):
        if not width <= end <= len(data) or not 0 <= kind < len(known):
            raise ValueError("heads that lead out of their bytes")
        if not data.startswith(known[kind], end - width):
            return False
    return True


def gather_values(data: Buffer, starts: Buffer, sizes: Buffer) -> pa.Array:
    """The values that begin at these bytes, as a binary column; starts and sizes as int64."""
    offsets, joined = map(pa.py_buffer, join_values(data, starts, sizes))
    return pa.Array.from_buffers(pa.binary(), offsets.size // 4 - 1, [None, offsets, joined])


@compiled
def join_values(data: Buffer, starts: Buffer, sizes: Buffer) -> tuple[bytes, bytes]:
    """Arrow's offsets of the values at these places, and their bytes side by side.

    Args:
        starts: as int64, as ``sizes``.

    Raises:
        ValueError: a value lies outside of ``data``, or all are larger than an offset.
    """
    whole = memoryview(data)
    firsts, lengths = (memoryview(column).cast("B").cast("q") for column in (starts, sizes))
    joined = []
    for first, length in zip(firsts, lengths, strict=True):
        if not 0 <= first <= first + length <= len(whole):
            raise ValueError("values that lead out of their bytes")
        joined.append(whole[first : first + length])
    try:
        offsets = array("i", accumulate(lengths, initial=0))
    except OverflowError:
        raise ValueError("values that lead out of their bytes") from None
    return offsets.tobytes(), b"".join(joined)
