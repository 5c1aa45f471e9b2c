"""The bytes of texts and binary values as whole numbers, for arithmetic on all of them at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dledger.records.columns.arrays import number, number_column, offsets_of, repeated


def cut_into_words(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The lengths of values in bytes (int32); their whole words, those of all values one behind the
    other; and for each value the bytes behind its last whole word, as a word.

    What stands at the place of a null is cut as other values are.

    Args:
        array: texts or binary values with less than 2 GiB.
        kind: of words, an unsigned type. The first byte is the lowest one.
    """
    offsets, data = offsets_of(array), array.buffers()[2]
    data = data.slice(offsets[0].as_py()) if data else pa.py_buffer(b"")
    offsets = pc.subtract(offsets, offsets[0]).cast(pa.int32())
    ends = offsets.slice(1)
    lengths = pc.subtract(ends, offsets.slice(0, len(ends)))
    size = kind.bit_width // 8
    cuts = pc.subtract(ends, pc.bit_wise_and(lengths, number(pa.int32(), size - 1)))
    pieces = _pieces(cuts, ends, data)
    whole, rests = (pieces.filter(alternating(len(pieces), first)) for first in (True, False))
    rests = pc.ascii_rpad(rests, size, padding="\0")
    return lengths, number_column(kind, bytes_of(whole)), number_column(kind, bytes_of(rests))


def _pieces(cuts: pa.Array, ends: pa.Array, data: pa.Buffer) -> pa.Array:
    """Values that end at each cut and at each end in turn, in the type that can be padded."""
    bounds = pc.shift_left(ends.cast(pa.uint64()), number(pa.uint64(), 32))
    bounds = pc.bit_wise_or(bounds, cuts.cast(pa.uint64()))  # its lower half, so that it lies first
    bounds = pa.concat_arrays([repeated(pa.uint64(), 0, 1), bounds]).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2 * len(ends), [None, bounds, data], 0, 1)


def alternating(count: int, first: bool) -> pa.Array:
    """``first``, its opposite, and so on: so many booleans."""
    bits = pa.py_buffer((b"\x55" if first else b"\xaa") * (-(-count // 8)))
    return pa.Array.from_buffers(pa.bool_(), count, [None, bits])


def bytes_of(values: pa.Array) -> pa.Buffer:
    """Of all values of a new array, one behind the other."""
    return values.buffers()[2] or pa.py_buffer(b"")
