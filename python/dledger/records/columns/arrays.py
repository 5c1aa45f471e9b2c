"""Arrow arrays by their buffers: numbers into a column and out of it without a copy.

Python's numbers go into Arrow by their bytes, never by ``pa.array`` or ``pa.scalar``: the first
call of these imports pandas where it is installed, half a second of every worker's start.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dledger.types import Buffer

_FEW: Final = 128
"""So many numbers are made sooner by Python than by Arrow."""
_KEPT: Final = 1 << 17
"""So many numbers from 0 on are kept at most: 1 MiB."""
_FORMATS: Final[dict[int, Literal["b", "h", "i", "q"]]] = {1: "b", 2: "h", 4: "i", 8: "q"}


def number_column(kind: pa.DataType, values: Buffer | array[int]) -> pa.Array:
    """A column without nulls over the memory of these numbers.

    Args:
        kind: a type of 1, 2, 4 or 8 bytes a value; times and the like too.
        values: the bytes of such numbers, as any buffer.
    """
    data = pa.py_buffer(values)
    return pa.Array.from_buffers(kind, data.size * 8 // kind.bit_width, [None, data])


def number(kind: pa.DataType, value: int) -> pa.Scalar:
    """A whole number of this type; a negative one of an unsigned type counts modulo its range."""
    return repeated(kind, value, 1)[0]


def repeated(kind: pa.DataType, value: int, count: int) -> pa.Array:
    """The same number for each row; ``pa.repeat`` takes ten times as long."""
    bits = kind.bit_width
    data = (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little") * count
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def counting(start: int, count: int) -> pa.Array:
    """``start``, ``start + 1`` and so on, as int64."""
    if count <= _FEW:
        return number_column(pa.int64(), array("q", range(start, start + count)))
    if count > _KEPT:
        counted = _from_zero(count)
    else:
        counted = _kept_from_zero(1 << (count - 1).bit_length()).slice(0, count)
    return pc.add(counted, number(pa.int64(), start)) if start else counted


def _from_zero(count: int) -> pa.Array:
    ones = pa.py_buffer(b"\xff" * (-(-count // 8)))
    bits = pa.Array.from_buffers(pa.bool_(), count, [None, ones])
    return pc.indices_nonzero(bits).view(pa.int64())


_kept_from_zero: Final = cache(_from_zero)


def numbers_of(column: pa.Array) -> memoryview:
    """The values of a column of whole numbers or times, without a copy, by their places.

    What stands at the place of a null is not said. Values of 8 bytes or less are read with a sign,
    whatever their type says.
    """
    size = column.type.bit_width // 8
    data = column.buffers()[1]
    first = column.offset * size
    return memoryview(data or b"")[first : first + len(column) * size].cast(_FORMATS[size])


def offsets_of(column: pa.Array) -> pa.Array:
    """Where each value of a column of texts, binary values, lists or maps begins among all values,
    and where the last one ends: one more than rows, without a copy. They are int64 for the large
    types, and else int32."""
    kind = pa.int64() if str(column.type).startswith("large_") else pa.int32()
    data = column.buffers()[1]
    if not data:  # a column without rows may have none
        data = pa.py_buffer(bytes(8))
    return pa.Array.from_buffers(kind, len(column) + 1, [None, data], 0, column.offset)
