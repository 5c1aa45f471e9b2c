"""What an error of an SQL statement says to do instead is done, word for word, but for names and
places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


CREATE = r"CREATE (OR REPLACE )?TABLE \w+ USING dledger OPTIONS \([^)]*\)"


class Orders:
    """The table that examples in errors are of, for a topic of the test's own."""

    def __init__(self, spark: SparkSession, table: Any, topic: str) -> None:
        self.sql, self._table, self._topic = spark.sql, table, topic
        self.options = f"USING dledger OPTIONS (path '{table.path}', topic '{topic}')"

    def create(self) -> None:
        self.sql(f"CREATE TABLE orders {self.options}")

    def write(self, query: str, **options: str) -> None:
        """Rows of a query into the topic."""
        self._table.write(self.sql(query), self._topic, **options)

    def error(self, statement: str = "SELECT * FROM orders") -> str:
        with pytest.raises(Exception, match="dledger") as raised:
            self.sql(statement).collect()
        return str(raised.value)

    def obey(self, error: str, pattern: str = CREATE) -> DataFrame:
        """Run the statement in an error that fits the pattern, with the test's own place and topic
        for those of the example."""
        found = re.search(pattern, error)
        assert found is not None, error
        text = found[0].replace("name_of_the_table", "orders")
        return self.sql(
            text.replace("'/data/log'", f"'{self._table.path}'")
            .replace("topic = 'orders'", f"topic = '{self._topic}'")
            .replace("topic 'orders'", f"topic '{self._topic}'")
        )

    def rows(self, query: str = "SELECT * FROM orders") -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.sql(query).collect()]


@pytest.fixture
def orders(spark: SparkSession, table: Any, topic: str) -> Iterator[Orders]:
    yield Orders(spark, table, topic)
    spark.sql("DROP TABLE IF EXISTS orders")
    spark.catalog.dropTempView("people")


def test_an_insert_is_told_a_statement_that_writes(table: Any, topic: str, orders: Orders) -> None:
    orders.create()
    error = orders.error("INSERT INTO orders (value) VALUES (X'76')")
    orders.obey(error, r"INSERT INTO orders WITH .*? VALUES \(CAST\('text' AS BINARY\)\)")
    assert table.values(topic) == ["text"]


def test_a_create_table_as_select_is_told_two_statements_that_do_it(
    spark: SparkSession, orders: Orders
) -> None:
    spark.range(2).createOrReplaceTempView("people")
    error = orders.error(f"CREATE TABLE orders {orders.options} AS SELECT id FROM people")
    assert "CREATE TABLE ... AS SELECT" in error
    orders.obey(error)
    orders.obey(error, r"INSERT INTO orders WITH \([^)]*\) \(value\) SELECT .* FROM people")
    query = "SELECT CAST(value AS STRING) AS value FROM orders ORDER BY offset"
    assert orders.rows(query) == [('{"id":0}',), ('{"id":1}',)]


def test_a_table_that_does_not_say_its_log_is_told_two_ways(orders: Orders) -> None:
    orders.write("SELECT 'a' AS value")
    orders.sql(f"CREATE TABLE orders (value BINARY) {orders.options}")
    error = orders.error()
    orders.obey(error)
    assert len(orders.rows()) == 1
    assert orders.obey(error, r"SELECT \* FROM orders WITH \([^)]*\)").count() == 1


def test_statement_in_the_error_gives_a_table_new_and_wider_columns(orders: Orders) -> None:
    """The topic of the table has gained these columns."""
    orders.write("SELECT 1 AS id")
    orders.create()
    orders.write("SELECT 1L << 40 AS id, 0.5D AS score", schemaEvolution="add")
    error = orders.error()
    assert "are wider by now" in error
    orders.obey(error)
    query = "SELECT id, score FROM orders ORDER BY id"
    assert orders.rows(query) == [(1, None), (1 << 40, 0.5)]


def test_a_column_that_the_topic_has_may_be_added_to_the_table(orders: Orders) -> None:
    orders.write("SELECT 1 AS id")
    orders.create()
    orders.write("SELECT 2 AS id, 0.5D AS score", schemaEvolution="add")
    assert orders.sql("SELECT * FROM orders").columns == ["id"]
    orders.sql("ALTER TABLE orders ADD COLUMNS (score DOUBLE)")
    assert orders.rows("SELECT score FROM orders ORDER BY id") == [(None,), (0.5,)]


@pytest.mark.parametrize("typed", [False, True])
def test_statement_in_the_error_mends_a_table_with_an_extra_column(
    orders: Orders, typed: bool
) -> None:
    """The topic of the table does not have that column."""
    orders.write("SELECT 1 AS id" if typed else "SELECT 'a' AS value")
    orders.create()
    orders.sql("ALTER TABLE orders ADD COLUMNS (extra DOUBLE)")
    orders.obey(orders.error())
    assert len(orders.rows()) == 1
