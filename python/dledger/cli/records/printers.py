"""Records as lines: plain, base64, framed by their lengths, by a format string, or as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dledger.cli.common import text_or_base64
from dledger.cli.records.format_string import (
    EMPTY,
    Part,
    PrintedRecords,
    constant,
    joined,
)
from dledger.records.columns.json_text import base64_text, lists_joined, quoted

_NULL: Final = constant(b"null")


class Printer(Protocol):
    """Makes text of records."""

    def render(self, records: PrintedRecords) -> memoryview:
        """The text of all records, one behind the other."""


def as_base64(records: PrintedRecords) -> PrintedRecords:
    """The same records with keys and values as base64."""
    batch = records.batch
    for name in ("key", "value"):
        at = batch.schema.get_field_index(name)
        text = base64_text(batch.column(at)).cast(pa.binary())
        batch = batch.set_column(at, name, text)
    return replace(records, batch=batch)


class JsonLines:
    """A JSON object for each record, as ``dledger append --format json`` takes it."""

    def render(self, records: PrintedRecords) -> memoryview:
        start = {"topic": records.topic, "partition": records.partition}
        parts: list[Part] = [
            constant(json.dumps(start)[:-1].encode() + b', "offset": '),
            records.column("offset").cast(pa.string()).cast(pa.binary()),
            constant(b', "timestamp": '),
            _time(records.column("timestamp")),
            constant(b", "),
            _field("key", records.column("key")),
            constant(b", "),
            _field("value", records.column("value")),
            constant(b', "headers": ['),
            _headers(records.column("headers")),
            constant(b"]}\n"),
        ]
        return joined(parts, records.batch.num_rows)


def _time(column: pa.Array) -> Part:
    text = pc.replace_substring(column.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    told = pc.binary_join_element_wise(
        constant(b'"'), text.cast(pa.binary()), constant(b'+00:00"'), EMPTY
    )
    return pc.fill_null(told, _NULL)


def _field(name: str, column: pa.Array) -> Part:
    """``"name": "text"``, or ``"name_base64": ...`` where it is no text; null is null."""
    if column.null_count == len(column):
        return constant(f'"{name}": null'.encode())
    try:
        text = column.cast(pa.string())
    except pa.ArrowInvalid:  # not all of it is UTF-8: this batch goes value by value
        pairs = [
            json.dumps(text_or_base64(name, one), ensure_ascii=False)[1:-1].encode()
            for one in column.to_pylist()
        ]
        return pa.array(pairs, pa.binary())
    told = pc.fill_null(quoted(text).cast(pa.binary()), _NULL)
    return pc.binary_join_element_wise(constant(f'"{name}": '.encode()), told, EMPTY)


def header_text(column: pa.Array) -> pa.Array:
    """Headers as a JSON list of each record; null where it has none."""
    listed = pc.binary_join_element_wise(constant(b"["), _headers(column), constant(b"]"), EMPTY)
    if isinstance(listed, pa.Scalar):
        return pa.nulls(len(column), pa.string())
    return pc.if_else(column.is_valid(), listed.cast(pa.string()), None)


def _headers(column: pa.Array) -> Part:
    """What stands between the brackets of each record's list."""
    if column.null_count == len(column):
        return EMPTY
    names, values = column.flatten().flatten()
    objects = pc.binary_join_element_wise(
        constant(b'{"key": '),
        quoted(names).cast(pa.binary()),
        constant(b", "),
        _field("value", values),
        constant(b"}"),
        EMPTY,
    )
    return lists_joined(column, objects, constant(b", "))
