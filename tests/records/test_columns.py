"""The columns of a typed topic as text: what can be carried comes back, what cannot is named."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.errors import ConfigError
from dledger.records.columns.types import Columns, build
from tests.records.spark_json import a_map, array, field, struct


def test_columns_round_trip_through_a_canonical_text() -> None:
    """Equal columns have equal text."""
    inner = struct(field("x", "decimal(38,10)", False, comment="é"))
    pairs = a_map("string", array(inner), nulls=False)
    columns = build(
        [field("id", "long", False), field("m", pairs), field("at", "timestamp")], "id", "at"
    )
    again = Columns.parse(columns.text)
    assert again == columns
    assert again.text == columns.text
    assert Columns.parse(" " + columns.text.replace(":", ": ")).text == columns.text


@pytest.mark.parametrize("kind", ["void", array("void", nulls=False)])
def test_a_column_of_nothing_may_always_be_null(kind: Any) -> None:
    """Arrow has no other, and Spark says otherwise of an empty array."""
    (one,) = build([field("c", kind, kind != "void")]).fields
    assert one.nullable
    assert isinstance(kind, str) or one.type.nulls  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("interval year to month", "'c' is interval year to month.*CAST"),
        ("interval", "'c' is interval,"),
        ("variant", "'c' is variant"),
        ("geometry(4326)", "'c' is geometry"),
        ("decimal(39,0)", "'c' is decimal"),
        ({"type": "udt", "class": "x"}, "'c' is a udt type"),
        (array(struct(field("deep", "interval month"))), r"'c\[\]\.deep' is interval month"),
        (struct(field("a", "long"), field("A", "long")), r"'c\.a' and 'c\.A' have one name"),
    ],
)
def test_what_cannot_be_carried_is_named_with_the_way_out(kind: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build([field("c", kind)])


@pytest.mark.parametrize(
    ("key", "time", "message"),
    [
        ("nobody", "", "key column 'nobody' is none of the columns, a, d, t"),
        ("d", "", "key column 'd' is double.*CAST"),
        ("", "a", "time column 'a' is bigint.*CAST"),
    ],
)
def test_a_key_or_time_column_that_cannot_be_one_is_refused(
    key: str, time: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build([field("a", "long"), field("d", "double"), field("t", "timestamp")], key, time)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"fields": []}',
        '{"fields": [1]}',
        '{"fields": [{"name": "a"}]}',
        '{"fields": [{"name": "a", "type": {}, "nullable": true}]}',
    ],
)
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Columns.parse(text)


def test_a_schema_without_end_is_refused() -> None:
    deep: Any = "long"
    for _ in range(40):
        deep = array(deep)
    with pytest.raises(ConfigError, match="nests deeper"):
        build([field("c", deep)])
    with pytest.raises(ConfigError, match="over 262144"):
        build([field("c" * 300_000, "long")])
