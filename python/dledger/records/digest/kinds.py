"""What values of a type are to the digest."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import pyarrow as pa


class Kind(Enum):
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


def kind_of(values: pa.DataType) -> Kind:
    """How values of this type are hashed.

    Raises:
        TypeError: they have no hash.
    """
    return _KNOWN.get(values.id) or _found(values)


def is_unsigned(kind: pa.DataType) -> bool:
    """Whether values of a fixed size are widened by zeros, which those of 8 bytes are not."""
    return bool(pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind))


def _found(values: pa.DataType) -> Kind:
    for fits, kind in _KINDS:
        if fits(values):
            _KNOWN[values.id] = kind
            return kind
    raise TypeError(f"values of type {values} have no hash")


def _is_fixed(values: pa.DataType) -> bool:
    return pa.types.is_primitive(values) and values.bit_width in {8, 16, 32, 64}


_BYTES: Final = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}
_KINDS: Final = [
    (pa.types.is_boolean, Kind.BOOL),
    (_BYTES.__contains__, Kind.BYTES),
    (_is_fixed, Kind.FIXED),
    (pa.types.is_decimal128, Kind.DECIMAL),
    (pa.types.is_struct, Kind.STRUCT),
    (pa.types.is_map, Kind.MAP),
    (pa.types.is_list, Kind.LIST),
]
_KNOWN: Final[dict[int, Kind]] = {}
"""By Arrow's number of a type, which is found faster than the type itself."""
