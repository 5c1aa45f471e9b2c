"""The hash of each value of an array of strings or of binary values.

It is a polynomial over blocks of 8-byte words, whose sizes are powers of 2 and decrease, and the
last few bytes of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.records.digest import mixing
from dledger.records.digest.mixing import BASE, MASK, Hashes, carried, weights

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

WORD: Final = 8
WORDS: Final = np.dtype("<u8")
MOST: Final = 4096
"""Words of a block."""
AT_ONCE: Final = 15_360
"""Words that are copied together: 120 KiB. From 128 KiB on, malloc(3) gives freed memory back to
the kernel."""


def hashes_of_bytes(array: pa.Array) -> Hashes:
    """Of strings and binary values: ``length * BASE^(n+1) + block_1 * BASE^n + ... + block_n * BASE
    + rest``.

    A value of ``w`` whole words has ``w // MOST`` blocks of ``MOST`` words, and then one for each
    power of 2 that the rest of ``w`` is made of, the largest first. The bytes left over are less
    than a word.
    """
    if not len(array):
        return np.zeros(0, np.uint64)
    _, offsets, buffer = array.buffers()
    size = 8 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else 4
    if mixing.native is not None:
        found = np.empty(len(array), np.uint64)
        mixing.native.hash_bytes(
            offsets, size, array.offset, b"" if buffer is None else buffer, found
        )
        return found
    bounds = np.frombuffer(offsets, f"<i{size}", len(array) + 1, array.offset * size).astype(
        np.int64
    )
    data = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    return _of_bounds(bounds, data)


def _of_bounds(bounds: Ints, data: Bytes) -> Hashes:
    if bounds[1] < WORD:  # the word that ends with a value would begin before the first byte
        data = np.concatenate([np.zeros(WORD, np.uint8), data])
        bounds += WORD
    lengths = np.diff(bounds)
    length = int(lengths[0])
    if 0 < length < MOST * WORD and (lengths == length).all():
        return _of_one_length(data, int(bounds[0]), length, len(lengths))
    return _of_lengths(data, bounds[:-1], lengths)


def _of_one_length(data: Bytes, start: int, length: int, count: int) -> Hashes:
    """Values of one length, one behind the other: all blocks of one are one, whose weights have the
    powers of BASE."""
    words, spare = length // WORD, _SPARE[length % WORD]
    found: Hashes = np.ndarray((count,), WORDS, data, start + length - WORD, (length,)) >> spare
    found += np.uint64(length * pow(int(BASE), words.bit_count() + 1, MASK + 1) & MASK)
    if words:
        values = np.ndarray((count,), np.dtype((np.void, words * WORD)), data, start, (length,))
        found += _folded(lambda some: values[some].copy(), count, _powered_weights(words))
    return found


@lru_cache(64)
def _powered_weights(words: int) -> Hashes:
    """The weights of less than ``MOST`` words, each with the power of BASE that its block has."""
    sizes = [1 << bit for bit in range(words.bit_length()) if words >> bit & 1]
    powered = [
        weights(size) * np.uint64(pow(int(BASE), power, MASK + 1))
        for power, size in enumerate(sizes, 1)
    ]
    return np.concatenate(powered[::-1])


def _of_lengths(data: Bytes, starts: Ints, lengths: Ints) -> Hashes:
    """Values of any lengths, Horner's way."""
    rests = np.ndarray((len(data) - WORD + 1,), WORDS, data, strides=(1,))[starts + lengths - WORD]
    rests >>= _SPARE[lengths & 7]
    found, words, places = lengths.astype(np.uint64), lengths >> 3, starts.copy()
    for number in range(int(words.max()) // MOST):
        _add_blocks(found, words > number * MOST + MOST - 1, data, places, MOST)
    in_some, size = int(np.bitwise_or.reduce(words)), MOST
    while size := size >> 1:
        if in_some & size:
            _add_blocks(found, words & size != 0, data, places, size)
    found *= BASE
    found += rests
    return found


_SPARE: Final = np.array([64 - 8 * rest for rest in range(WORD)], np.uint64)
"""Bits of the last word that are not of the rest, where that has so many bytes; a shift by 64
leaves 0."""


def _add_blocks(
    found: Hashes, chosen: npt.NDArray[np.bool_], data: Bytes, places: Ints, size: int
) -> None:
    """Go on to the next power of BASE, add the block of so many words at each of these places that
    is chosen, and go on to the place behind it."""
    blocks = np.ndarray(
        (len(data) - size * WORD + 1,), np.dtype((np.void, size * WORD)), data, strides=(1,)
    )
    if chosen.all():
        found *= BASE
        found += _folded(lambda some: blocks[places[some]], len(places), weights(size))
        places += size * WORD
    else:
        rows = np.flatnonzero(chosen)
        at = places[rows]
        found[rows] = found[rows] * BASE + _folded(
            lambda some: blocks[at[some]], len(rows), weights(size)
        )
        places[rows] = at + size * WORD


def _folded(copied: Callable[[slice], npt.NDArray[np.void]], count: int, factors: Hashes) -> Hashes:
    """Blocks to one word each, some at a time: their copies then stay in memory that is used
    already, and the kernel need not find new pages for each batch, which takes several times as
    long as the rest."""
    step = max(1, AT_ONCE // len(factors))
    found = np.empty(count, np.uint64)
    room = np.empty((min(step, count), len(factors)), np.uint64)
    for first in range(0, count, step):
        some = slice(first, first + step)
        words = copied(some).view(WORDS).reshape(-1, len(factors))
        np.matmul(carried(words, room[: len(words)]), factors, out=found[some])
    return found
