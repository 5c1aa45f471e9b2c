"""The same as `values` and `texts`, by the extension: each column is read once.

Hashes and sums are buffers with a word for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

import dledger.records.digest._native as _native
from dledger.records.digest.kinds import HashKind, is_unsigned, kind_of
from dledger.records.digest.mixing import NULL, salt_of

_WORD: Final = 8
_LARGE: Final = {pa.large_binary().id, pa.large_string().id}


def sum_of_rows(columns: Iterable[tuple[str, pa.Array]], count: int) -> int:
    """The sum of all rows' hashes."""
    return _native.sum_mixed(_sum_of_cells(columns, count))


def _sum_of_cells(columns: Iterable[tuple[str, pa.Array]], count: int) -> pa.Buffer:
    total = pa.allocate_buffer(_WORD * count)
    _native.start_sums(total)
    for name, column in columns:
        if column.null_count < count:
            _add(total, salt_of(name), column)
    return total


def _add(total: pa.Buffer, salt: int, column: pa.Array) -> None:
    kind, first = kind_of(column.type), column.offset
    valid, *parts = column.buffers()
    if not column.null_count:
        valid = None
    if kind is HashKind.FIXED:
        _native.add_cells(total, parts[0], _width(column), first, valid, first, salt)
    elif kind is HashKind.BYTES:
        offsets, data = parts
        size = _size_of_offsets(column)
        _native.add_bytes(total, offsets, size, first, data or b"", valid, first, salt)
    else:
        _native.add_cells(total, _HASHES[kind](column), _WORD, 0, valid, first, salt)


def _hashes(array: pa.Array) -> pa.Buffer:
    """The hash of each value."""
    count = len(array)
    if pa.types.is_null(array.type):
        return pa.py_buffer(NULL.to_bytes(_WORD, "little") * count)
    hashes = _HASHES[kind_of(array.type)]
    if not count:
        return b""
    found = hashes(array)
    if array.null_count:
        _native.hash_cells(found, _WORD, 0, array.buffers()[0], array.offset, found)
    return found


def _of_bools(array: pa.Array) -> pa.Buffer:
    return _of_fixed(array.cast(pa.uint8()))


def _of_fixed(array: pa.Array) -> pa.Buffer:
    found = _room(array)
    _native.hash_cells(array.buffers()[1], _width(array), array.offset, None, 0, found)
    return found


def hashes_of_bytes(array: pa.Array) -> pa.Buffer:
    """Of strings and binary values."""
    found = _room(array)
    _, offsets, data = array.buffers()
    _native.hash_bytes(offsets, _size_of_offsets(array), array.offset, data or b"", found)
    return found


def _of_decimals(array: pa.Array) -> pa.Buffer:
    found = _room(array)
    _native.hash_decimals(array.buffers()[1], array.offset, found)
    return found


def _of_structs(array: pa.StructArray) -> pa.Buffer:
    parts = zip(array.type, array.flatten(), strict=True)
    return _sum_of_cells(((field.name, part) for field, part in parts), len(array))


def _of_lists(array: pa.ListArray) -> pa.Buffer:
    found = _room(array)
    offsets, values = array.buffers()[1], array.values.slice(*_inside(array))
    _native.sum_lists(offsets, array.offset, _hashes(values), found)
    return found


def _of_maps(array: pa.MapArray) -> pa.Buffer:
    found, inside = _room(array), _inside(array)
    keys, items = (_hashes(part.slice(*inside)) for part in (array.keys, array.items))
    _native.sum_maps(array.buffers()[1], array.offset, keys, items, found)
    return found


def _inside(array: pa.Array) -> tuple[int, int]:
    """Which of all values the lists or maps have: the first, and how many."""
    offsets = memoryview(array.buffers()[1]).cast("i")
    first = offsets[array.offset]
    return first, offsets[array.offset + len(array)] - first


def _room(array: pa.Array) -> pa.Buffer:
    return pa.allocate_buffer(_WORD * len(array))


def _width(array: pa.Array) -> int:
    """Bytes of a value, negative where it has a sign."""
    size: int = array.type.bit_width // 8
    return size if is_unsigned(array.type) else -size


def _size_of_offsets(array: pa.Array) -> int:
    return 8 if array.type.id in _LARGE else 4


_HASHES: Final[dict[HashKind, Callable[[Any], pa.Buffer]]] = {
    HashKind.BOOL: _of_bools,
    HashKind.BYTES: hashes_of_bytes,
    HashKind.FIXED: _of_fixed,
    HashKind.DECIMAL: _of_decimals,
    HashKind.STRUCT: _of_structs,
    HashKind.MAP: _of_maps,
    HashKind.LIST: _of_lists,
}
