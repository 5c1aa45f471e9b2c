"""Rows that a program has as dicts or dataclass instances -> Arrow. For small data: Python looks at
each row; tables come as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import pyarrow as pa

from dledger.errors import SchemaMismatch
from dledger.interrupts import is_interrupt
from dledger.records.frames.arrow_columns import schema_of_dataclass


def are_rows(data: Any) -> bool:
    """Whether these are rows of Python: a dataclass instance, or a list of them or of dicts."""
    if isinstance(data, (list, tuple)) and data:
        data = data[0]
        if isinstance(data, Mapping):
            return True
    return is_dataclass(data) and not isinstance(data, type)


def columns_of_rows(data: Any) -> tuple[dict[str, list[Any]], pa.Schema | None]:
    """The values of each column, and the schema of the dataclass where the rows are of one.

    Raises:
        SchemaMismatch: they are not all dicts, or not all of one dataclass.
    """
    rows: Sequence[Any] = data if isinstance(data, (list, tuple)) else [data]
    first, hints = rows[0], None
    if is_dataclass(first) and not isinstance(first, type):
        for place, row in enumerate(rows):
            if type(row) is not type(first):
                raise _odd_one(place, row, f"a {type(first).__name__}")
        rows, hints = [asdict(row) for row in rows], schema_of_dataclass(type(first))
    names: dict[str, None] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise _odd_one(place, row, "a dict")
        names.update(dict.fromkeys(row))
    return {str(name): [row.get(name) for row in rows] for name in names}, hints


def _odd_one(place: int, row: Any, wanted: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"row {place} is of type {type(row).__name__}, where the first one is {wanted}: give rows "
        "of one kind"
    )


def table_of(columns: Mapping[str, Any], *hints: pa.Schema | None) -> pa.Table:
    """A table of Python's values, or of arrays.

    Args:
        hints: schemas that know the types of columns, by their names in any case; the first one
            that knows a column decides, where its type has a place for each of its values.

    Raises:
        SchemaMismatch: a column cannot be one; the message has its name.
    """
    known = {
        field.name.lower(): field for hint in reversed(hints) if hint is not None for field in hint
    }
    arrays, fields = [], []
    for name, values in columns.items():
        hint = known.get(name.lower())
        try:
            array = _column(values, None if hint is None else hint.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if is_interrupt(error):
                raise
            told = "" if hint is None else f" of type {hint.type}"
            raise SchemaMismatch(f"column {name!r}{told}: {error}") from error
        arrays.append(array)
        fields.append(pa.field(name, array.type, hint is None or hint.nullable))
    rows = {len(array) for array in arrays}
    if len(rows) > 1:
        lengths = ", ".join(f"{name} {len(one)}" for name, one in zip(columns, arrays, strict=True))
        raise SchemaMismatch(f"the columns have different numbers of rows: {lengths}")
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _column(values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if not isinstance(values, (list, tuple)):
        if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
            raise TypeError(
                f"a dict has columns, each a list or an array, not {values!r}; one row is [row]"
            )
        return pa.array(values)
    if kind is None or not all(_has_place(value, kind) for value in values):
        return pa.array(values)
    return pa.array([_as_pairs(value, kind) for value in values], kind)


def _has_place(value: Any, kind: pa.DataType) -> bool:
    """Whether a type has a field for each part of a value. Arrow would leave others out without a
    word."""
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        return all(
            (at := kind.get_field_index(name)) >= 0 and _has_place(part, kind.field(at).type)
            for name, part in value.items()
        )
    if isinstance(value, Mapping) and pa.types.is_map(kind):
        return all(_has_place(part, kind.item_type) for part in value.values())
    if isinstance(value, (list, tuple)) and pa.types.is_list(kind):
        return all(_has_place(part, kind.value_type) for part in value)
    return True


def _as_pairs(value: Any, kind: pa.DataType) -> Any:
    """The value, its maps as Arrow wants them: lists of pairs."""
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        return {name: _as_pairs(part, kind.field(name).type) for name, part in value.items()}
    if isinstance(value, Mapping) and pa.types.is_map(kind):
        return [(key, _as_pairs(part, kind.item_type)) for key, part in value.items()]
    if isinstance(value, (list, tuple)) and pa.types.is_list(kind):
        return [_as_pairs(part, kind.value_type) for part in value]
    return value
