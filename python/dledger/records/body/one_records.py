"""Many bodies of one record each, decoded at once.

A log that is written one record at a time has a body for each, and Arrow takes 30 microseconds to
open one. Payloads of plain records are alike in all bytes but those of value and key (see
`dledger.records.body.one_record`), so that bodies whose other bytes are those of the template have
their values in known places: these are compared, and gathered, as columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.compiled import compiled
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Flag,
    encode_header,
)
from dledger.records.body.one_record import LARGEST, frame_of, frames_of
from dledger.records.body.schema import HEADERS, RECORD_SCHEMA, TIMESTAMP
from dledger.records.columns.arrays import number_column
from dledger.types import Buffer

WORD: Final = 8
"""All parts of such a body are of as many bytes, or of a multiple of it."""
LEARNED: Final = 4
"""One template is learned for so many bodies."""
Numbers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


def _words(data: Buffer) -> _Words:
    return np.frombuffer(data, "<u8")


def _kind_of(flags: int) -> tuple[int, ...]:
    """The words of a header that say which columns the one record has, for each flag STAGED."""
    headers = (
        encode_header(BodyHeader(BodyKind.DATA, count=1, flags=Flag(flags | staged)))
        for staged in (0, Flag.STAGED)
    )
    return tuple(int(_words(header)[0]) for header in headers)


_PLAIN: Final = _kind_of(0)
_KEYED: Final = _kind_of(Flag.HAS_KEYS)
_ONE: Final = int(_words(encode_header(BodyHeader(BodyKind.DATA, count=1)))[2])
"""The word of a header with count and schema version."""
_TIME: Final = 3
"""The word of a header with its first time."""


def decode_one_records(payload: Buffer, sizes: Numbers, gap: int = 0) -> pa.RecordBatch | None:
    """The records of bodies that lie one behind the other, as `decode_batch` gives them one by one,
    in the RECORD_SCHEMA; None when one of the bodies is not of one plain record, laid out in
    another way, or large.

    Args:
        sizes: of each body, in bytes; together, with a ``gap`` of bytes in front of each, those of
            ``payload``.
    """
    if gap % WORD or (sizes % WORD).any() or sizes.max() > LARGEST:
        return None
    words = _words(payload)
    starts = (np.cumsum(sizes + gap) - sizes) // WORD
    room = sizes // WORD - BODY_HEADER_SIZE // WORD
    if (room <= 0).any():
        return None
    kinds = words[starts]
    keyed = int(kinds[0]) in _KEYED
    if (words[starts + 2] != _ONE).any() or not np.isin(kinds, _KEYED if keyed else _PLAIN).all():
        return None
    columns = (_keyed if keyed else _unkeyed)(
        words, memoryview(payload).cast("B"), starts + BODY_HEADER_SIZE // WORD, room
    )
    if columns is None:
        return None
    times = words[starts + _TIME].byteswap().view(np.int64)
    return pa.RecordBatch.from_arrays(
        [number_column(TIMESTAMP, times), *columns, pa.nulls(len(sizes), HEADERS)],
        schema=RECORD_SCHEMA,
    )


def _unkeyed(
    words: _Words, data: memoryview, starts: Numbers, room: Numbers
) -> tuple[pa.Array, pa.Array] | None:
    frame = frame_of(0)
    before = _word_count(frame[1]) if frame else 0
    if not before or (room < before).any():
        return None
    found = words[starts[:, None] + np.arange(before)]
    sizes = _sizes(found[:, -1])
    if (room != before + _words_of(sizes)).any() or not _fit(found, sizes, None):
        return None
    return pa.nulls(len(sizes), pa.binary()), gather_values(data, (starts + before) * WORD, sizes)


def _keyed(
    words: _Words, data: memoryview, starts: Numbers, room: Numbers
) -> tuple[pa.Array, pa.Array] | None:
    frame = frame_of(0, 0)
    before = _word_count(frame[0]) if frame else 0
    if not before or (room < before).any():
        return None
    found = words[starts[:, None] + np.arange(before)]
    key_sizes = _sizes(found[:, -1])
    value_at = before + _words_of(key_sizes) + 1  # behind the offsets of the value
    if (room < value_at).any():
        return None
    places = words[starts + value_at - 1]
    sizes = _sizes(places)
    right = room == value_at + _words_of(sizes)
    if not right.all() or (places & 0xFFFFFFFF).any() or not _fit(found, sizes, key_sizes):
        return None
    keys = gather_values(data, (starts + before) * WORD, key_sizes)
    return keys, gather_values(data, (starts + value_at) * WORD, sizes)


def _sizes(offsets: _Words) -> Numbers:
    """The length of each value, by its two Arrow offsets."""
    return (offsets >> np.uint64(32)).astype(np.int64)


def _words_of(sizes: Numbers) -> Numbers:
    return -(-sizes // WORD)


def _word_count(frame: bytes) -> int:
    """0 when they are not whole."""
    return 0 if len(frame) % WORD else len(frame) // WORD


def _fit(found: _Words, sizes: Numbers, key_sizes: Numbers | None) -> bool:
    """Whether the words in front of each key, or of each value without one, are the template's."""
    pairs = sizes if key_sizes is None else sizes << 32 | key_sizes
    kinds, kind_of = np.unique(pairs, return_inverse=True)
    keyed, numbers = key_sizes is not None, kinds.tolist()
    places = [(pair >> 32, pair & 0xFFFFFFFF) if keyed else (pair, -1) for pair in numbers]
    frames = frames_of(places, -(-len(sizes) // LEARNED))
    if frames is None:
        return False
    templates = [frame[0 if keyed else 1] for frame in frames]
    if set(map(len, templates)) != {found.shape[1] * WORD}:
        return False
    due = _words(b"".join(templates)).reshape(-1, found.shape[1])
    return bool((due[kind_of] == found).all())


def gather_values(data: memoryview, starts: Numbers, sizes: Numbers) -> pa.Array:
    """The values that begin at these bytes, as a binary column."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    joined = join_values(data, starts.data, sizes.data)
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )


@compiled
def join_values(data: Buffer, starts: Buffer, sizes: Buffer) -> bytes:
    """The bytes at these places, side by side; ``starts`` and ``sizes`` are columns of int64."""
    firsts, lengths = (np.frombuffer(column, np.int64) for column in (starts, sizes))
    places = zip(firsts.tolist(), (firsts + lengths).tolist(), strict=True)
    return b"".join([data[first:end] for first, end in places])
