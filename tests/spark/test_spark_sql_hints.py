"""What an error of an SQL statement says to do instead is done, word for word, but for names and
places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[str]:
    """The table that examples in errors are of."""
    yield "orders"
    spark.sql("DROP TABLE IF EXISTS orders")
    spark.catalog.dropTempView("people")


def error_of(spark: SparkSession, statement: str) -> str:
    with pytest.raises(Exception, match="dledger") as raised:
        spark.sql(statement).collect()
    return str(raised.value)


def said(error: str, pattern: str, table: Any, topic: str) -> str:
    """The statement in an error that fits the pattern, with the test's own place and topic for
    those of the example."""
    found = re.search(pattern, error)
    assert found is not None, error
    text = found[0].replace("name_of_the_table", "orders")
    return (
        text.replace("'/data/log'", f"'{table.path}'")
        .replace("topic = 'orders'", f"topic = '{topic}'")
        .replace("topic 'orders'", f"topic '{topic}'")
    )


CREATE = r"CREATE (OR REPLACE )?TABLE \w+ USING dledger OPTIONS \([^)]*\)"


def create(spark: SparkSession, table: Any, topic: str) -> None:
    spark.sql(f"CREATE TABLE orders USING dledger OPTIONS (path '{table.path}', topic '{topic}')")


def test_an_insert_is_told_a_statement_that_writes(
    spark: SparkSession, table: Any, topic: str, orders: str
) -> None:
    create(spark, table, topic)
    error = error_of(spark, "INSERT INTO orders (value) VALUES (X'76')")
    spark.sql(
        said(
            error, r"INSERT INTO orders WITH .*? VALUES \(CAST\('text' AS BINARY\)\)", table, topic
        )
    )
    assert table.values(topic) == ["text"]


def test_a_create_table_as_select_is_told_two_statements_that_do_it(
    spark: SparkSession, table: Any, topic: str, orders: str
) -> None:
    spark.range(2).createOrReplaceTempView("people")
    options = f"OPTIONS (path '{table.path}', topic '{topic}')"
    error = error_of(spark, f"CREATE TABLE orders USING dledger {options} AS SELECT id FROM people")
    assert "CREATE TABLE ... AS SELECT" in error
    spark.sql(said(error, CREATE, table, topic))
    spark.sql(
        said(
            error,
            r"INSERT INTO orders WITH \([^)]*\) \(value\) SELECT .* FROM people",
            table,
            topic,
        )
    )
    read = spark.sql("SELECT CAST(value AS STRING) AS value FROM orders ORDER BY offset")
    assert [row.value for row in read.collect()] == ['{"id":0}', '{"id":1}']


def test_a_table_that_does_not_say_its_log_is_told_two_ways(
    spark: SparkSession, table: Any, topic: str, orders: str
) -> None:
    table.write(spark.sql("SELECT 'a' AS value"), topic)
    spark.sql(
        f"CREATE TABLE orders (value BINARY) USING dledger OPTIONS (path '{table.path}', topic "
        f"'{topic}')"
    )
    error = error_of(spark, "SELECT * FROM orders")
    spark.sql(said(error, CREATE, table, topic))
    assert spark.sql("SELECT * FROM orders").count() == 1
    assert (
        spark.sql(said(error, r"SELECT \* FROM orders WITH \([^)]*\)", table, topic)).count() == 1
    )


def test_statement_in_the_error_gives_a_table_new_and_wider_columns(
    spark: SparkSession, table: Any, topic: str, orders: str
) -> None:
    """The topic of the table has gained these columns."""
    table.write(spark.sql("SELECT 1 AS id"), topic)
    create(spark, table, topic)
    table.write(spark.sql("SELECT 1L << 40 AS id, 0.5D AS score"), topic, schemaEvolution="add")
    error = error_of(spark, "SELECT * FROM orders")
    assert "are wider by now" in error
    spark.sql(said(error, CREATE, table, topic))
    rows = spark.sql("SELECT * FROM orders ORDER BY id").collect()
    assert [(row.id, row.score) for row in rows] == [(1, None), (1 << 40, 0.5)]


def test_a_column_that_the_topic_has_may_be_added_to_the_table(
    spark: SparkSession, table: Any, topic: str, orders: str
) -> None:
    table.write(spark.sql("SELECT 1 AS id"), topic)
    create(spark, table, topic)
    table.write(spark.sql("SELECT 2 AS id, 0.5D AS score"), topic, schemaEvolution="add")
    assert spark.sql("SELECT * FROM orders").columns == ["id"]
    spark.sql("ALTER TABLE orders ADD COLUMNS (score DOUBLE)")
    assert [row.score for row in spark.sql("SELECT * FROM orders ORDER BY id").collect()] == [
        None,
        0.5,
    ]


@pytest.mark.parametrize("typed", [False, True])
def test_statement_in_the_error_mends_a_table_with_an_extra_column(
    spark: SparkSession, table: Any, topic: str, orders: str, typed: bool
) -> None:
    """The topic of the table does not have that column."""
    table.write(spark.sql("SELECT 1 AS id" if typed else "SELECT 'a' AS value"), topic)
    create(spark, table, topic)
    spark.sql("ALTER TABLE orders ADD COLUMNS (extra DOUBLE)")
    error = error_of(spark, "SELECT * FROM orders")
    spark.sql(said(error, CREATE, table, topic))
    assert spark.sql("SELECT * FROM orders").count() == 1
