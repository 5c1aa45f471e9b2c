"""JSON of whole columns: what a parser makes of it is what was in the row."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.body.typed import arrow_schema
from dledger.records.columns.json_text import rows_as_json
from dledger.records.columns.types import Columns, build
from tests.records.spark_json import a_map, array, field, struct


def columns(**kinds: Any) -> Columns:
    return build(list(map(field, kinds, kinds.values())))


def texts(of: Columns, rows: list[dict[str, Any]]) -> list[str]:
    found = rows_as_json(of, pa.RecordBatch.from_pylist(rows, schema=arrow_schema(of)))
    assert found.null_count == 0
    return found.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", True, "true"),
        ("byte", -5, "-5"),
        ("long", 1 << 62, str(1 << 62)),
        ("double", 0.1, "0.1"),
        ("double", float("nan"), '"NaN"'),
        ("float", float("-inf"), '"-Infinity"'),
        ("double", float("inf"), '"Infinity"'),
        ("decimal(10,2)", Decimal("-1.50"), "-1.50"),
        ("string", "a", '"a"'),
        ("date", 0, '"1970-01-01"'),
        ("timestamp", 1, '"1970-01-01T00:00:00.000001Z"'),
        ("timestamp_ntz", 0, '"1970-01-01T00:00:00.000000"'),
        ("time(6)", 3_600_000_000_001, '"01:00:00.000000001"'),
        ("binary", b"\x00\xff", '"AP8="'),
        (
            "interval day to second",
            -90_061_000_001,
            "\"INTERVAL '-1 01:01:01.000001' DAY TO SECOND\"",
        ),
        (array("integer"), [1, None], "[1,null]"),
        (array("string"), [], "[]"),
        (a_map("string", "long"), [("k", 1), ("n", None)], '{"k":1,"n":null}'),
        (a_map("date", "long"), [(0, 1)], '{"1970-01-01":1}'),
        (a_map("long", "long"), [(7, 1)], '{"7":1}'),
        (struct(field("x", "long"), field("y", "long")), {"x": 1}, '{"x":1}'),
        (struct(field("x", "long")), {"x": None}, "{}"),
        (
            array(struct(field("m", a_map("string", array("void"))))),
            [{"m": [("k", [None])]}, None],
            '[{"m":{"k":[null]}},null]',
        ),
    ],
)
def test_a_value_of_each_type_is_written_as_spark_writes_it(
    kind: Any, value: Any, text: str
) -> None:
    of = columns(a="long", c=kind)
    rows = [{"a": 1, "c": value}, {"a": 2}, {"c": value}, {}]
    assert texts(of, rows) == [f'{{"a":1,"c":{text}}}', '{"a":2}', f'{{"c":{text}}}', "{}"]


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "s": st.none() | st.text(max_size=8),
                "b": st.none() | st.binary(max_size=8),
                "d": st.none() | st.floats(),
                'na"me\n': st.none()
                | st.lists(
                    st.none()
                    | st.lists(st.none() | st.text('\\"\n\x00a\x1f', max_size=4), max_size=3),
                    max_size=3,
                ),
            }
        ),
        max_size=6,
    ),
    start=st.integers(0, 3),
)
def test_a_parser_gets_back_what_was_written_also_of_a_slice(
    rows: list[dict[str, Any]], start: int
) -> None:
    of = columns(s="string", b="binary", d="double", **{'na"me\n': array(array("string"))})
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(of)).slice(min(start, len(rows)))
    for text, row in zip(rows_as_json(of, batch).to_pylist(), rows[start:], strict=True):
        back = json.loads(text)
        wanted = {name: value for name, value in row.items() if value is not None}
        if "b" in wanted:
            wanted["b"] = base64.b64encode(wanted["b"]).decode()
        if "d" in wanted:
            assert float(back.pop("d")) == pytest.approx(wanted.pop("d"), rel=0, abs=0, nan_ok=True)
        assert back == wanted
