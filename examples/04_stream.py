"""python examples/04_stream.py

A streaming query that reads one topic and writes another, exactly once, and goes on where it ended.
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dledger import Client, EmbeddedGroup
from session import spark_session


def large_orders(spark: SparkSession, servers: str) -> DataFrame:
    """The query: orders of 500 and more, in pieces of at most 2,000 records."""
    reader = spark.readStream.format("dledger").option("dledger.bootstrap.servers", servers)
    reader = reader.option("subscribe", "orders").option("startingOffsets", "earliest")
    orders = reader.option("maxOffsetsPerTrigger", 2000).load()
    return orders.where(f.col("value").cast("string").cast("int") >= 500).select("key", "value")


def run_once(spark: SparkSession, servers: str, checkpoint: str) -> None:
    """Everything that is there now, then end."""
    writer = (
        large_orders(spark, servers)
        .writeStream.format("dledger")
        .option("dledger.bootstrap.servers", servers)
    )
    writer = (
        writer.option("topic", "large")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    query = writer.start()
    query.awaitTermination()
    rows = sum(p.numInputRows for p in query.recentProgress)
    print(f"  {len(query.recentProgress)} micro-batches, {rows} rows read")


def main() -> None:
    """Two runs of the same query: the second one does only what the first has not done."""
    spark = spark_session("stream")
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedGroup(f"{directory}/log", replicas=3) as group,
    ):
        servers, checkpoint = group.bootstrap_servers, f"{directory}/checkpoint"
        with Client(servers) as client:
            client.create_topic("orders")
            client.create_topic("large")
            for n in range(2):
                client.append("orders", [str(i % 1000).encode() for i in range(5000)])
                print(f"run {n + 1}: orders has {client.end_offsets('orders')[0]} records")
                run_once(spark, servers, checkpoint)
                print(f"  large has {client.end_offsets('large')[0]} records")
    spark.stop()


if __name__ == "__main__":
    main()
