"""The columns of a typed topic for an Arrow schema, or for a dataclass."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from dledger.errors import ConfigError
from dledger.interrupts import is_interrupt
from dledger.records.body.schema import TIMESTAMP
from dledger.records.columns.types import MAX_PRECISION, Columns, build

_IS: Final = pa.types
_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.date64(): "date",
}
"""Spark has no unsigned numbers: the next wider type holds them."""
_KINDS: Final = (
    ((_IS.is_string, _IS.is_large_string, _IS.is_string_view), "string"),
    (
        (_IS.is_binary, _IS.is_large_binary, _IS.is_binary_view, _IS.is_fixed_size_binary),
        "binary",
    ),
    ((_IS.is_time,), "time(6)"),
    ((_IS.is_duration,), "interval day to second"),
)
_LISTS: Final = (
    _IS.is_list,
    _IS.is_large_list,
    _IS.is_fixed_size_list,
    _IS.is_list_view,
    _IS.is_large_list_view,
)
_OF_PYTHON: Final[Mapping[Any, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: TIMESTAMP,
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
    Decimal: pa.decimal128(MAX_PRECISION, 18),
}


def columns_of(schema: pa.Schema, key: str = "", time: str = "") -> Columns:
    """The columns of a topic that holds tables of an Arrow schema. A dictionary is its values, and
    an extension type what it is stored as.

    Raises:
        ConfigError: a column cannot be carried, or the key or time column cannot be one.
    """
    return build([_field(field, "") for field in schema], key, time)


def _field(field: pa.Field, path: str) -> dict[str, Any]:
    kind = _type(field.type, f"{path}{field.name}")
    return {"name": field.name, "type": kind, "nullable": field.nullable}


def _type(kind: pa.DataType, path: str) -> Any:
    """The type as Spark's JSON has it."""
    if kind in _NAMES:
        return _NAMES[kind]
    for tests, name in _KINDS:
        if any(is_it(kind) for is_it in tests):
            return name
    if _IS.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if _IS.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_PRECISION:
        return f"decimal({kind.precision},{kind.scale})"
    if _IS.is_dictionary(kind):
        return _type(kind.value_type, path)
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, path)
    if _IS.is_struct(kind):
        return {
            "type": "struct",
            "fields": [_field(kind.field(i), f"{path}.") for i in range(kind.num_fields)],
        }
    if any(is_it(kind) for is_it in _LISTS):
        element = _type(kind.value_type, f"{path}[]")
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    if _IS.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, f"{path}.key"),
            "valueType": _type(kind.item_type, f"{path}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    raise ConfigError(
        f"column {path!r} has the Arrow type {kind}, which a topic cannot carry: cast it, or drop "
        "it"
    )


def schema_of(given: Any) -> pa.Schema:
    """The Arrow schema that is meant by an Arrow schema, a table or any other object with the Arrow
    PyCapsule interface, or a dataclass.

    Raises:
        ConfigError: it is none of these, or a field of the dataclass has a type that Arrow has not.
    """
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, type) and is_dataclass(given):
        return schema_of_dataclass(given)
    if isinstance(found := getattr(given, "schema", None), pa.Schema):
        return found
    try:
        if hasattr(given, "__arrow_c_schema__"):
            return pa.schema(given)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).schema
    except (TypeError, ValueError, pa.ArrowException) as error:
        if is_interrupt(error):
            raise
        raise ConfigError(f"schema: {error}") from error
    raise ConfigError(
        f"schema is of type {type(given).__name__}: give a pyarrow.Schema, a table of pyarrow, "
        "Polars, pandas or DuckDB, or a dataclass"
    )


def schema_of_dataclass(kind: type) -> pa.Schema:
    """The Arrow schema of a dataclass by its annotations; ``X | None`` may be null, and
    ``Annotated[int, pa.int32()]`` says the type itself.

    Raises:
        ConfigError: a field has a type that Arrow has not.
    """
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"dataclass {kind.__name__}: an annotation is unknown: {error}"
        ) from error
    name = kind.__name__
    found = (_hinted(one.name, hints[one.name], f"{name}.{one.name}") for one in fields(kind))
    return pa.schema(list(found))


def _hinted(name: str, hint: Any, path: str) -> pa.Field:
    """A field by its annotation."""
    nullable = False
    if get_origin(hint) in (Union, types.UnionType):
        others = [one for one in get_args(hint) if one is not type(None)]
        nullable = len(others) < len(get_args(hint))
        hint = others[0] if len(others) == 1 else hint
    return pa.field(name, _hinted_type(hint, path), nullable)


def _hinted_type(hint: Any, path: str) -> pa.DataType:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        told = [one for one in parts[1:] if isinstance(one, pa.DataType)]
        return told[0] if told else _hinted_type(parts[0], path)
    if hint in _OF_PYTHON:
        return _OF_PYTHON[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return pa.struct(list(schema_of_dataclass(hint)))
    if origin is list:
        return pa.list_(_hinted("element", parts[0], f"{path}[]"))
    if origin is dict:
        key = pa.field("key", _hinted_type(parts[0], f"{path}.key"), nullable=False)
        return pa.map_(key, _hinted("value", parts[1], f"{path}.value"))
    known = ", ".join(one.__name__ for one in _OF_PYTHON)
    raise ConfigError(
        f"{path} is {getattr(hint, '__name__', hint)}, which is no column: annotate it with one of "
        f"{known}, list[...], dict[..., ...], another dataclass, any of these '| None', or say the "
        "Arrow type, as in Annotated[int, pyarrow.int32()]"
    )
