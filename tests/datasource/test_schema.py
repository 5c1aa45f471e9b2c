"""Columns of a frame are checked on the driver, and every refusal says what to write instead."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dledger.datasource.table.schema import (
    COLUMNS,
    check_read_schema,
    check_write_schema,
    read_schema,
    table_schema,
)
from dledger.errors import ConfigError, UnknownOption


def frame(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


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
        check_read_schema(frame(id=IntegerType()), False)
    check_read_schema(read_schema(False), False)


def test_a_frame_that_was_read_from_a_log_can_be_written_as_it_is() -> None:
    columns = check_write_schema(read_schema(True, True), "copy")
    assert (columns.value, columns.key, columns.partition, columns.timestamp, columns.headers) == (
        1,
        0,
        3,
        5,
        7,
    )
    assert columns.topic == -1, "the option stands above the column"


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (
            frame(id=IntegerType()),
            "t",
            r"column 'id' \(int\) cannot be written.*to_json\(struct\(\*\)\)",
        ),
        (frame(vaule=StringType()), "t", "did you mean 'value'"),
        (
            frame(value=DoubleType()),
            "t",
            "column 'value' is double; it must be a string or binary: CAST",
        ),
        (frame(value=StringType(), key=IntegerType()), "t", "column 'key' is int.*CAST"),
        (
            frame(value=StringType(), partition=LongType()),
            "t",
            "column 'partition' is bigint.*CAST",
        ),
        (
            frame(value=StringType(), timestamp=LongType()),
            "t",
            "column 'timestamp' is bigint.*CAST",
        ),
        (
            frame(value=StringType(), headers=ArrayType(StringType())),
            "t",
            "column 'headers' is array<string>",
        ),
        (frame(key=StringType()), "t", "no column 'value'"),
        (frame(value=StringType()), "", "which topic"),
        (
            StructType([StructField("value", StringType()), StructField("VALUE", BinaryType())]),
            "t",
            "two columns",
        ),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(
    schema: StructType, topic: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_write_schema(schema, topic)


def test_columns_are_found_whatever_their_case() -> None:
    columns = check_write_schema(
        frame(Value=StringType(), TOPIC=StringType(), Timestamp=TimestampType()), ""
    )
    assert (columns.value, columns.topic, columns.timestamp) == (0, 1, 2)
