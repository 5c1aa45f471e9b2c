"""Record columns out of callers' values: bytes, lists, and Arrow of every binary-like type.

Python lists are joined in C, never looped over here; Arrow columns are cast where their type is not
the record's.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final, TypeAlias

import pyarrow as pa

from dledger.errors import ConfigError, RecordTooLarge
from dledger.interrupts import is_interrupt
from dledger.records.body.schema import HEADERS, RECORD_SCHEMA, TIMESTAMP, payload_schema
from dledger.types import Buffer

Values: TypeAlias = Buffer | str | Sequence[bytes | str | None] | pa.Array | pa.ChunkedArray
"""One record's bytes, many records', or a binary or string column. Text is stored as UTF-8."""
Pairs: TypeAlias = Sequence[tuple[str, bytes | None]]
Headers: TypeAlias = Pairs | Sequence[Pairs | None] | pa.Array | pa.ChunkedArray
"""The pairs of every record, or each record's own pairs."""
Times: TypeAlias = int | datetime | Sequence[int | datetime | None] | pa.Array | pa.ChunkedArray
"""Microseconds since 1970 UTC or datetimes (naive ones are UTC), one for all or each record's
own."""

_TYPES: Final = {field.name: field.type for field in RECORD_SCHEMA}
_NAMES: Final = tuple(_TYPES)
_BINARY: Final = pa.binary()
_BINARY_LIKE: Final = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string,
    pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary,
    pa.types.is_null,
)  # fmt: skip
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_null,
)
_READY: Final = (
    payload_schema(times=False, keys=False, headers=False),
    payload_schema(times=False, keys=True, headers=False),
    payload_schema(times=True, keys=True, headers=False),
    RECORD_SCHEMA,
)
"""Batches of these are taken as they are, after a quick look."""
VERSION: Final = b"dledger.schema"
"""Metadata of a typed topic's batch: the version of the schema that its columns are of."""
_MAX_ARROW_BYTES: Final = (1 << 31) - 1


def make_records(
    values: Values,
    *,
    keys: Values | None = None,
    headers: Headers | None = None,
    timestamps: Times | None = None,
) -> pa.RecordBatch:
    """A record batch with ``value`` and those of ``key``, ``headers`` and ``timestamp`` that are
    given.

    Raises:
        ConfigError: lengths differ, or a value is of a type that is no bytes.
    """
    value = binary_column("value", values)
    arrays, names = [value], ["value"]
    if keys is not None:
        arrays.append(binary_column("key", keys))
        names.append("key")
    if headers is not None:
        arrays.append(headers_column(headers, len(value)))
        names.append("headers")
    if timestamps is not None:
        arrays.append(times_column(timestamps, len(value)))
        names.append("timestamp")
    for name, column in zip(names, arrays, strict=True):
        if len(column) != len(value):
            raise ConfigError(f"{name} has {len(column)} entries for {len(value)} values")
    return pa.RecordBatch.from_arrays(arrays, names)


def binary_column(name: str, values: Values) -> pa.Array:
    """A binary column.

    Raises:
        ConfigError: something in it is no bytes.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _cast(name, values)
    items: Sequence[Any] = (
        [values] if isinstance(values, (bytes, bytearray, memoryview, str)) else values
    )
    try:
        if isinstance(items, (list, tuple)) and None not in items:
            return _join(items)
        return pa.array(_encoded(items), _BINARY)
    except (TypeError, UnicodeEncodeError, pa.ArrowException) as error:
        raise ConfigError(
            f"{name}: give bytes or text, a list of them, or an Arrow array: {error}"
        ) from error
    except OverflowError as error:
        raise RecordTooLarge(
            f"{name}: over {_MAX_ARROW_BYTES} bytes at once; give fewer records"
        ) from error


def _encoded(items: Sequence[Any]) -> Sequence[Any]:
    """The items, text among them in UTF-8."""
    if str not in set(map(type, items)):
        return items
    return [item.encode() if isinstance(item, str) else item for item in items]


def _join(items: Sequence[bytes | str]) -> pa.Array:
    """As ``pa.array``, three times faster, and without that function's import of pandas."""
    try:
        data = b"".join(items)  # type: ignore[arg-type]
    except TypeError:  # text, perhaps: it is not looked for where there is none
        items = _encoded(items)
        data = b"".join(items)  # type: ignore[arg-type]
    offsets = array("i", accumulate(map(len, items), initial=0))
    if offsets[-1] != len(data):
        raise TypeError("a memoryview of larger items than bytes")
    return pa.Array.from_buffers(
        _BINARY, len(items), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def headers_column(headers: Headers, count: int) -> pa.Array:
    """A headers column for ``count`` records; plain pairs go on each of them.

    Raises:
        ConfigError: not pairs of a text and bytes.
    """
    if isinstance(headers, (pa.Array, pa.ChunkedArray)):
        return _cast("headers", headers)
    pairs: Sequence[Any] = [headers] * count if not headers or _is_pair(headers[0]) else headers
    try:
        return pa.array(
            [
                None if one is None else [{"key": key, "value": value} for key, value in one]
                for one in pairs
            ],
            HEADERS,
        )
    except (TypeError, ValueError, pa.ArrowException) as error:
        if is_interrupt(error):
            raise
        raise ConfigError(
            f"headers: give (text, bytes) pairs, or one list of them for each record: {error}"
        ) from error


def _is_pair(item: Any) -> bool:
    return isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str)


