"""Arrow arrays by their buffers: into numpy and out of it without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def number_column(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """A column over numpy's own memory. Not by ``pa.array``: its first call imports pandas, half a
    second of every worker's start."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def binary_parts(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (rows + 1) and bytes of a binary column, without a copy."""
    _, offsets, data = column.buffers()
    places = (
        np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
        if offsets
        else np.zeros(1, np.int32)
    )
    return places, np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
