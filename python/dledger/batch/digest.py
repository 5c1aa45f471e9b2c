"""A digest of rows that does not depend on their order, or on how they are split over batches.

Each row has a 64-bit hash of its columns' names and values; the digest of a set of rows is the sum of their hashes,
modulo 2^64. A column in which all is null changes nothing, so rows keep their digest when a nullable column is added.
Whether a write that is run again has the same rows is a comparison of two counts and two digests: a difference goes
unseen with a probability of some 2^-64. It protects from accidents, not from somebody who looks for rows with equal
digests.

Nothing loops over rows. A value of up to 8 bytes is its bits; a longer one is a polynomial over its blocks of 64 bytes
(or words of 8), the last of which ends with the value and may overlap the one before. The digests are kept in the
catalog, so what a row hashes to must never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.checksum import crc32

Hashes = npt.NDArray[np.uint64]

MASK: Final = (1 << 64) - 1
BASE: Final = np.uint64(0x9E3779B97F4A7C15)
NULL: Final = np.uint64(0x2545F4914F6CDD1D)
BLOCK: Final = 64
WORD: Final = 8
LONG: Final = 64 * BLOCK
CLASSES: Final = (0, WORD, BLOCK, LONG + 1)
"""Lengths from which on a value is hashed in another way."""
AT_ONCE: Final = 1920
"""Blocks that are copied together: 120 KiB. From 128 KiB on, malloc(3) gives back to the kernel what is freed."""
FEW: Final = 16
"""So many values at most that are longer than `LONG`, the longest ones of a batch, are hashed by themselves: the loop
over blocks is as long as the longest of the rest."""


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
    total = np.full(batch.num_rows, BASE)
    for place in range(batch.num_columns) if columns is None else columns:
        _add_cells(total, batch.schema.field(place).name.lower(), batch.column(place))
    return int(_mix(total).sum(dtype=np.uint64))


def _add_cells(total: Hashes, name: str, column: pa.Array) -> None:
    """Add the hash of name and value to each row's; that of a null is 0, as if there was no such column."""
    if column.null_count < len(column):
        cells = _mix(_hashes(column) ^ _salt(name))
        if column.null_count:
            cells[column.is_null().to_numpy(zero_copy_only=False)] = 0
        total += cells


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
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), NULL)
    for fits, hashes in _KINDS:
        if fits(kind):
            found = hashes(array)
            break
    else:
        raise TypeError(f"values of type {kind} have no hash")
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), NULL, found)
    return found


def _of_bools(array: pa.Array) -> Hashes:
    return _of_fixed(array.cast(pa.uint8()))


def _of_fixed(array: pa.Array) -> Hashes:
    """Of values of 1, 2, 4 or 8 bytes: their bits, integers by their value."""
    size = array.type.bit_width // 8
    signed = "u" if pa.types.is_floating(array.type) or pa.types.is_unsigned_integer(array.type) else "i"
    bits = np.frombuffer(array.buffers()[1], f"<{signed}{size}", len(array), array.offset * size)
    return bits.astype(np.int64 if signed == "i" else np.uint64).view(np.uint64)


def _of_decimals(array: pa.Array) -> Hashes:
    words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), array.offset * 16).reshape(-1, 2)
    found: Hashes = _mix(words[:, 0] ^ BASE) + words[:, 1]
    return found


def _of_bytes(array: pa.Array) -> Hashes:
    """Of strings and binary values."""
    _, offsets, data = array.buffers()
    size = 8 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else 4
    if not len(array):
        return np.zeros(0, np.uint64)
    places = np.frombuffer(offsets, f"<i{size}", len(array) + 1, array.offset * size).astype(np.int64)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, lengths = places[:-1], np.diff(places)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for hashes, least, most in zip((_of_tails, _of_words, _of_blocks), CLASSES, CLASSES[1:], strict=False):
        if least <= shortest and longest < most:
            return hashes(bytes_, starts, lengths)
    many = longest > LONG and len(lengths) > FEW
    bounds = (*CLASSES[:-1], (max(LONG, int(np.partition(lengths, -FEW)[-FEW])) if many else LONG) + 1)
    found = np.empty(len(lengths), np.uint64)
    for hashes, least, most in zip((_of_tails, _of_words, _of_blocks), bounds, bounds[1:], strict=False):
        rows = np.flatnonzero((lengths >= least) & (lengths < most))
        if len(rows):
            found[rows] = hashes(bytes_, starts[rows], lengths[rows])
    for row in np.flatnonzero(lengths >= bounds[-1]):
        found[row] = _of_one(bytes_[starts[row] : starts[row] + lengths[row]])
    return found


