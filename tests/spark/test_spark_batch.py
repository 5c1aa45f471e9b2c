"""Batch reads and writes with a real Spark and a real group."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.functions import udf
from pyspark.sql.types import StructType

from dledger import Client
from dledger.datasource.table.schema import read_schema
from pyspark_dledger import DefaultSource
from tests.spark.conftest import Table

pytestmark = pytest.mark.spark


def test_records_come_back_as_they_were_written(
    spark: SparkSession, table: Any, topic: str, client: Client
) -> None:
    """Null keys and values, headers, times and partitions included; the session's time zone changes
    nothing."""
    time = datetime(2024, 3, 10, 7, 30, tzinfo=UTC)
    rows = [
        (b"k", b"v", time, 1, [(b"\xff", "h")]),
        (None, b"", time, 0, []),
        (b"", None, time, 1, None),
    ]
    frame = spark.createDataFrame(
        [(k, v, t, p, h and [(name, data) for data, name in h]) for k, v, t, p, h in rows],
        "key BINARY, value BINARY, timestamp TIMESTAMP, partition INT, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    table.write(frame, topic, **{"createTopic.partitions": 2})
    read = table.read(topic, includeHeaders=True)
    assert read.columns == read_schema(True).names
    some = table.read(topic, columns="value, offset")
    assert sorted(some.collect(), key=str) == sorted(
        read.select("value", "offset").collect(), key=str
    )
    got = sorted(
        read.selectExpr("*", "unix_micros(timestamp) AS us").collect(),
        key=lambda r: (r.partition, r.offset),
    )
    us = int(time.timestamp()) * 1_000_000
    assert [
        (r.key, r.value, r.partition, r.offset, r.us, r.timestampType, r.topic) for r in got
    ] == [
        (None, b"", 0, 0, us, 0, topic),
        (b"k", b"v", 1, 0, us, 0, topic),
        (b"", None, 1, 1, us, 0, topic),
    ]
    assert [r.headers and [(h.key, bytes(h.value)) for h in r.headers] for r in got] == [
        [],
        [("h", b"\xff")],
        None,
    ]
    assert client.end_offsets(topic) == {0: 1, 1: 2}


def test_many_rows_are_all_there_once_in_whatever_number_of_tasks(
    spark: SparkSession, table: Any, topic: str
) -> None:
    frame = spark.range(0, 100_000, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    table.write(frame, topic, compression="zstd")
    read = table.read(topic, minPartitions=5)
    assert read.rdd.getNumPartitions() >= 5
    total = read.selectExpr(
        "COUNT(*)",
        "COUNT(DISTINCT value)",
        "MAX(offset)",
        "SUM(CAST(CAST(value AS STRING) AS LONG))",
    ).first()
    assert tuple(total) == (100_000, 100_000, 99_999, sum(range(100_000)))


def test_task_excludes_loaded_objects_from_garbage_collections(
    spark: SparkSession, table: Any, topic: str, client: Client
) -> None:
    """The objects are those that the worker had loaded before the task."""
    table.write(spark.range(10).selectExpr("CAST(id AS STRING) AS value"), topic)

    class Reader(DataSourceReader):
        def __init__(self, inner: DataSourceReader) -> None:
            self.inner = inner

        def partitions(self) -> Sequence[InputPartition]:
            return self.inner.partitions()

        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            rows = sum(batch.num_rows for batch in self.inner.read(partition))
            yield rows, gc.get_freeze_count()

    class Watched(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "watched"

        def schema(self) -> Any:
            return "rows long, frozen long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(super().reader(read_schema(False)))

    spark.dataSource.register(Watched)
    servers = {"dledger.bootstrap.servers": client.bootstrap_servers}
    (found,) = spark.read.format("watched").options(subscribe=topic, **servers).load().collect()
    assert found.rows == 10
    assert found.frozen > 10_000


def test_a_hundred_partitions_with_little_to_read_are_read_by_fewer_tasks(
    spark: SparkSession, table: Any, topic: str, client: Client
) -> None:
    client.create_topic(topic, 100)
    rows = spark.range(0, 300, 1, 1).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id % 100 AS INT) AS partition"
    )
    table.write(rows, topic)
    back = table.read(topic)
    assert back.rdd.getNumPartitions() == 64
    assert table.values(topic) == [
        str(first + 100 * offset) for first in range(100) for offset in range(3)
    ]
    assert table.read(topic, minPartitions=100).rdd.getNumPartitions() == 100


def test_one_write_goes_to_the_topics_of_its_rows(
    spark: SparkSession, table: Any, topic: str
) -> None:
    frame = spark.range(10).selectExpr(
        f"concat('{topic}-', id % 2) AS topic", "CAST(id AS STRING) AS value"
    )
    table.write(frame)
    assert sorted(table.values(f"{topic}-0")) == ["0", "2", "4", "6", "8"]
    assert sorted(table.values(f"{topic}-1")) == ["1", "3", "5", "7", "9"]


def test_a_task_that_fails_and_runs_again_writes_once(
    spark: SparkSession, table: Any, topic: str
) -> None:
    def fail_once(number: int) -> str:
        task = TaskContext.get()
        assert task is not None
        if number == 50_000 and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails in the middle")
        return str(number)

    value = udf(fail_once, "string", useArrow=False)
    table.write(spark.range(0, 60_000, 1, 2).select(value("id").alias("value")), topic)
    assert sorted(map(int, table.values(topic))) == list(range(60_000))


def test_a_read_between_times_has_exactly_the_records_between_them(
    table: Any, topic: str, client: Client
) -> None:
    """Records of one stored batch lie on both sides of each bound."""
    client.create_topic(topic, 2)
    for partition in range(2):
        values = [f"{partition}-{i}".encode() for i in range(100)]
        times = [1_000_000 + 1000 * i for i in range(100)]
        client.append(topic, values, timestamps=times, partition=partition)
    until = "1970-01-01T00:00:01.020Z"
    read = table.read(
        topic, startingTimestamp=1010, endingTimestamp=until, maxRecordsPerPartition=3
    )
    assert read.rdd.getNumPartitions() == 8
    assert sorted(row.value.decode() for row in read.collect()) == [
        f"{p}-{i}" for p in range(2) for i in range(10, 20)
    ]


def test_keys_go_to_kafkas_partitions_and_round_robin_spreads_rows(
    spark: SparkSession, table: Any, topic: str
) -> None:
    """Partitions of the keys: murmur2 of UtilsTest in Kafka's Java client, without its sign, modulo
    7."""
    hashes = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "abc": 479470107,
    }
    frame = spark.createDataFrame(
        [(key, "v") for key in hashes], "key STRING, value STRING"
    ).coalesce(1)
    seven = {"compression": "lz4", "createTopic.partitions": 7}
    table.write(frame, f"{topic}-key", deliveryGuarantee="at-least-once", **seven)
    rows = table.read(f"{topic}-key").collect()
    assert {row.key.decode(): row.partition for row in rows} == {
        key: (h & 0x7FFFFFFF) % 7 for key, h in hashes.items()
    }
    table.write(frame, f"{topic}-row", partitioner="roundRobin", **{"createTopic.partitions": 2})
    counts = table.read(f"{topic}-row").groupBy("partition").count().collect()
    assert sorted(map(tuple, counts)) == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda writer: writer, 'use either the "Append"'),
        (lambda writer: writer.mode("error"), 'use either the "Append"'),
        (lambda writer: writer.mode("ignore"), 'use either the "Append"'),
        (
            lambda writer: writer.mode("append").partitionBy("value"),
            "clustering columns do not match",
        ),
    ],
)
def test_save_mode_that_a_log_does_not_have_is_refused_before_a_write(
    spark: SparkSession, table: Any, topic: str, client: Client, write: Any, message: str
) -> None:
    """These are Spark's own words: it asks the source nothing before. docs/options.md says what to
    write instead."""
    client.create_topic(topic)
    writer = spark.sql("SELECT 'x' AS value").write.format("dledger")
    writer = writer.options(topic=topic, path=table.path)
    with pytest.raises(PySparkException, match=message):
        write(writer).save()
    assert client.end_offsets(topic) == {0: 0}


def test_an_empty_frame_and_an_empty_topic_are_no_trouble(
    spark: SparkSession, table: Any, topic: str
) -> None:
    table.write(spark.range(0).selectExpr("CAST(id AS STRING) AS value"), topic, createTopic=True)
    table.write(spark.range(1).selectExpr("'x' AS value"), topic)
    assert table.values(topic) == ["x"]
    assert table.read(topic, startingOffsets=f'{{"{topic}": {{"0": 1}}}}').count() == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            lambda t, topic: t.read(topic, startingOffset="earliest"),
            "did you mean 'startingOffsets'",
        ),
        (lambda t, topic: t.read("nowhere").count(), "topic 'nowhere' does not exist"),
        (
            lambda t, topic: t.read(topic, startingOffsets=f'{{"{topic}": {{"0": 9}}}}').count(),
            "not including, 1",
        ),
        (
            lambda t, topic: t.read(topic, startingOffsets="{").count(),
            "latest, committed.*or offsets as in",
        ),
        (
            lambda t, topic: t.write(t.spark.range(1), topic),
            r"column 'id' \(bigint\) cannot be written",
        ),
        (
            lambda t, topic: t.write(t.spark.range(1).selectExpr("id AS value"), topic),
            "CAST\\(value AS STRING\\)",
        ),
        (lambda t, topic: t.write(t.spark.sql("SELECT 'x' AS value")), "which topic"),
        (
            lambda t, topic: (
                t.spark.sql("SELECT 'x' AS value")
                .write.format("dledger")
                .save(t.path, mode="overwrite", topic=topic)
            ),
            "a log only grows",
        ),
        (
            lambda t, topic: Table(t.spark, f"{t.path}/group.json").read("t").count(),
            "group.json",
        ),
    ],
)
def test_a_mistake_is_answered_through_spark_with_the_way_out(
    spark: SparkSession, table: Any, topic: str, what: Any, message: str
) -> None:
    table.write(spark.sql("SELECT 'x' AS value"), topic)
    with pytest.raises(PySparkException, match=message):
        what(table, topic)
