"""A digest of rows that does not depend on their order, or on how they are split over batches.

Each row has a 64-bit hash of its columns' names and values; the digest of a set of rows is the sum of their hashes,
modulo 2^64. A column in which all is null changes nothing, so rows keep their digest when a nullable column is added.
Whether a write that is run again has the same rows is a comparison of two counts and two digests: a difference goes
unseen with a probability of some 2^-64. It protects from accidents, not from somebody who looks for rows with equal
digests.

Nothing loops over rows. A number is its bits; a text is a polynomial over blocks of 8-byte words, whose sizes are
powers of 2 and decrease, and its last few bytes. A row is the sum of its columns, each multiplied by a number that is
made of its name, and then mixed. The digests are kept in the catalog, so what a row hashes to must never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.checksum import crc32

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

MASK: Final = (1 << 64) - 1
BASE: Final = np.uint64(0x9E3779B97F4A7C15)
NULL: Final = np.uint64(0x2545F4914F6CDD1D)
WORD: Final = 8
WORDS: Final = np.dtype("<u8")
MOST: Final = 4096
"""Words of a block."""
AT_ONCE: Final = 15_360
"""Words that are copied together: 120 KiB. From 128 KiB on, malloc(3) gives back to the kernel what is freed."""
HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class RowsSum:
    """How many rows there are, and their digest, as a number of 64 bits."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: RowsSum) -> RowsSum:
        """Of the rows of both."""
        return RowsSum(self.count + other.count, (self.digest + other.digest) & MASK)


def sum_rows(batch: pa.RecordBatch, columns: Iterable[int] | None = None) -> RowsSum:
    """Count and digest of a batch; the arguments are those of `digest`."""
    return RowsSum(batch.num_rows, digest(batch, columns))


def digest(batch: pa.RecordBatch, columns: Iterable[int] | None = None) -> int:
    """The digest of a batch's rows, by all columns or by those at these places.

    Args:
        batch: of any types that a topic can have.
        columns: places of columns; their names count in lower case, their order does not.

    Raises:
        TypeError: a column's type has no hash.
    """
    places = range(batch.num_columns) if columns is None else columns
    cells = ((batch.schema.field(place).name.lower(), batch.column(place)) for place in places)
    return int(_mix(_sum_of_cells(cells, batch.num_rows)).sum(dtype=np.uint64))


def _sum_of_cells(columns: Iterable[tuple[str, pa.Array]], count: int) -> Hashes:
    """The sum of all columns' hashes of name and value for each row; that of a null is 0, as if there was no such
    column."""
    total, of_all_rows = np.zeros(count, np.uint64), int(BASE)
    for name, column in columns:
        if column.null_count < count:
            salt = _salt(name)
            cells = _carried(_hashes(column))
            cells *= salt | np.uint64(1)
            if column.null_count:
                cells += salt
                cells[column.is_null().to_numpy(zero_copy_only=False)] = 0
            else:
                of_all_rows += int(salt)
            total += cells
    total += np.uint64(of_all_rows & MASK)
    return total


def _carried(words: Hashes, into: Hashes | None = None) -> Hashes:
    """Each word with its upper half in its lower one as well: multiplied by whatever it is, no bit of it is lost."""
    carried: Hashes = np.right_shift(words, HALF, out=into)
    carried ^= words
    return carried


def _mix(hashes: Hashes) -> Hashes:
    """The finalizer of splitmix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators, 2014)."""
    mixed = hashes >> np.uint64(30)
    mixed ^= hashes
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@cache
def _salt(name: str) -> np.uint64:
    return np.uint64(_mix(np.array([crc32(name.encode()) + 1], np.uint64))[0])


@cache
def _weights(count: int) -> Hashes:
    """Odd numbers, one for each place in a block or a list; more of them begin with the same."""
    return _mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


def _hashes(array: pa.Array) -> Hashes:
    """The hash of each value."""
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL)
    found = _hashes_of(array.type)(array)
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), NULL, found)
    return found


@lru_cache(256)
def _hashes_of(kind: pa.DataType) -> Callable[[Any], Hashes]:
    """How values of this type are hashed."""
    for fits, hashes in _KINDS:
        if fits(kind):
            return hashes
    raise TypeError(f"values of type {kind} have no hash")


def _of_bools(array: pa.Array) -> Hashes:
    return _of_fixed(array.cast(pa.uint8()))


def _of_fixed(array: pa.Array) -> Hashes:
    """Of values of 1, 2, 4 or 8 bytes: their bits, integers by their value."""
    size = array.type.bit_width // 8
    signed = "u" if pa.types.is_floating(array.type) or pa.types.is_unsigned_integer(array.type) else "i"
    bits = np.frombuffer(array.buffers()[1], f"<{signed}{size}", len(array), array.offset * size)
    return bits.astype(np.int64 if signed == "i" else np.uint64, copy=False).view(np.uint64)


