"""Columns of typed topics from Arrow schemas and dataclasses, and tables of Python's rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from dledger.errors import ConfigError, SchemaMismatch
from dledger.records.body.typed import arrow_schema, check_parts, convert
from dledger.records.frames.arrow_columns import columns_of, schema_of, schema_of_dataclass
from dledger.records.frames.frames import AT_ONCE, frame_of, is_frame
from dledger.records.frames.python_rows import table_of

TYPES = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.dictionary(pa.int8(), pa.large_string()): "string",
    pa.binary(3): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
    pa.timestamp("ns", "Europe/Berlin"): "timestamp",
    pa.timestamp("ms"): "timestamp_ntz",
    pa.time32("s"): "time(6)",
    pa.duration("s"): "interval day to second",
    pa.decimal256(38, 2): "decimal(38,2)",
    pa.large_list(pa.int8()): "array<tinyint>",
    pa.list_(pa.int8(), 2): "array<tinyint>",
    pa.map_(pa.string(), pa.int8()): "map<string,tinyint>",
    pa.struct([pa.field("a", pa.null())]): "struct<a:void>",
    pa.uuid(): "binary",
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_arrow_type_is_a_columns_type_that_its_values_fit(kind: pa.DataType) -> None:
    columns = columns_of(pa.schema({"x": kind}))
    assert str(columns.fields[0].type) == TYPES[kind]
    empty = pa.RecordBatch.from_arrays([pa.nulls(2, kind)], schema=pa.schema({"x": kind}))
    (batch,) = frame_of(empty).batches
    assert convert(batch, columns, columns).schema == arrow_schema(columns)


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.decimal128(5, -1), pa.decimal256(40, 1)], ids=str
)
def test_type_that_no_topic_carries_is_named(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column 'a\.b\[\]' has the Arrow type .*: cast it"):
        columns_of(pa.schema({"a": pa.struct([pa.field("b", pa.list_(kind))])}))


def test_dictionaries_of_views_are_their_values() -> None:
    values = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    (batch,) = frame_of(pa.table({"x": values})).batches
    assert batch.column("x").to_pylist() == ["a", None, "b"]


@dataclass
class Inner:
    name: str


@dataclass
class Outer:
    whole: int
    small: Annotated[int, pa.int16()]
    maybe: Annotated[float, "a note"] | None
    tags: list[str | None]
    parts: dict[str, Inner]
    at: datetime
    day: date
    clock: time
    took: timedelta
    price: Decimal
    raw: bytes
    yes: bool


def test_dataclass_has_the_columns_of_its_annotations() -> None:
    assert [str(one) for one in columns_of(schema_of(Outer)).fields] == [
        "whole bigint not null",
        "small smallint not null",
        "maybe double",
        "tags array<string> not null",
        "parts map<string,struct<name:string not null>> not null",
        "at timestamp not null",
        "day date not null",
        "clock time(6) not null",
        "took interval day to second not null",
        "price decimal(38,18) not null",
        "raw binary not null",
        "yes boolean not null",
    ]


def test_annotation_that_is_no_column_is_named() -> None:
    @dataclass
    class Odd:
        things: list[complex]

    with pytest.raises(ConfigError, match=r"Odd\.things\[\] is complex, which is no column: .*int"):
        schema_of_dataclass(Odd)

    @dataclass
    class Either:
        one: int | str | None

    with pytest.raises(ConfigError, match=r"Either\.one is .*int \| str"):
        schema_of_dataclass(Either)


def test_known_types_decide_where_they_have_a_place_for_all() -> None:
    known = pa.schema(
        {"N": pa.int16(), "m": pa.map_(pa.string(), pa.int8()), "s": pa.struct({"a": pa.int8()})}
    )
    table = table_of({"n": [1], "m": [{"k": 2}], "s": [{"a": 3}]}, known)
    assert table.schema.types == known.types
    wider = table_of({"s": [{"a": 3}, {"a": 1, "b": "x"}]}, known)
    assert wider.schema.types == [pa.struct({"a": pa.int64(), "b": pa.string()})]
    with pytest.raises(SchemaMismatch, match=r"column .n. of type int16: .*70000"):
        table_of({"n": [70_000]}, known)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"x", False), ("x", False), ([b"x"], False), ([], False), (pa.array([b"x"]), False),
        (pa.chunked_array([[b"x"]]), False), (5, False), (Inner, False), (Inner("a"), True),
        ([Inner("a")], True), ([{"a": 1}], True), ({"a": [1]}, True), (pa.table({"a": [1]}), True),
    ],
)  # fmt: skip
def test_tables_are_told_from_values(data: Any, expected: bool) -> None:
    assert is_frame(data) is expected


def test_large_batches_are_cut() -> None:
    table = pa.table({"x": pa.nulls(5 * AT_ONCE // 8, pa.int64())})
    batches = list(frame_of(table).batches)
    assert len(batches) >= 5
    assert pa.Table.from_batches(batches) == table


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (pa.list_(pa.field("element", pa.int8(), False)), [1, None], r"x\[\]"),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), False)), [("a", None)], r"x\.value"),
        (pa.struct([pa.field("a", pa.int8(), False)]), {"a": None}, r"x\.a"),
        (pa.list_(pa.struct([pa.field("a", pa.int8(), False)])), [{"a": None}], r"x\[\]\.a"),
    ],
    ids=str,
)
def test_nested_null_is_found_in_a_column_of_the_right_type(
    kind: pa.DataType, value: Any, path: str
) -> None:
    schema = pa.schema({"x": kind})
    columns = columns_of(schema)
    good = pa.RecordBatch.from_arrays([pa.array([None], kind)], schema=schema)
    check_parts(columns, good)
    bad = pa.RecordBatch.from_arrays([pa.array([None, value], kind)], schema=schema)
    with pytest.raises(SchemaMismatch, match=rf"'{path}' is null"):
        check_parts(columns, bad)