_TAILS: Final = np.array([(1 << 8 * length) - 1 for length in range(WORD)], np.uint64)
"""The bits of a value of so many bytes."""


def _of_tails(data: npt.NDArray[np.uint8], starts: Any, lengths: Any) -> Hashes:
    """Values of less than 8 bytes: those, and nothing above them."""
    data = np.concatenate([data, np.zeros(WORD, np.uint8)])  # a word may be read at the last byte
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))[starts]
    words &= _TAILS[lengths]
    found = _mix(words)
    found += lengths.view(np.uint64)
    return found


def _of_words(data: npt.NDArray[np.uint8], starts: Any, lengths: Any) -> Hashes:
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
    return _polynomial(starts, lengths, WORD, lambda places: _mix(words[places]))


def _of_blocks(data: npt.NDArray[np.uint8], starts: Any, lengths: Any) -> Hashes:
    blocks = np.ndarray((len(data) - BLOCK + 1,), np.dtype((np.void, BLOCK)), data, strides=(1,))
    return _polynomial(starts, lengths, BLOCK, lambda places: _folded(blocks, places))


def _folded(blocks: npt.NDArray[np.void], places: Any) -> Hashes:
    """The blocks at these places, folded a few at a time: their copies then stay in memory that is in use already, and
    the kernel need not find new pages for each batch, which takes several times as long as all the rest."""
    found = np.empty(len(places), np.uint64)
    room = np.empty((min(AT_ONCE, len(places)), 8), np.uint64)
    for first in range(0, len(places), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        copies = blocks[places[some]].view("<u8").reshape(-1, 8)
        _fold(copies, room[: len(copies)], found[some])
    return found


def _polynomial(starts: Any, lengths: Any, size: int, at: Callable[[Any], Hashes]) -> Hashes:
    """``length * BASE^n + piece_1 * BASE^(n-1) + ... + mix(piece_n)``, Horner's way, with pieces of ``size`` bytes. The
    last one is mixed, because it may be the one before: twice the same linear term would lose its highest bit."""
    found: Hashes = lengths.astype(np.uint64)
    all_have = int(lengths.min()) // size
    for piece in range(all_have):
        found *= BASE
        found += at(starts + size * piece)
    most_have = int(lengths.max()) // size
    rows = np.arange(len(starts) if most_have > all_have else 0)
    for piece in range(all_have, most_have):
        rows = rows[lengths[rows] >= size * (piece + 1)]
        found[rows] = found[rows] * BASE + at(starts[rows] + size * piece)
    found *= BASE
    found += _mix(at(starts + lengths - size))
    return found


def _of_one(data: npt.NDArray[np.uint8]) -> int:
    """One long value, as `_of_blocks` has it."""
    count = len(data) // BLOCK
    pieces = _fold(np.frombuffer(data[: count * BLOCK].tobytes(), "<u8").reshape(-1, 8))
    last = _mix(_fold(np.frombuffer(data[-BLOCK:].tobytes(), "<u8").reshape(-1, 8)))
    powers = np.cumprod(np.full(count + 1, BASE))  # BASE^1 to BASE^(count + 1)
    found = int((pieces * powers[:count][::-1]).sum(dtype=np.uint64)) + len(data) * int(powers[count])
    return (found + int(last[0])) & MASK


def _fold(blocks: Hashes, room: Hashes | None = None, into: Hashes | None = None) -> Hashes:
    """Eight words to one; their upper halves count below as well, where a product would lose them."""
    mixed = np.right_shift(blocks, np.uint64(32), out=room)
    mixed ^= blocks
    folded: Hashes = np.matmul(mixed, _weights(8), out=into)
    return folded


def _of_structs(array: pa.StructArray) -> Hashes:
    total = np.zeros(len(array), np.uint64)
    for field, part in zip(array.type, array.flatten(), strict=True):
        _add_cells(total, field.name, part)
    return total


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
