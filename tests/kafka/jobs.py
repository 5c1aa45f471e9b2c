"""Three jobs as they run against Kafka. test_jobs.py moves them by the edits that
docs/from-kafka.md tells, and by nothing else."""

from __future__ import annotations

import sqlite3
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ORDER = "event string, id long, customer string, amount long, at timestamp"
PAYMENT = "id long, paid long, at timestamp"


def stream(spark: SparkSession, topic: str, schema: str) -> DataFrame:
    """The JSON values of a topic as columns."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "kafka:9092")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("minPartitions", "4")
        .option("maxOffsetsPerTrigger", "700")
        .option("kafka.group.id", "jobs")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.partition.fetch.bytes", "1048576")
        .option("kafkaConsumer.pollTimeoutMs", "60000")
        .option("fetchOffset.numRetries", "5")
    )
    rows = reader.load().selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS row")
    return rows.select("row.*")


def join(spark: SparkSession, checkpoint: str) -> Any:
    """Orders with their payments, as far as they are paid within an hour."""
    orders = stream(spark, "orders", ORDER).withWatermark("at", "1 hour").alias("o")
    payments = stream(spark, "payments", PAYMENT).withWatermark("at", "1 hour").alias("p")
    paid = orders.join(
        payments.selectExpr("id AS order_id", "paid", "at AS paid_at"),
        on=_expr("id = order_id AND paid_at BETWEEN at AND at + INTERVAL 1 HOUR"),
    )
    out = paid.selectExpr(
        "CAST(id AS STRING) AS key", "to_json(struct(event, id, customer, amount, paid)) AS value"
    )
    return (
        out.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", "kafka:9092")
        .option("topic", "paid-orders")
        .option("kafka.acks", "all")
        .option("kafka.compression.type", "lz4")
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def totals(spark: SparkSession, checkpoint: str) -> Any:
    """Each event once, summed up by customer and ten minutes."""
    events = stream(spark, "orders", ORDER).withWatermark("at", "10 minutes")
    once = events.dropDuplicatesWithinWatermark(["event"])
    sums = once.groupBy(_expr("window(at, '10 minutes')"), "customer").agg(
        _expr("count(*) AS orders"), _expr("sum(amount) AS amount")
    )
    out = sums.selectExpr(
        "customer AS key", "to_json(struct(window.start, customer, orders, amount)) AS value"
    )
    return (
        out.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", "kafka:9092")
        .option("topic", "totals")
        .option("kafka.linger.ms", "20")
        .option("kafka.enable.idempotence", "true")
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def upsert(spark: SparkSession, checkpoint: str, table: str) -> Any:
    """The last order of each customer in a table, and each change of it in a topic."""

    def batch(rows: DataFrame, _: int) -> None:
        rows = rows.persist()
        last = rows.groupBy("customer").agg(
            _expr("max_by(id, (at, id)) AS id"), _expr("max(at) AS at")
        )
        with sqlite3.connect(table) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS last (customer TEXT PRIMARY KEY, id INT, at TEXT)"
            )
            database.executemany(
                "INSERT INTO last VALUES (?, ?, ?) ON CONFLICT (customer) DO UPDATE SET "
                "id = excluded.id, at = excluded.at WHERE excluded.at >= last.at",
                [(row.customer, row.id, str(row.at)) for row in last.toLocalIterator()],
            )
        (
            rows.selectExpr("customer AS key", "CAST(id AS STRING) AS value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", "kafka:9092")
            .option("topic", "changes")
            .option("kafka.client.id", "upsert")
            .mode("append")
            .save()
        )
        rows.unpersist()

    return (
        stream(spark, "orders", ORDER)
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)
