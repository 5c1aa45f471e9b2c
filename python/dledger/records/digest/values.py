"""A hash of 64 bits for each value of an Arrow array, by its type.

No loop goes over values. A number is its bits; nested values are sums of what they contain. The
extension has the same for all of this in `natively`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.records.columns.arrays import counting, offsets_of, repeated
from dledger.records.columns.words import alternating
from dledger.records.digest.kinds import HashKind, is_unsigned, kind_of
from dledger.records.digest.mixing import (
    BASE,
    NULL,
    Words,
    carried,
    mix,
    salt_of,
    sums_between,
    weights,
    word,
    word_column,
)
from dledger.records.digest.texts import hashes_of_bytes

_SIGNED: Final = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_UNSIGNED: Final = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


def sum_of_rows(columns: Iterable[tuple[str, pa.Array]], count: int) -> int:
    """The sum of all rows' hashes."""
    return pc.sum(mix(sum_of_cells(columns, count))).as_py() or 0  # that of no rows is null


def sum_of_cells(columns: Iterable[tuple[str, pa.Array]], count: int) -> Words:
    """The sum of all columns' hashes of name and value for each row; that of a null is 0, as if
    there was no such column."""
    total = repeated(pa.uint64(), BASE, count)
    for name, column in columns:
        if column.null_count < count:
            salt = salt_of(name)
            cells = pc.multiply(carried(_of_values(column)), word(salt | 1))
            total = pc.add(total, _with(0, column, pc.add(cells, word(salt))))
    return total


def _with(of_null: int, array: pa.Array, words: Words) -> Words:
    """The words of the array's values, and this one for each null."""
    return pc.if_else(array.is_valid(), words, word(of_null)) if array.null_count else words


def _hashes(array: pa.Array) -> Words:
    """The hash of each value."""
    if pa.types.is_null(array.type):
        return repeated(pa.uint64(), NULL, len(array))
    return _with(NULL, array, _of_values(array))


def _of_values(array: pa.Array) -> Words:
    """The hash of each value that is not null."""
    return _HASHES[kind_of(array.type)](array) if len(array) else word_column()


def _of_bools(array: pa.Array) -> Words:
    return _of_fixed(array.cast(pa.uint8()))


def _of_fixed(array: pa.Array) -> Words:
    """Of values of 1, 2, 4 or 8 bytes: their bits, integers by their value."""
    unsigned, size = is_unsigned(array.type), array.type.bit_width // 8
    bits = pa.Array.from_buffers(
        (_UNSIGNED if unsigned else _SIGNED)[size],
        len(array),
        [None, array.buffers()[1]],
        0,
        array.offset,
    )
    return bits.cast(pa.uint64() if unsigned else pa.int64()).view(pa.uint64())


def _of_decimals(array: pa.Array) -> Words:
    words = pa.Array.from_buffers(
        pa.uint64(), 2 * len(array), [None, array.buffers()[1]], 0, 2 * array.offset
    )
    low, high = (words.filter(alternating(len(words), first)) for first in (True, False))
    return pc.add(mix(pc.bit_wise_xor(low, word(BASE))), high)


def _of_structs(array: pa.StructArray) -> Words:
    parts = zip(array.type, array.flatten(), strict=True)
    return sum_of_cells(((field.name, part) for field, part in parts), len(array))


def _of_lists(array: pa.ListArray) -> Words:
    offsets, first, count = _bounds(array)
    values = mix(_hashes(array.values.slice(first, count)))
    lists = pa.ListArray.from_arrays(offsets, values)
    starts = offsets.take(pc.list_parent_indices(lists)).cast(pa.int64())
    longest = pc.max(pc.list_value_length(lists)).as_py()
    placed = weights(1 << longest.bit_length()).take(pc.subtract(counting(0, count), starts))
    return _sums(pc.multiply(values, placed), offsets)


def _of_maps(array: pa.MapArray) -> Words:
    """The order of a map's entries does not count."""
    offsets, first, count = _bounds(array)
    keys, items = (_hashes(part.slice(first, count)) for part in (array.keys, array.items))
    return _sums(mix(pc.add(mix(pc.bit_wise_xor(keys, word(BASE))), items)), offsets)


def _bounds(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets from the first value of all on; and which values these are: the first, and how
    many."""
    offsets = offsets_of(array)
    first = offsets[0].as_py()
    return pc.subtract(offsets, offsets[0]), first, offsets[-1].as_py() - first


def _sums(words: Words, offsets: pa.Array) -> Words:
    """Of the words between two offsets each, and how many they are."""
    lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    return pc.add(sums_between(words, offsets), lengths.cast(pa.uint64()))


_HASHES: Final[dict[HashKind, Callable[[Any], Words]]] = {
    HashKind.BOOL: _of_bools,
    HashKind.BYTES: hashes_of_bytes,
    HashKind.FIXED: _of_fixed,
    HashKind.DECIMAL: _of_decimals,
    HashKind.STRUCT: _of_structs,
    HashKind.MAP: _of_maps,
    HashKind.LIST: _of_lists,
}
