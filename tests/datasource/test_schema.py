"""Columns of a frame are checked on the driver, and every refusal says what to write instead."""

from __future__ import annotations

import pytest

from dledger.datasource.table.column_text import columns
from dledger.datasource.table.schema import (
    COLUMNS,
    WriteColumns,
    check_read_schema,
    check_write_schema,
    read_schema,
    table_schema,
)
from dledger.errors import ConfigError, UnknownOption


def test_the_table_has_the_columns_of_sparks_kafka_connector() -> None:
    assert COLUMNS.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert read_schema(True).names[-1] == "headers"
    assert read_schema(False, True).names[-3:] == ["term", "entryIndex", "size"]


def test_an_unknown_option_is_found_when_the_schema_is_asked_for() -> None:
    with pytest.raises(UnknownOption, match="startingOffsets"):
        table_schema({"startingOffset": "earliest"})


def test_sql_table_properties_are_no_options_and_options_are_checked() -> None:
    given = {"provider": "dledger", "owner": "me", "my.property": "1", "includeHeaders": "false",
             "option.includeHeaders": "true", "option.includeMetadata": "true"}  # fmt: skip
    made = table_schema(given)
    assert [(f.name, f.dataType) for f in made] == [
        (f.name, f.dataType) for f in read_schema(True, True)
    ]
    with pytest.raises(UnknownOption, match="includeHeaders"):
        table_schema({"provider": "dledger", "option.includeHeader": "true"})


def test_a_schema_of_the_users_own_is_refused_with_how_to_unpack_the_value() -> None:
    with pytest.raises(ConfigError, match="from_json"):
        check_read_schema(columns("id int"), False)
    check_read_schema(read_schema(False), False)


@pytest.mark.parametrize("text", ["value binary", "offset bigint, KEY binary", "size int"])
def test_some_of_the_columns_are_a_schema_of_a_read(text: str) -> None:
    check_read_schema(columns(text), False)


@pytest.mark.parametrize("text", ["value string", "value binary, value binary", "key int"])
def test_columns_of_other_types_or_twice_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="all or some of"):
        check_read_schema(columns(text), False)


def test_option_columns_names_those_of_the_table() -> None:
    assert table_schema({"columns": "Value, headers, term"}).names == ["value", "headers", "term"]
    with pytest.raises(ConfigError, match="did you mean 'value'"):
        table_schema({"columns": "vaule"})


def test_a_frame_that_was_read_from_a_log_can_be_written_as_it_is() -> None:
    places = WriteColumns(value=1, key=0, partition=3, timestamp=5, headers=7, topic=-1)
    assert check_write_schema(read_schema(True, True), "copy") == places


@pytest.mark.parametrize(
    ("text", "topic", "message"),
    [
        ("id int", "t", r"column 'id' \(int\) cannot be written.*to_json\(struct\(\*\)\)"),
        ("vaule string", "t", "did you mean 'value'"),
        ("value double", "t", "column 'value' is double; it must be a string or binary: CAST"),
        ("value string, key int", "t", "column 'key' is int.*CAST"),
        ("value string, partition bigint", "t", "column 'partition' is bigint.*CAST"),
        ("value string, timestamp bigint", "t", "column 'timestamp' is bigint.*CAST"),
        ("value string, headers array<string>", "t", "column 'headers' is array<string>"),
        ("key string", "t", "no column 'value'"),
        ("value string", "", "which topic"),
        ("value string, VALUE binary", "t", "two columns"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(text: str, topic: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_write_schema(columns(text), topic)


def test_columns_are_found_whatever_their_case() -> None:
    frame = columns("Value string, TOPIC string, Timestamp timestamp")
    assert check_write_schema(frame, "") == WriteColumns(value=0, topic=1, timestamp=2)
