"""Whether the values of a batch from a stranger are sound: offsets that rise within their data, and
text that is UTF-8.

Arrow's own full validation looks at one value at a time, which costs more than all else that a
reader does with columns of text. Text in ASCII, without nulls, is found sound by looking at whole
columns; everything else is left to Arrow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_NOT_ASCII: Final = np.uint64(0x8080808080808080)
_WORD: Final = 8
_OFFSETS: Final[dict[pa.DataType, type[np.signedinteger]]] = {
    pa.string(): np.int32,
    pa.large_string(): np.int64,
}


def check_values(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid: a value would be read from outside of its buffers, or is not of its
    type."""
    batch.validate()  # sizes of buffers, and each column's first and last offset
    for column in batch.columns:
        if not _is_plain(column):
            column.validate(full=True)


def _is_plain(column: pa.Array) -> bool:
    """Whether the values are text in ASCII with rising offsets and without nulls."""
    kind = _OFFSETS.get(column.type)
    if kind is None or not len(column):
        return False
    nulls, starts, data = column.buffers()
    if nulls is not None or data is None:
        return False
    first = column.offset * np.dtype(kind).itemsize
    offsets = np.frombuffer(starts, kind, len(column) + 1, first)
    if np.any(offsets[1:] < offsets[:-1]):
        return False
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    whole = len(text) // _WORD * _WORD
    words = np.bitwise_or.reduce(text[:whole].view(np.uint64), initial=np.uint64(0))
    return not words & _NOT_ASCII and not np.any(text[whole:] & 0x80)
