"""What Spark does: records into Kafka, a stream from there to dledger, another one back, and both
read as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from session import spark_session

TOPIC: Final = "orders"
BACK: Final = "orders-back"
BY_KEY: Final = "orders-by-key"
PARTITIONS: Final = 3

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], Any]
"""Partition, offset, key, value, headers, timestamp."""


def session(jars: Path) -> SparkSession:
    """With Spark's own Kafka connector."""
    files = sorted(map(str, (jars / "connector").glob("*.jar")))
    if not files:
        raise SystemExit(
            f"no jars of Spark's Kafka connector in {jars / 'connector'}: run make kafka"
        )
    return spark_session("from Kafka", **{"spark.jars": ",".join(files)})


def fill(spark: SparkSession, kafka: str, first: int, last: int) -> None:
    """Orders, some of them without a key, without a value, or with headers."""
    orders = spark.range(first, last, 1, 2).selectExpr(
        "CASE WHEN id % 10 < 9 THEN CAST(concat('customer-', id % 997) AS BINARY) END AS key",
        "CASE WHEN id % 101 > 0 THEN CAST(concat('order ', id) AS BINARY) END AS value",
        "CASE WHEN id % 5 = 0 THEN array(struct('shop' AS key, CAST(CAST(id % 7 AS STRING) AS "
        "BINARY) AS value)) END AS headers",
    )
    orders.write.format("kafka").option("kafka.bootstrap.servers", kafka).option(
        "topic", TOPIC
    ).save()


def copy(spark: SparkSession, kafka: str, servers: str, checkpoint: str, rows: int) -> None:
    """Kafka to dledger, at most ``rows`` in a micro-batch, until everything that is there now is
    copied.

    Column ``partition`` keeps each record where it was, ``timestamp`` keeps its time. Without these
    two, keys go to the same partitions all the same, and times are those of the copy.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", TOPIC)
    )
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    orders = reader.option("maxOffsetsPerTrigger", rows).load()
    writer = orders.select("key", "value", "headers", "partition", "timestamp").writeStream.format(
        "dledger"
    )
    writer = writer.option("dledger.bootstrap.servers", servers).option("topic", TOPIC)
    writer = writer.option("createTopic", "true").option("createTopic.partitions", PARTITIONS)
    writer.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()


def copy_back(spark: SparkSession, kafka: str, servers: str, checkpoint: str) -> None:
    """dledger to Kafka: the same with the two formats changed places. Kafka's sink is at least
    once, and has no column for times."""
    reader = (
        spark.readStream.format("dledger")
        .option("dledger.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
    )
    orders = reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()
    writer = orders.select("key", "value", "headers", "partition").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", kafka).option("topic", BACK)
    writer.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()


def copy_by_key(spark: SparkSession, servers: str) -> None:
    """The records that have a key, to partitions that it alone chooses."""
    keyed = in_log(spark, servers, TOPIC).where("key IS NOT NULL").select("key", "value")
    writer = (
        keyed.write.format("dledger")
        .option("dledger.bootstrap.servers", servers)
        .option("topic", BY_KEY)
    )
    writer.option("createTopic", "true").option("createTopic.partitions", PARTITIONS).mode(
        "append"
    ).save()


def in_kafka(spark: SparkSession, kafka: str, topic: str) -> DataFrame:
    """All of a topic in Kafka."""
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
    )
    return reader.option("includeHeaders", "true").load()


def in_log(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """All of a topic in dledger."""
    reader = (
        spark.read.format("dledger")
        .option("dledger.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    return reader.option("includeHeaders", "true").load()


def records(frame: DataFrame) -> list[Record]:
    """Rows as plain values, by partition and offset."""
    found = [
        (
            row.partition,
            row.offset,
            plain(row.key),
            plain(row.value),
            tuple((header.key, bytes(header.value)) for header in row.headers or ()),
            row.timestamp,
        )
        for row in frame.toLocalIterator()
    ]
    return sorted(found, key=lambda one: one[:2])


def plain(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
