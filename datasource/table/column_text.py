"""Columns as a text, such as SQL has them. Spark's own parser of such texts needs its JVM."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_SIMPLE: Final = (
    BinaryType(),
    BooleanType(),
    DoubleType(),
    IntegerType(),
    LongType(),
    StringType(),
    TimestampType(),
)
_TYPES: Final[dict[str, DataType]] = {kind.simpleString(): kind for kind in _SIMPLE}


def columns(text: str) -> StructType:
    """``topic string, partition int``: nullable columns of these names and types. Of the nested
    types it knows arrays, structs, and maps of strings."""
    return StructType(
        [StructField(name, _type(kind)) for name, kind in (c.split(" ") for c in text.split(", "))]
    )


def _type(text: str) -> DataType:
    outer, _, inner = text.removesuffix(">").partition("<")
    match outer:
        case "array":
            return ArrayType(_type(inner))
        case "map":
            key, value = map(_type, inner.split(","))
            return MapType(key, value)
        case "struct":
            return columns(inner.replace(":", " ").replace(",", ", "))
    return _TYPES[text]
