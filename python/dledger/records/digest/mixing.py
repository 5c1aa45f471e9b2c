"""The arithmetic of digests, on words of 64 bits, modulo 2^64."""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dledger.checksum import crc32
from dledger.records.columns.arrays import counting, number, number_column

Words: TypeAlias = pa.Array
"""Of uint64, without nulls. Arrow's functions calculate modulo 2^64 on them."""

MASK: Final = (1 << 64) - 1
BASE: Final = 0x9E3779B97F4A7C15
NULL: Final = 0x2545F4914F6CDD1D
FIRST: Final = 0xBF58476D1CE4E5B9
SECOND: Final = 0x94D049BB133111EB


def word(value: int) -> pa.Scalar:
    """A number modulo 2^64."""
    return number(pa.uint64(), value)


def word_column(*values: int) -> Words:
    """These numbers modulo 2^64."""
    data = b"".join((value & MASK).to_bytes(8, "little") for value in values)
    return number_column(pa.uint64(), data)


_SHIFTS: Final = {bits: word(bits) for bits in (27, 30, 31, 32)}
_FACTORS: Final = word(FIRST), word(SECOND)


def folded(words: Words, bits: int) -> Words:
    """Each word, xor itself shifted to the right."""
    return pc.bit_wise_xor(words, pc.shift_right(words, _SHIFTS[bits]))


def carried(words: Words) -> Words:
    """Each word with its upper half in its lower one as well: no bit of it is lost by a later
    multiplication."""
    return folded(words, 32)


def mix(words: Words) -> Words:
    """The finalizer of splitmix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number
    Generators, 2014)."""
    mixed = pc.multiply(folded(words, 30), _FACTORS[0])
    mixed = pc.multiply(folded(mixed, 27), _FACTORS[1])
    return folded(mixed, 31)


def mixed_one(value: int) -> int:
    """`mix` of one number."""
    value = (value ^ value >> 30) * FIRST & MASK
    value = (value ^ value >> 27) * SECOND & MASK
    return value ^ value >> 31


@cache
def salt_of(name: str) -> int:
    """The number that is made of a column's name."""
    return mixed_one(crc32(name.encode()) + 1)


@cache
def weights(count: int) -> Words:
    """Odd numbers, one for each place in a block or a list; more of them begin with the same."""
    return pc.bit_wise_or(mix(counting(1, count).view(pa.uint64())), word(1))


def sums_between(words: Words, offsets: pa.Array) -> Words:
    """The sum of the words between two offsets each."""
    sums = pa.concat_arrays([word_column(0), pc.cumulative_sum(words)]).take(offsets)
    return pc.subtract(sums.slice(1), sums.slice(0, len(sums) - 1))
