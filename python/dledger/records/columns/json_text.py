"""Rows of columns as JSON text, a whole column at a time, as Spark's ``to_json(struct(*))`` writes
them.

Fields that are null are left out, nulls in arrays and maps are not; times are ISO 8601 in UTC,
binaries base64, numbers that JSON does not have strings, intervals those of days to seconds.
``from_json`` with the columns' own schema gives the rows back.
"""

from __future__ import annotations

import json
from array import array
from binascii import b2a_base64
from functools import reduce
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.records.columns.arrays import number, offsets_of, repeated
from dledger.records.columns.types import INTEGERS, Array, Atom, Columns, Map, Struct, Type

_TEXT: Final = pa.string()
_DAY_US: Final = 86_400_000_000
_SPECIAL: Final = r'["\\\x00-\x1f]'
_ESCAPES: Final = {chr(code): json.dumps(chr(code))[1:-1] for code in (92, 34, *range(32))}
"""A backslash comes first: the others bring more of them."""


def _texts(values: list[bytes]) -> pa.Array:
    ends = array("i", accumulate(map(len, values), initial=0))
    data = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(_TEXT, len(values), [None, pa.py_buffer(ends), data])


def _one(text: str) -> pa.Scalar:
    """Not by ``pa.scalar``: its first call imports pandas, half a second of every worker's
    start."""
    return _texts([text.encode()])[0]


_EMPTY: Final = _one("")
_NULL: Final = pa.nulls(1, _TEXT)[0]
_NONE: Final = number(pa.int32(), 0)


def rows_as_json(columns: Columns, batch: pa.RecordBatch) -> pa.Array:
    """One object of text for each row."""
    return _object(
        [(one.name, _text(batch.column(at), one.type)) for at, one in enumerate(columns.fields)]
    )


def _join(*parts: Any) -> pa.Array:
    """The parts one behind the other; null where one is."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _object(fields: list[tuple[str, pa.Array]]) -> pa.Array:
    parts = [
        pc.fill_null(_join(_one(f",{json.dumps(name, ensure_ascii=False)}:"), text), _EMPTY)
        for name, text in fields
    ]  # not joined with null_handling="skip", which loses a row in which all are null
    text = _join(_one("{"), *parts, _one("}"))
    return pc.replace_substring(text, "{,", "{", max_replacements=1)


def _text(column: pa.Array, kind: Type) -> pa.Array:
    """JSON of each value; null where it is null."""
    match kind:
        case Struct():
            found = zip(kind.fields, column.flatten(), strict=True)
            parts = [(one.name, _text(child, one.type)) for one, child in found]
            text = _object(parts) if parts else pa.repeat(_one("{}"), len(column))
        case Array():
            inside = pc.fill_null(_text(column.flatten(), kind.element), _one("null"))
            text = _join(_one("["), lists_joined(column, inside, _one(",")), _one("]"))
        case Map():
            pair = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
            entries = column.cast(pa.list_(pair))
            keys, values = entries.flatten().flatten()
            names = _text(keys, kind.key)
            if kind.key != Atom("string"):
                names = quoted(pc.utf8_trim(names, '"'))
            pairs = _join(names, _one(":"), pc.fill_null(_text(values, kind.value), _one("null")))
            text = _join(_one("{"), lists_joined(column, pairs, _one(",")), _one("}"))
        case _:
            return _atom(column, kind)
    return pc.if_else(column.is_valid(), text, _NULL) if column.null_count else text


def lists_joined(column: pa.Array, items: pa.Array, between: pa.Scalar) -> pa.Array:
    """The items of each list of ``column`` with ``between`` between them; empty for a null.

    Args:
        items: one text for each item of ``column.flatten()``.
    """
    offsets = offsets_of(column)
    if column.null_count:
        lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(column)))
        lengths = pc.if_else(column.is_valid(), lengths, _NONE)
        ends = pa.concat_arrays([repeated(pa.int32(), 0, 1), pc.cumulative_sum(lengths)])
    else:
        ends = pc.subtract(offsets, offsets[0])
    return pc.binary_join(pa.ListArray.from_arrays(ends, items), between)


def _atom(column: pa.Array, kind: Atom) -> pa.Array:
    if kind.name in INTEGERS or kind.name == "boolean" or kind.digits:
        return column.cast(_TEXT)
    match kind.name:
        case "void":
            return pa.nulls(len(column), _TEXT)
        case "string":
            return quoted(column)
        case "float" | "double":
            return _number(column)
        case "binary":
            return _between(base64_text(column))
        case "timestamp":
            times = column.view(pa.timestamp("us")).cast(_TEXT)
            return _join(_one('"'), pc.replace_substring(times, " ", "T"), _one('Z"'))
        case "timestamp_ntz":
            return _between(pc.replace_substring(column.cast(_TEXT), " ", "T"))
    return _between(_interval(column) if kind.is_interval else column.cast(_TEXT))


def _between(text: pa.Array) -> pa.Array:
    return _join(_one('"'), text, _one('"'))


def quoted(text: pa.Array) -> pa.Array:
    """Strings as JSON writes them, in quotes; null where it is null."""
    if pc.any(pc.match_substring_regex(text, _SPECIAL)).as_py():
        text = reduce(
            lambda so_far, one: pc.replace_substring(so_far, one, _ESCAPES[one]), _ESCAPES, text
        )
    return _between(text)


def _number(column: pa.Array) -> pa.Array:
    text = column.cast(_TEXT)
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return text
    names = pc.if_else(
        pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    )
    return pc.if_else(finite, text, names)


def _interval(column: pa.Array) -> pa.Array:
    """As SQL writes it: days, and a time."""
    size = pc.abs(column.cast(pa.int64()))
    days = pc.divide(size, _DAY_US)
    time = pc.subtract(size, pc.multiply(days, _DAY_US)).cast(pa.time64("us")).cast(_TEXT)
    sign = pc.if_else(pc.less(column.cast(pa.int64()), 0), "-", "")
    return _join(
        _one("INTERVAL '"), sign, days.cast(_TEXT), _one(" "), time, _one("' DAY TO SECOND")
    )


def base64_text(column: pa.Array) -> pa.Array:
    """Text of each value's bytes. The loop is over values; each is a call of C."""
    texts = [b2a_base64(value or b"", newline=False) for value in column.to_pylist()]
    whole = _texts(texts)
    return pc.if_else(column.is_valid(), whole, _NULL) if column.null_count else whole
