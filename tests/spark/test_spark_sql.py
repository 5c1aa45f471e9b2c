"""Tables, views and everything that goes by a table's name, with a real Spark and a real group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from dledger import Client

pytestmark = pytest.mark.spark


@pytest.fixture
def name(spark: SparkSession, topic: str) -> Iterator[str]:
    """Of a table that is dropped afterwards."""
    made = topic.replace("-", "_")
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {made}")


def create(spark: SparkSession, name: str, table: Any, topic: str, kind: str = "TABLE") -> None:
    spark.sql(f"CREATE {kind} {name} USING dledger OPTIONS (path '{table.path}', topic '{topic}')")


def texts(spark: SparkSession, query: str) -> list[str]:
    return [row[0] for row in spark.sql(query).collect()]


def test_a_table_is_read_by_its_name_alone_and_by_a_statements_own_options(
    spark: SparkSession, table: Any, topic: str, name: str, client: Client
) -> None:
    client.create_topic(topic)
    client.append(topic, [b"a", b"b", b"c"], headers=[("h", b"1")])
    spark.sql(
        f"CREATE TABLE {name} USING dledger OPTIONS (path '{table.path}', topic '{topic}', "
        f"includeHeaders 'true', "
        "startingOffsets 'earliest', createTopic 'true') TBLPROPERTIES ('anything' = 'at all')"
    )
    value = "CAST(value AS STRING)"
    assert texts(spark, f"SELECT {value} FROM {name} ORDER BY offset") == ["a", "b", "c"]
    assert texts(spark, f"SELECT headers[0].key FROM {name} WHERE offset > 1") == ["h"]
    later = f'{{"{topic}": {{"0": 1}}}}'
    assert texts(
        spark, f"SELECT {value} FROM {name} WITH (startingOffsets = '{later}') ORDER BY offset"
    ) == ["b", "c"]
    assert spark.table(name).count() == 3
    assert spark.read.table(name).where("value = 'b'").count() == 1
    spark.sql(
        f"CREATE TABLE {name}_about USING dledger OPTIONS (path '{table.path}', metadata 'topics')"
    )
    try:
        assert spark.table(f"{name}_about").where(f"topic = '{topic}'").count() == 1
    finally:
        spark.sql(f"DROP TABLE {name}_about")


def test_a_table_is_a_stream_and_takes_a_stream_with_its_log_named(
    spark: SparkSession, table: Any, topic: str, name: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    client.append(topic, [b"a", b"b"])
    create(spark, name, table, topic)
    stream = spark.readStream.option("startingOffsets", "earliest").table(name)
    writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.options(path=table.path, topic=f"{topic}-copy").toTable(name).awaitTermination()
    assert table.values(f"{topic}-copy") == ["a", "b"]
    assert table.values(topic) == ["a", "b"]
    streamed = spark.sql(f"SELECT value FROM STREAM({name}) WITH (startingOffsets = '-100')")
    streamed.writeStream.format("memory").queryName(f"{name}_seen").trigger(
        availableNow=True
    ).start().awaitTermination()
    assert spark.table(f"{name}_seen").count() == 2


def test_rows_are_inserted_where_the_statement_says(
    spark: SparkSession, table: Any, topic: str, name: str, client: Client
) -> None:
    client.create_topic(topic)
    create(spark, name, table, topic)
    there = f"WITH (path = '{table.path}', topic = '{topic}')"
    spark.sql(f"INSERT INTO {name} {there} (key, value) VALUES (X'6B', X'61')")
    spark.sql(f"INSERT INTO {name} {there} BY NAME SELECT CAST('b' AS BINARY) AS value")
    spark.sql("SELECT CAST('c' AS BINARY) AS value").writeTo(name).options(
        path=table.path, topic=topic
    ).append()
    assert table.values(topic) == ["a", "b", "c"]
    assert spark.table(name).where("key IS NULL").count() == 2


def test_a_temporary_view_reads_and_takes_rows(
    spark: SparkSession, table: Any, topic: str, client: Client
) -> None:
    client.create_topic(topic)
    view = topic.replace("-", "_") + "_view"
    create(spark, view, table, topic, "TEMPORARY VIEW")
    spark.sql(f"INSERT INTO {view} (value) VALUES (X'61'), (X'62')")
    assert sorted(texts(spark, f"SELECT CAST(value AS STRING) FROM {view}")) == ["a", "b"]


def test_rows_of_one_table_never_go_back_to_it_when_they_are_for_another(
    spark: SparkSession, table: Any, topic: str, name: str, client: Client, checkpoint: str
) -> None:
    """Frames carry their table's column metadata, where its options are, along to the writer of
    another table."""
    client.create_topic(topic)
    client.append(topic, [b"a"])
    for made in (name, f"{name}_other"):
        create(spark, made, table, topic)
    stream = spark.readStream.option("startingOffsets", "earliest").table(name).writeStream
    try:
        with pytest.raises(PySparkException, match=r"INSERT INTO orders WITH \(path"):
            spark.sql(f"INSERT INTO {name}_other SELECT * FROM {name}")
        with pytest.raises(PySparkException, match=r"INSERT INTO orders WITH \(path"):
            spark.table(name).writeTo(f"{name}_other").append()
        query = (
            stream.option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .toTable(f"{name}_other")
        )
        with pytest.raises(StreamingQueryException, match=r"in Python .option"):
            query.awaitTermination()
    finally:
        spark.sql(f"DROP TABLE {name}_other")
    assert client.end_offsets(topic) == {0: 1}


def test_what_sql_cannot_do_is_refused_with_the_way_out(
    spark: SparkSession, table: Any, topic: str, name: str, client: Client
) -> None:
    client.create_topic(topic)
    options = f"OPTIONS (path '{table.path}', topic '{topic}')"
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        spark.sql(
            f"CREATE TABLE {name} USING dledger OPTIONS (path '{table.path}', startingOfsets 'x')"
        )
    spark.sql(
        f"CREATE TABLE {name} (key BINARY, value BINARY, topic STRING, partition INT, offset "
        f"BIGINT, timestamp TIMESTAMP, timestampType INT) USING dledger {options}"
    )
    with pytest.raises(PySparkException, match=r"USING dledger OPTIONS .* without columns"):
        spark.table(name).count()
    there = f"WITH (path = '{table.path}', topic = '{topic}')"
    assert spark.sql(f"SELECT * FROM {name} {there}").count() == 0
    with pytest.raises(PySparkException, match="a log only grows"):
        spark.sql(f"INSERT OVERWRITE {name} {there} (value) VALUES (X'61')")
    with pytest.raises(PySparkException, match="Unsupported data source type for direct query"):
        spark.sql(f"SELECT * FROM dledger.`{topic}`")


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_right_answers_whether_spark_pushes_them_down_or_not(
    spark: SparkSession, table: Any, topic: str, client: Client, pushdown: str
) -> None:
    """Spark 4.3 caches the plan of a source that takes filters on its relation: the second of two
    queries over one DataFrame gets the rows of the first. So none are taken, but by a DataFrame
    that was loaded for it (`test_spark_pushdown`)."""
    client.create_topic(topic)
    client.append(topic, [b"x"] * 10)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = table.read(topic)
        assert frame.where("offset > 7").count() == 2
        assert frame.count() == 10
        union = frame.where("offset < 2").union(frame.where("offset > 7"))
        assert sorted(row.offset for row in union.collect()) == [0, 1, 8, 9]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
