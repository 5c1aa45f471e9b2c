"""Whether the values of a batch from a stranger are sound: offsets that rise within their data, and
text that is UTF-8.

Arrow's own full validation looks at one value at a time, which costs more than all else that a
reader does with columns of text. Text in ASCII, without nulls, is found sound by looking at whole
columns; everything else is left to Arrow.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.compiled import compiled
from dledger.types import Buffer

_WIDTHS: Final[dict[pa.DataType, int]] = {pa.string(): 4, pa.large_string(): 8}
"""Bytes of an offset."""
_NUMBERS: Final = {4: pa.int32(), 8: pa.int64()}


def check_values(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid: a value would be read from outside of its buffers, or is not of its
    type."""
    batch.validate()  # sizes of buffers, and each column's first and last offset
    for column in batch.columns:
        if not _is_plain(column):
            column.validate(full=True)


def _is_plain(column: pa.Array) -> bool:
    """Whether the values are text in ASCII with rising offsets and without nulls."""
    width = _WIDTHS.get(column.type)
    if width is None or not len(column):
        return False
    nulls, offsets, data = column.buffers()
    if nulls is not None or data is None:
        return False
    return is_ascii(offsets, data, width, column.offset, len(column))


@compiled
def is_ascii(offsets: Buffer, data: Buffer, width: int, first: int, rows: int) -> bool:
    """Whether texts are ASCII, and their offsets rise within their bytes.

    Args:
        width: bytes of an offset, 4 or 8.
        first: the place of the first offset.

    Raises:
        ValueError: there are fewer offsets.
    """
    there = len(memoryview(offsets)) // width if width in _NUMBERS else 0
    if not (0 <= first < there and 0 <= rows < there - first):
        raise ValueError("offsets that lead out of their bytes")
    stored = [None, pa.py_buffer(offsets)]
    places = pa.Array.from_buffers(_NUMBERS[width], rows + 1, stored, offset=first)
    start, end, text = places[0].as_py(), places[rows].as_py(), memoryview(data)
    rise = pc.less_equal(places.slice(0, rows), places.slice(1))
    if start < 0 or end > len(text) or pc.any(pc.invert(rise)).as_py():
        return False
    return text[start:end].tobytes().isascii()
