"""A hash of 64 bits for each value of an Arrow array, by its type.

No loop goes over values. A number is its bits; nested values are sums of what they contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.checksum import crc32
from dledger.records.digest import mixing
from dledger.records.digest.mixing import BASE, NULL, Hashes, carried, mix, weights
from dledger.records.digest.texts import hashes_of_bytes


def sum_of_cells(columns: Iterable[tuple[str, pa.Array]], count: int) -> Hashes:
    """The sum of all columns' hashes of name and value for each row; that of a null is 0, as if
    there was no such column."""
    total = np.full(count, BASE)
    for name, column in columns:
        if column.null_count < count:
            (_add_by_numpy if mixing.native is None else _add_by_native)(total, _salt(name), column)
    return total


def _add_by_numpy(total: Hashes, salt: np.uint64, column: pa.Array) -> None:
    cells = carried(_hashes_of(column.type)(column))
    cells *= salt | np.uint64(1)
    cells += salt
    if column.null_count:
        cells[column.is_null().to_numpy(zero_copy_only=False)] = 0
    total += cells


def _add_by_native(total: Hashes, salt: np.uint64, column: pa.Array) -> None:
    assert mixing.native is not None
    kind, bits = column.type, column.buffers()
    valid = bits[0] if column.null_count else None
    if _is_fixed(kind):
        size = kind.bit_width // 8
        signed = size if _is_unsigned(kind) else -size
        mixing.native.add_cells(
            total, bits[1], signed, column.offset, valid, column.offset, int(salt)
        )
    else:
        mixing.native.add_cells(
            total, _hashes_of(kind)(column), 8, 0, valid, column.offset, int(salt)
        )


@cache
def _salt(name: str) -> np.uint64:
    return np.uint64(mix(np.array([crc32(name.encode()) + 1], np.uint64))[0])


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
    signed = "u" if _is_unsigned(array.type) else "i"
    bits = np.frombuffer(array.buffers()[1], f"<{signed}{size}", len(array), array.offset * size)
    return bits.astype(np.int64 if signed == "i" else np.uint64, copy=False).view(np.uint64)


def _of_decimals(array: pa.Array) -> Hashes:
    words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), array.offset * 16).reshape(
        -1, 2
    )
    found: Hashes = mix(words[:, 0] ^ BASE) + words[:, 1]
    return found


def _of_structs(array: pa.StructArray) -> Hashes:
    parts = zip(array.type, array.flatten(), strict=True)
    return sum_of_cells(((field.name, part) for field, part in parts), len(array))


def _of_lists(array: pa.ListArray) -> Hashes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    first = int(offsets[0])
    values = mix(_hashes(array.values.slice(first, int(offsets[-1]) - first)))
    within = np.arange(len(values)) - np.repeat(offsets[:-1] - first, lengths)
    return _sums(
        values * weights(1 << int(lengths.max(initial=1)).bit_length())[within], offsets - first
    )


def _of_maps(array: pa.MapArray) -> Hashes:
    """The order of a map's entries does not count."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = array.keys.slice(first, count), array.items.slice(first, count)
    return _sums(mix(mix(_hashes(keys) ^ BASE) + _hashes(items)), offsets - first)


def _sums(values: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """Of the values between two offsets each, and how many they are."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    found: Hashes = sums[offsets[1:]] - sums[offsets[:-1]] + np.diff(offsets).astype(np.uint64)
    return found


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and kind.bit_width in {8, 16, 32, 64}


def _is_unsigned(kind: pa.DataType) -> bool:
    """Whether values are widened by zeros, which those of 8 bytes are not."""
    return bool(pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind))


_BYTES: Final = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}
_KINDS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Hashes]]]] = [
    (pa.types.is_boolean, _of_bools),
    (_BYTES.__contains__, hashes_of_bytes),
    (_is_fixed, _of_fixed),
    (pa.types.is_decimal128, _of_decimals),
    (pa.types.is_struct, _of_structs),
    (pa.types.is_map, _of_maps),
    (pa.types.is_list, _of_lists),
]
