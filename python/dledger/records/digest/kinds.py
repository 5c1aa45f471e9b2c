"""What values of a type are to the digest."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import pyarrow as pa


class HashKind(Enum):
    """Types whose values are hashed in the same way."""

    BOOL = auto()
    BYTES = auto()
    """Strings and binary values."""
    FIXED = auto()
    """1, 2, 4 or 8 bytes."""
    DECIMAL = auto()
    STRUCT = auto()
    MAP = auto()
    LIST = auto()


def kind_of(values: pa.DataType) -> HashKind:
    """How values of this type are hashed.

    Raises:
        TypeError: they have no hash.
    """
    return _KNOWN.get(values.id) or _found(values)


def is_unsigned(kind: pa.DataType) -> bool:
    """Whether values of a fixed size are widened by zeros, which those of 8 bytes are not."""
    return bool(pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind))


def _found(values: pa.DataType) -> HashKind:
    for fits, kind in _KINDS:
        if fits(values):
            _KNOWN[values.id] = kind
            return kind
    raise TypeError(f"values of type {values} have no hash")


def _is_fixed(values: pa.DataType) -> bool:
    return pa.types.is_primitive(values) and values.bit_width in {8, 16, 32, 64}


_BYTES: Final = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}
_KINDS: Final = [
    (pa.types.is_boolean, HashKind.BOOL),
    (_BYTES.__contains__, HashKind.BYTES),
    (_is_fixed, HashKind.FIXED),
    (pa.types.is_decimal128, HashKind.DECIMAL),
    (pa.types.is_struct, HashKind.STRUCT),
    (pa.types.is_map, HashKind.MAP),
    (pa.types.is_list, HashKind.LIST),
]
_KNOWN: Final[dict[int, HashKind]] = {}
"""By Arrow's number of a type, which is found faster than the type itself."""