def times_column(times: Times, count: int) -> pa.Array:
    """A timestamp column for ``count`` records.

    Raises:
        ConfigError: not integers or datetimes.
    """
    if isinstance(times, (pa.Array, pa.ChunkedArray)):
        return _cast("timestamp", times)
    if isinstance(times, int):
        return constant_times(times, count)
    if isinstance(times, datetime):
        times = [times]
    try:
        column = pa.array([_as_utc(time) for time in times], TIMESTAMP)
    except (TypeError, ValueError, pa.ArrowException) as error:
        if is_interrupt(error):
            raise
        raise ConfigError(
            f"timestamp: give microseconds since 1970, datetimes, or an Arrow array: {error}"
        ) from error
    return pa.repeat(column[0], count) if len(column) == 1 else column


def _as_utc(time: int | datetime | None) -> int | datetime | None:
    return time.replace(tzinfo=UTC) if isinstance(time, datetime) and time.tzinfo is None else time


def constant_times(time_us: int, count: int) -> pa.Array:
    """The same time ``count`` times over."""
    try:
        one = time_us.to_bytes(8, "little", signed=True)
    except OverflowError as error:
        raise ConfigError(f"timestamp {time_us} does not fit 64 bits of microseconds") from error
    return pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(one * count)])


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same records with the record schema's types and order of columns; optional columns may
    stay absent. A typed topic's batch (`dledger.records.body.typed.stamped`) is taken as it is.

    Raises:
        ConfigError: a column is unknown, of a type that cannot be, or ``value`` is missing.
    """
    schema = batch.schema
    if schema.metadata and VERSION in schema.metadata:
        return batch
    if schema in _READY:
        return batch
    names = schema.names
    for name in names:
        if name not in _TYPES:
            raise ConfigError(f"column {name!r} is no record column; those are {', '.join(_NAMES)}")
    if names.count("value") != 1 or len(set(names)) != len(names):
        raise ConfigError(f"a batch of records has a value column, and none twice: {names}")
    wanted = [name for name in _NAMES if name in names]
    return pa.RecordBatch.from_arrays([_cast(name, batch.column(name)) for name in wanted], wanted)


def _cast(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in its record type."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
            )
    wanted = _TYPES[name]
    if column.type == wanted:
        return column
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    try:
        if name == "headers" and pa.types.is_map(column.type):
            column = _map_as_list(column)
        if not _can_be(name, column.type):
            raise ConfigError(f"column {name!r} has type {column.type}; cast it to {wanted}")
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
        return column.cast(wanted, safe=not pa.types.is_timestamp(column.type))
    except pa.ArrowException as error:
        raise ConfigError(
            f"column {name!r} of type {column.type} cannot become {wanted}: {error}"
        ) from error


def _can_be(name: str, there: pa.DataType) -> bool:
    if name == "timestamp":
        return bool(
            pa.types.is_timestamp(there) or pa.types.is_integer(there) or pa.types.is_null(there)
        )
    return any(is_it(there) for is_it in (_LISTS if name == "headers" else _BINARY_LIKE))


def _map_as_list(column: pa.MapArray) -> pa.Array:
    """A map is a list of key-value structs; only the type has another name."""
    entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(column),
        [validity, offsets],
        offset=column.offset,
        children=[entries],
    )
