"""The hash of each value of an array of strings or of binary values.

It is a polynomial over blocks of 8-byte words, whose sizes are powers of 2 and decrease, and the
last few bytes of the value.
"""

from __future__ import annotations

from array import array as numbers
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.records.columns.arrays import number, number_column, numbers_of, offsets_of
from dledger.records.columns.words import bytes_of, cut_into_words
from dledger.records.digest.mixing import (
    BASE,
    MASK,
    Words,
    carried,
    sums_between,
    weights,
    word_column,
)

WORD: Final = 8
MOST: Final = 4096
"""Words of a block."""
_LOGARITHM: Final = MOST.bit_length() - 1
AT_ONCE: Final = 512 * 1024
"""Bytes of values that are hashed together, or those of one value: the words that come of them
stay in the caches of a core."""
_THREE: Final = number(pa.int32(), WORD.bit_length() - 1)


def hashes_of_bytes(array: pa.Array) -> Words:
    """Of strings and binary values: ``length * BASE^(n+1) + block_1 * BASE^n + ... + block_n * BASE
    + rest``.

    A value of ``w`` whole words has ``w // MOST`` blocks of ``MOST`` words, and then one for each
    power of 2 that the rest of ``w`` is made of, the largest first. The bytes left over are less
    than a word.
    """
    return pa.concat_arrays([word_column(), *map(_hashes, _parts(array))])


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """The array in slices that have so many bytes, or one row."""
    offsets, first = numbers_of(offsets_of(array)), 0
    while first < len(array):
        last = bisect_right(offsets, offsets[first] + AT_ONCE, first + 2) - 1
        yield array.slice(first, last - first)
        first = last


def _hashes(array: pa.Array) -> Words:
    lengths, words, rests = cut_into_words(array, pa.uint64())
    sizes = pc.shift_right(lengths, _THREE).dictionary_encode()
    parts = zip(*map(_blocks, numbers_of(sizes.dictionary)), strict=True)
    blocks, powers, firsts = (_bytes_column(part).take(sizes.indices) for part in parts)
    factors = _weights_of_blocks().take(number_column(pa.int8(), bytes_of(blocks)))
    ends = pc.shift_right(offsets_of(factors), _THREE)
    sums = sums_between(pc.multiply(carried(words), _as_words(factors)), ends)
    found = sums_between(pc.multiply(sums, _as_words(powers)), offsets_of(blocks))
    found = pc.add(found, pc.multiply(lengths.cast(pa.uint64()), _as_words(firsts)))
    return pc.add(found, rests)


@lru_cache(MOST)
def _blocks(size: int) -> tuple[bytes, bytes, bytes]:
    """The blocks of so many words: the binary logarithms of their sizes, the powers of BASE that
    they have, and that of the length."""
    logarithms = [_LOGARITHM] * (size // MOST)
    logarithms += (bit for bit in reversed(range(_LOGARITHM)) if size >> bit & 1)
    first, *powers = (_power(exponent) for exponent in range(len(logarithms) + 1, 0, -1))
    return bytes(logarithms), b"".join(powers), first


def _power(exponent: int) -> bytes:
    return pow(BASE, exponent, MASK + 1).to_bytes(WORD, "little")


@cache
def _weights_of_blocks() -> pa.Array:
    """By the binary logarithm of a block's size, as bytes."""
    data = memoryview(weights(MOST).buffers()[1])
    return _bytes_column([data[: WORD << bit] for bit in range(_LOGARITHM + 1)])


def _bytes_column(values: Sequence[bytes | memoryview]) -> pa.Array:
    offsets = numbers("i", accumulate(map(len, values), initial=0))
    data = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), data])


def _as_words(values: pa.Array) -> Words:
    return number_column(pa.uint64(), bytes_of(values))
