"""Typed topics with a real Spark and a real group: every type there and back, and columns that
change under a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json

from dledger import Client
from dledger.datasource.table.schema import COLUMNS

pytestmark = pytest.mark.spark

TYPES = {
    "boolean": "id % 2 = 0",
    "tinyint": "CAST(id - 3 AS TINYINT)",
    "smallint": "CAST(id * -300 AS SMALLINT)",
    "int": "CAST(id * 70000 AS INT)",
    "bigint": "id * 5000000000",
    "float": "CAST(id / 3 AS FLOAT)",
    "double": "id / 3",
    "double of any kind": "element_at(array(double('NaN'), double('Infinity'), 0.1d, 1e300d), "
    "CAST(id % 4 AS INT) + 1)",
    "decimal(5,2)": "CAST(id / 7 AS DECIMAL(5,2))",
    "decimal(18,0)": "CAST(id * 123456789012 AS DECIMAL(18,0))",
    "decimal(38,18)": "CAST(id AS DECIMAL(38,18)) / 3",
    "string": "concat('é', id)",
    "empty string": "''",
    "binary": "CAST(concat('b', id) AS BINARY)",
    "empty binary": "x''",
    "date": "date_add(DATE'1969-12-30', CAST(id AS INT))",
    "old date": "DATE'0001-01-01'",
    "timestamp": "timestamp_micros(id * 1234567 - 2000000)",
    "timestamp_ntz": "TIMESTAMP_NTZ'2024-03-10 02:30:00.123456'",
    "time": "TIME'12:30:01.000005'",
    "interval day to second": "make_dt_interval(CAST(id AS INT), 1, 2, -3.5)",
    "interval day": "INTERVAL '3' DAY",
    "interval hour to minute": "INTERVAL '-3:10' HOUR TO MINUTE",
    "void": "NULL",
    "array<int>": "array(CAST(id AS INT), NULL)",
    "array<string not null>": "array('a', CAST(id AS STRING))",
    "empty array": "array()",
    "array<array>": "array(array(id), array(), NULL)",
    "array<decimal>": "array(CAST(id AS DECIMAL(10,2)))",
    "array<timestamp>": "array(timestamp_micros(id))",
    "array<struct>": "array(named_struct('a', id, 'b', NULL), NULL)",
    "map<string,int>": "map('k', CAST(id AS INT), 'n', NULL)",
    "map<int,string>": "map(CAST(id AS INT), 'v')",
    "empty map": "map_filter(map('k', 1), (k, v) -> false)",
    "map<string,array<struct>>": "map('k', array(named_struct('x', id)))",
    "map<date,map>": "map(DATE'2024-01-01', map('k', 1.5d))",
    "struct": "named_struct('a', id, 'b', 'x')",
    "struct<struct>": "named_struct('in', named_struct('deep', timestamp_micros(id), 'bytes', "
    "x'00ff'))",
    "struct<map,array>": "named_struct('m', map('a', id), 'l', array(id, NULL))",
    "struct of everything": "named_struct('b', true, 'd', DATE'2024-01-01', 'n', "
    "TIMESTAMP_NTZ'2024-01-01 00:00:00', "
    "'i', INTERVAL '1' DAY, 'v', NULL, 'e', array())",
    "string of a collation": "CAST(concat('a', id) AS STRING COLLATE UNICODE_CI)",
    "char": "CAST('x' AS CHAR(5))",
}
"""A name -> an expression over ``id``; each one once as it is, once null in some rows."""


def frame_of_all(spark: SparkSession, rows: int) -> DataFrame:
    columns = [f"{text} AS c{number}" for number, text in enumerate(TYPES.values())]
    nullable = [
        f"IF(id % 3 = 1, NULL, {text}) AS n{number}" for number, text in enumerate(TYPES.values())
    ]
    return spark.range(rows).selectExpr("id", *columns, *nullable)


def loosened(schema: Any) -> str:
    """A schema's JSON, but for the one thing that Arrow cannot say: that nothing is never null."""
    text: str = schema.json()
    return text.replace(
        '"containsNull":false,"elementType":"void"', '"containsNull":true,"elementType":"void"'
    )


def test_every_type_comes_back_with_its_schema_and_its_values(
    spark: SparkSession, table: Any, topic: str
) -> None:
    assert len(TYPES) >= 40
    frame = frame_of_all(spark, 7)
    table.write(frame, topic, keyColumn="id", timeColumn="c17")
    back = table.read(topic)
    assert loosened(back.schema) == loosened(frame.schema)
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    for column in frame.columns:
        want, have = (
            sorted(map(repr, one.select("id", f"`{column}`").collect())) for one in (frame, back)
        )
        assert have == want, column


