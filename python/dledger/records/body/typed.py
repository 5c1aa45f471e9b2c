"""Bodies of typed topics: a frame's own columns as Arrow, under one version of the topic's schema.

A batch that is to be written says its version in its schema's metadata (`stamped`), and goes
through the client like any other. Everything works on whole columns; a column that needs no change
is handed on as it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import CorruptEntry, ProtocolError, SchemaMismatch
from dledger.records.body.build import VERSION, constant_times
from dledger.records.body.header import BODY_HEADER_SIZE, BodyHeader, BodyKind, read_header
from dledger.records.body.payload import deserialize
from dledger.records.body.schema import TIMESTAMP
from dledger.records.columns.types import VOID, Array, Columns, Field, Map, Struct, Type, by_name
from dledger.types import Buffer

TIME: Final = b"dledger.time"
"""Metadata of a batch to be written: its column with the records' times, if it has one."""

Schemas = Callable[[int], Columns]
"""The columns of a topic by version; raises ProtocolError for one that is not there."""

_ATOMS: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


@lru_cache(maxsize=4096)
def arrow_type(kind: Type) -> pa.DataType:
    """The Arrow type that Spark and a body have for it."""
    match kind:
        case Struct():
            return pa.struct([arrow_field(one) for one in kind.fields])
        case Array():
            return pa.list_(pa.field("element", arrow_type(kind.element), kind.nulls))
        case Map():
            key = pa.field("key", arrow_type(kind.key), nullable=False)
            return pa.map_(key, pa.field("value", arrow_type(kind.value), kind.nulls))
    if kind.is_interval:
        return pa.duration("us")
    if kind.is_time:
        return pa.time64("ns")
    return pa.decimal128(*kind.digits) if kind.digits else _ATOMS[kind.name]


def arrow_field(one: Field) -> pa.Field:
    return pa.field(one.name, arrow_type(one.type), one.nullable)


@lru_cache(maxsize=256)
def arrow_schema(columns: Columns) -> pa.Schema:
    """The schema of a body of these columns, and of a read of them."""
    return pa.schema([arrow_field(one) for one in columns.fields])


@lru_cache(maxsize=256)
def stamped(columns: Columns, version: int) -> pa.Schema:
    """The schema of batches to be written under that version."""
    metadata = {VERSION: str(version).encode()}
    if columns.time:
        metadata[TIME] = columns.fields[columns.find(columns.time)].name.encode()
    return arrow_schema(columns).with_metadata(metadata)


def version_of(schema: pa.Schema) -> int:
    """The version that a batch to be written has; 0 for one of record columns."""
    metadata = schema.metadata
    return int(metadata.get(VERSION, 0)) if metadata else 0


def times_in(batch: pa.RecordBatch) -> pa.Array | None:
    """The records' times of a batch to be written."""
    name = batch.schema.metadata.get(TIME)
    return None if name is None else as_times(batch.column(name.decode()))


def as_times(column: pa.Array) -> pa.Array:
    """A timestamp column as the records' times; one without a zone counts as UTC."""
    return column if column.type == TIMESTAMP else column.view(TIMESTAMP)


def decode_typed(body: Buffer, schemas: Schemas) -> tuple[BodyHeader, Columns, pa.RecordBatch]:
    """A body's header, the columns that it was written under, and its rows; they lie in ``body``
    unless compressed.

    Raises:
        ProtocolError: no body of a typed topic, or of an unknown version.
        CorruptEntry: the payload contradicts the header.
    """
    view = memoryview(body)
    header = read_header(view)
    if header.kind is not BodyKind.DATA or not header.schema_version:
        raise ProtocolError(
            f"the body is {header.kind.name} of schema {header.schema_version}, not a typed topic's"
        )
    columns = schemas(header.schema_version)
    schema = arrow_schema(columns)
    batch = deserialize(view[BODY_HEADER_SIZE:], schema, header.codec, header.count)
    for one, column in zip(columns.fields, batch.columns, strict=True):
        if not one.nullable and column.null_count:
            raise CorruptEntry(f"column {one.name!r} is null in some rows, and never may be")
    return header, columns, batch


def record_times(header: BodyHeader, columns: Columns, batch: pa.RecordBatch) -> pa.Array:
    """Each record's time: its event time, or without one the latest of the batch, as its header
    says."""
    if not columns.time:
        return constant_times(header.first_time_us, header.count)
    times = as_times(batch.column(columns.find(columns.time)))
    return (
        pc.fill_null(times, constant_times(header.last_time_us, 1)[0])
        if times.null_count
        else times
    )


def key_bytes(columns: Columns, batch: pa.RecordBatch) -> pa.Array | None:
    """The key column as bytes: those of a binary, or of the value's text; None when there is no key
    column."""
    return bytes_of(batch.column(columns.find(columns.key))) if columns.key else None