def _of_decimals(array: pa.Array) -> Hashes:
    words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), array.offset * 16).reshape(-1, 2)
    found: Hashes = _mix(words[:, 0] ^ BASE) + words[:, 1]
    return found


def _of_bytes(array: pa.Array) -> Hashes:
    """Of strings and binary values: ``length * BASE^(n+1) + block_1 * BASE^n + ... + block_n * BASE + rest``.

    A value of ``w`` whole words has ``w // MOST`` blocks of ``MOST`` words, and then one for each power of 2 that the
    rest of ``w`` is made of, the largest first. What is left over is less than a word.
    """
    if not len(array):
        return np.zeros(0, np.uint64)
    _, offsets, buffer = array.buffers()
    size = 8 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else 4
    bounds = np.frombuffer(offsets, f"<i{size}", len(array) + 1, array.offset * size).astype(np.int64)
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    if bounds[1] < WORD:  # the word that ends with a value would begin before the first byte
        data = np.concatenate([np.zeros(WORD, np.uint8), data])
        bounds += WORD
    lengths = np.diff(bounds)
    length = int(lengths[0])
    if 0 < length < MOST * WORD and (lengths == length).all():
        return _of_one_length(data, int(bounds[0]), length, len(array))
    return _of_lengths(data, bounds[:-1], lengths)


def _of_one_length(data: Bytes, start: int, length: int, count: int) -> Hashes:
    """Values of one length, one behind the other: all blocks of one are one, whose weights have the powers of BASE."""
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
    powered = [_weights(size) * np.uint64(pow(int(BASE), power, MASK + 1)) for power, size in enumerate(sizes, 1)]
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
"""Bits of the last word that are not of the rest, where that has so many bytes; a shift by 64 leaves 0."""


def _add_blocks(found: Hashes, chosen: npt.NDArray[np.bool_], data: Bytes, places: Ints, size: int) -> None:
    """Go on to the next power of BASE, add the block of so many words at each of these places that is chosen, and go on
    to the place behind it."""
    blocks = np.ndarray((len(data) - size * WORD + 1,), np.dtype((np.void, size * WORD)), data, strides=(1,))
    if chosen.all():
        found *= BASE
        found += _folded(lambda some: blocks[places[some]], len(places), _weights(size))
        places += size * WORD
    else:
        rows = np.flatnonzero(chosen)
        at = places[rows]
        found[rows] = found[rows] * BASE + _folded(lambda some: blocks[at[some]], len(rows), _weights(size))
        places[rows] = at + size * WORD


def _folded(copied: Callable[[slice], npt.NDArray[np.void]], count: int, weights: Hashes) -> Hashes:
    """Blocks to one word each, some at a time: their copies then stay in memory that is used already, and the kernel
    need not find new pages for each batch, which takes several times as long as the rest."""
    step = max(1, AT_ONCE // len(weights))
    found = np.empty(count, np.uint64)
    room = np.empty((min(step, count), len(weights)), np.uint64)
    for first in range(0, count, step):
        some = slice(first, first + step)
        words = copied(some).view(WORDS).reshape(-1, len(weights))
        np.matmul(_carried(words, room[: len(words)]), weights, out=found[some])
    return found


def _of_structs(array: pa.StructArray) -> Hashes:
    parts = zip(array.type, array.flatten(), strict=True)
    return _sum_of_cells(((field.name, part) for field, part in parts), len(array))


def _of_lists(array: pa.ListArray) -> Hashes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    first = int(offsets[0])
    values = _mix(_hashes(array.values.slice(first, int(offsets[-1]) - first)))
    within = np.arange(len(values)) - np.repeat(offsets[:-1] - first, lengths)
    return _sums(values * _weights(1 << int(lengths.max(initial=1)).bit_length())[within], offsets - first)


def _of_maps(array: pa.MapArray) -> Hashes:
    """The order of a map's entries does not count."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = array.keys.slice(first, count), array.items.slice(first, count)
    return _sums(_mix(_mix(_hashes(keys) ^ BASE) + _hashes(items)), offsets - first)


def _sums(values: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """Of the values between two offsets each, and how many they are."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    found: Hashes = sums[offsets[1:]] - sums[offsets[:-1]] + np.diff(offsets).astype(np.uint64)
    return found


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and kind.bit_width in {8, 16, 32, 64}


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (
        pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary,
    ))  # fmt: skip


_KINDS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Hashes]]]] = [
    (pa.types.is_boolean, _of_bools),
    (_is_bytes, _of_bytes),
    (_is_fixed, _of_fixed),
    (pa.types.is_decimal128, _of_decimals),
    (pa.types.is_struct, _of_structs),
    (pa.types.is_map, _of_maps),
    (pa.types.is_list, _of_lists),
]

__all__ = ["RowsSum", "digest", "sum_rows"]