@pytest.fixture
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """With times of day, which Spark has to be asked for."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.mark.parametrize("kind", ["INTERVAL '1' YEAR", "parse_json('1')"])
def test_unsupported_type_is_refused_before_a_write(
    spark: SparkSession, table: Any, topic: str, client: Client, kind: str
) -> None:
    frame = spark.range(1).selectExpr("named_struct('x', 1, 'y', id) AS s", f"{kind} AS c")
    with pytest.raises(
        PySparkException, match=r"column 'c' is .*which a topic cannot carry: cast it"
    ):
        table.write(frame, topic)
    assert topic not in [info.name for info in client.topics()]


STEPS = [
    ("CAST(id AS INT) AS id, CAST(1 AS INT) AS n", "id int, n int"),
    ("CAST(id AS INT) AS id, CAST(1 AS INT) AS n, 'x' AS s", "id int, n int, s string"),
    ("id, CAST(1 AS BIGINT) AS n", "id bigint, n bigint, s string"),
    ("id, named_struct('a', 1) AS p", "id bigint, n bigint, s string, p struct<a:int>"),
    (
        "id, named_struct('a', 2L, 'b', 'y') AS p",
        "id bigint, n bigint, s string, p struct<a:bigint,b:string>",
    ),
    (
        "id, array(1.5d) AS l, TIMESTAMP'2024-01-01 00:00:00' AS t",
        "id bigint, n bigint, s string, p struct<a:bigint,b:string>, l array<double>, t timestamp",
    ),
]
"""A frame, and the topic's columns once it is written: one to begin with, and five that change
it."""


def columns_of(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def test_running_query_sees_five_column_changes_after_its_restart(
    spark: SparkSession, table: Any, topic: str, checkpoint: str
) -> None:
    seen: list[Any] = []

    def take(batch: DataFrame, number: int) -> None:
        seen.extend(batch.collect())

    def start() -> Any:
        stream = table.stream(topic)
        return (
            stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        )

    first = ("CAST(id AS INT) AS id", "IF(id < 0, NULL, CAST(1 AS INT)) AS n")
    table.write(spark.range(10).selectExpr(*first), topic)
    query = start()
    query.processAllAvailable()
    for step in range(1, len(STEPS)):
        spark.range(step * 10, step * 10 + 10).createOrReplaceTempView("ten")
        table.write(spark.sql(f"SELECT {STEPS[step][0]} FROM ten"), topic, schemaEvolution="add")
        assert columns_of(table.read(topic)) == STEPS[step][1]
        query.processAllAvailable()
    assert query.exception() is None
    query.stop()
    assert sorted(row.id for row in seen) == list(range(60))
    assert {tuple(row.asDict()) for row in seen} == {("id", "n")}, "the columns that it began with"
    assert [row.n for row in sorted(seen)] == [1] * 30 + [None] * 30
    seen.clear()
    table.write(spark.range(60, 70).selectExpr("id", "'late' AS s"), topic)
    query = start()
    query.processAllAvailable()
    query.stop()
    assert sorted(row.id for row in seen) == list(range(60, 70))
    assert {(tuple(row.asDict()), row.s, row.t) for row in seen} == {
        (("id", "n", "s", "p", "l", "t"), "late", None)
    }
    old = table.read(topic, schemaVersion=2)
    assert columns_of(old) == STEPS[1][1]
    assert old.where("s = 'x'").count() == 10
    rows = table.read(topic).orderBy("id").selectExpr("p.a", "p.b", "l", "year(t)").collect()
    assert [tuple(row) for row in rows[29:60:10]] == [
        (None, None, None, None),
        (1, None, None, None),
        (2, "y", None, None),
        (None, None, [1.5], 2024),
    ]


def test_a_frame_that_does_not_fit_shows_both_schemas(
    spark: SparkSession, table: Any, topic: str
) -> None:
    table.write(spark.range(3).selectExpr("id", "'x' AS s"), topic)
    with pytest.raises(
        PySparkException,
        match=r"topic '.*', version 1 +\| the frame[\s\S]*! s string not null +\| -",
    ):
        table.write(spark.range(3), topic, schemaEvolution="add")


def test_json_of_a_typed_topic_is_what_from_json_reads(
    spark: SparkSession, table: Any, topic: str
) -> None:
    """Every type but those that Spark's own reader of JSON has no form for, and intervals of fewer
    units than a row's JSON has."""
    without = (
        "binary", "empty binary", "void", "empty array", "empty map", "double of any kind",
        "old date", "string of a", "struct of everything", "struct<struct>", "map<date", "map<int",
    )  # fmt: skip
    fewer = {"interval day", "interval hour to minute", "time"}
    names = [
        f"c{n}"
        for n, name in enumerate(TYPES)
        if not name.startswith(without) and name not in fewer
    ]
    frame = frame_of_all(spark, 5).select("id", *names)
    table.write(frame, topic, keyColumn="id")
    read = table.read(topic, valueFormat="json")
    assert read.columns == COLUMNS.names
    row = from_json(read.value.cast("string"), frame.schema, {"mode": "FAILFAST"})
    back = read.select(read.key.cast("string").alias("key"), row.alias("row"))
    for row in back.collect():
        assert int(row.key) == row.row.id
    for name in names:
        want = frame.selectExpr("id", name)
        have = back.selectExpr("row.id AS id", f"row.{name} AS {name}")
        assert sorted(map(repr, have.collect())) == sorted(map(repr, want.collect())), name