def bytes_of(column: pa.Array) -> pa.Array:
    """The values of a key column as `key_bytes` gives them."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


def convert(
    batch: pa.RecordBatch, there: Columns, wanted: Columns, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    """The same rows under other columns: by name, in any order; a missing column is null, an
    unwanted one goes.

    Args:
        there: the batch's columns; its Arrow types may be others of the same meaning (large
        strings,
            another zone).
        schema: the result's; by default the plain one of ``wanted``.

    Raises:
        SchemaMismatch: a value does not fit its column, or is null where none may be; names the
            column.
    """
    schema = schema or arrow_schema(wanted)
    if there.text == wanted.text and batch.schema.equals(schema):
        for place, one in enumerate(wanted.fields):
            if not one.nullable:
                _no_nulls(batch.column(place), f"column {one.name!r}")
        return batch.replace_schema_metadata(schema.metadata)
    arrays, found = [], by_name(there.fields)
    for one in wanted.fields:
        at = found.get(one.name.lower(), -1)
        column = pa.nulls(batch.num_rows)
        source: Type = VOID
        if at >= 0:
            column, source = batch.column(at), there.fields[at].type
        try:
            if column.type != arrow_type(source):
                column = column.cast(arrow_type(source))
            column = _convert(column, source, one.type, one.name)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {one.name!r} of type {source} in {one.type}: {error}"
            ) from error
        if not one.nullable:
            _no_nulls(column, f"column {one.name!r}")
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_parts(columns: Columns, batch: pa.RecordBatch) -> None:
    """See to it that no part of a value is null that must not be. `convert` looks at what it
    changes; a column that is of the right type may hold such nulls all the same, as Arrow does not
    look.

    Raises:
        SchemaMismatch: one is; names it.
    """
    for one, column in zip(columns.fields, batch.columns, strict=True):
        _check_parts(column, one.type, one.name)


def _check_parts(column: pa.Array, kind: Type, path: str) -> None:
    match kind:
        case Struct():
            valid = column.is_valid() if column.null_count else None
            for at, one in enumerate(kind.fields):
                part, full = column.field(at), f"{path}.{one.name}"
                if not one.nullable and part.null_count:
                    _no_nulls(part if valid is None else part.filter(valid), repr(full))
                _check_parts(part, one.type, full)
        case Array():
            _check_items(column.flatten(), kind.element, kind.nulls, f"{path}[]")
        case Map():
            # a null map has no entries, and their keys are never null
            _check_items(column.items, kind.value, kind.nulls, f"{path}.value")


def _check_items(items: pa.Array, kind: Type, nulls: bool, path: str) -> None:
    if not nulls:
        _no_nulls(items, repr(path))
    _check_parts(items, kind, path)


def _convert(column: pa.Array, there: Type, wanted: Type, path: str) -> pa.Array:
    if there == wanted:
        return column
    kind = arrow_type(wanted)
    if VOID in (there, wanted):
        return pa.nulls(len(column), kind)
    match there, wanted:
        case Struct(), Struct():
            return _convert_struct(column, there, wanted, path)
        case Array(), Array():
            if not wanted.nulls:
                _no_nulls(column.flatten(), repr(f"{path}[]"))
            child = _convert(column.values, there.element, wanted.element, f"{path}[]")
        case Map(), Map():
            keys = _convert(column.keys, there.key, wanted.key, f"{path}.key")
            values = _convert(column.items, there.value, wanted.value, f"{path}.value")
            if not wanted.nulls:
                _no_nulls(values, repr(f"{path}.value"))
            child = pa.StructArray.from_arrays(
                [keys, values], fields=[kind.key_field, kind.item_field]
            )
        case _:
            return _convert_atom(column, kind)
    return pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], offset=column.offset, children=[child]
    )


def _convert_struct(column: pa.StructArray, there: Struct, wanted: Struct, path: str) -> pa.Array:
    children, found = [], by_name(there.fields)
    for one in wanted.fields:
        at = found.get(one.name.lower(), -1)
        full = f"{path}.{one.name}"
        child = pa.nulls(len(column), arrow_type(one.type))
        if at >= 0:
            child = _convert(column.field(at), there.fields[at].type, one.type, full)
        if not one.nullable and child.null_count:
            _no_nulls(child.filter(column.is_valid()), repr(full))
        children.append(child)
    fields = list(map(arrow_field, wanted.fields))
    if not fields:
        return pa.Array.from_buffers(
            pa.struct([]), len(column), column.buffers()[:1], offset=column.offset
        )
    return pa.StructArray.from_arrays(
        children, fields=fields, mask=column.is_null() if column.null_count else None
    )


def _no_nulls(column: pa.Array, what: str) -> None:
    if column.null_count:
        raise SchemaMismatch(
            f"{what} is null in some rows, and must not be: fill it, as in coalesce(...)"
        )


def _convert_atom(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A safe cast; also of a double to a float, which Arrow would round without a word."""
    found = column.cast(kind)
    if pa.types.is_float32(kind) and pa.types.is_float64(column.type):
        same = pc.or_(pc.equal(found.cast(column.type), column), pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("a number needs more digits than a float has")
    return found
