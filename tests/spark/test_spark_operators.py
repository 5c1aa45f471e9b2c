"""Streams with state, joins of two logs, and copies over several topics, with a real Spark and a
real group."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dledger import Client

pytestmark = pytest.mark.spark


def run(frame: DataFrame, checkpoint: Path, table: Any, topic: str) -> None:
    """Write a stream to a topic until everything that was there when it started is written."""
    writer = frame.writeStream.format("dledger").options(topic=topic, path=table.path)
    writer.option("checkpointLocation", str(checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()


def test_a_stream_that_drops_repeats_writes_each_value_once_over_a_restart(
    table: Any, topic: str, client: Client, tmp_path: Path
) -> None:
    """What it has seen is Spark's state; what it has written is the log's."""
    client.create_topic(topic)
    for values in ([b"a", b"b", b"b", b"c"], [b"c", b"a", b"d"]):
        client.append(topic, values)
        source = table.stream(topic, startingOffsets="earliest").select("value")
        run(source.dropDuplicates(["value"]), tmp_path / "checkpoint", table, f"{topic}-once")
    assert sorted(table.values(f"{topic}-once")) == ["a", "b", "c", "d"]


def test_two_topics_are_joined_and_each_pair_is_written_once(
    table: Any, topic: str, client: Client, tmp_path: Path
) -> None:
    for side in ("orders", "payments"):
        client.create_topic(f"{topic}-{side}", 2)
    expected = []
    for first in (0, 10):
        keys = [str(number).encode() for number in range(first, first + 10)]
        for side in ("orders", "payments"):
            for part in range(2):
                mine = keys[part::2]
                client.append(
                    f"{topic}-{side}",
                    [side[0].encode() + key for key in mine],
                    keys=mine,
                    partition=part,
                )
        expected += [f"o{key.decode()}p{key.decode()}" for key in keys]
        orders = table.stream(
            f"{topic}-orders", startingOffsets="earliest", maxOffsetsPerTrigger=10
        )
        payments = table.stream(
            f"{topic}-payments", startingOffsets="earliest", maxOffsetsPerTrigger=8
        )
        joined = orders.selectExpr("key", "value AS o").join(
            payments.selectExpr("key", "value AS p"), "key"
        )
        run(
            joined.selectExpr("concat(o, p) AS value"),
            tmp_path / "checkpoint",
            table,
            f"{topic}-pairs",
        )
    assert sorted(table.values(f"{topic}-pairs")) == sorted(expected)


def test_chain_of_copies_in_one_group_is_exact_and_reports_its_progress(
    table: Any, topic: str, client: Client, tmp_path: Path
) -> None:
    """Each micro-batch is read and written in the same log: its rows and its commit are one entry
    of it."""
    names = [f"{topic}-{step}" for step in "abc"]
    client.create_topic(names[0], 3)
    for partition in range(3):
        client.append(
            names[0], [f"{partition} {n}".encode() for n in range(50)], partition=partition
        )
    for source, target in itertools.pairwise(names):
        options = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 80,
            "groupId": f"{topic}-{target}",
        }
        frame = table.stream(source, **options).select("key", "value", "partition", "timestamp")
        writer = (
            frame.writeStream.format("dledger")
            .option("createTopic.partitions", 3)
            .option("path", table.path)
        )
        writer = writer.options(topic=target, checkpointLocation=str(tmp_path / target)).trigger(
            availableNow=True
        )
        writer.start().awaitTermination()
    assert table.values(names[2]) == table.values(names[0])
    for source, target in itertools.pairwise(names):
        assert client.group(f"{topic}-{target}").offsets == {source: dict.fromkeys(range(3), 50)}


def test_arrow_batches_without_a_limit_are_refused_as_documented(
    spark: SparkSession, table: Any, topic: str, client: Client
) -> None:
    """Spark itself refuses them."""
    client.create_topic(topic)
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    try:
        with pytest.raises(
            PySparkException, match="maximum arrow batch size should be greater than 0"
        ):
            table.read(topic).collect()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


@pytest.mark.parametrize("size", [7, 1_000_000])
def test_any_size_of_spark_s_arrow_batches_gives_the_same_rows(
    spark: SparkSession, table: Any, topic: str, tmp_path: Path, size: int
) -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(size))
    try:
        table.write(spark.range(0, 500, 1, 1).selectExpr("CAST(id AS STRING) AS value"), topic)
        run(
            table.stream(topic, startingOffsets="earliest"),
            tmp_path / "checkpoint",
            table,
            f"{topic}-copy",
        )
        assert table.values(f"{topic}-copy") == [str(number) for number in range(500)]
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
