"""The Spark program of the demo: one query that writes the flights into the log, one that reads
them from it.

It says on standard output, one JSON object a line, what its queries have done, and ends when its
input does. It may be killed at any moment and started again with the same arguments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.data import CARRIER, COLUMNS, FLIGHT
from session import spark_session


def say(**facts: Any) -> None:
    """Tell the demo."""
    print(json.dumps(facts), flush=True)


def ingest(spark: SparkSession, servers: str, inbox: str, checkpoint: str) -> StreamingQuery:
    """CSV files, one a micro-batch, into the topic: the line is the value, carrier and flight
    number are the key."""
    field = f.split("value", ",")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(inbox)
    events = lines.select(f.concat(field[CARRIER], field[FLIGHT]).alias("key"), "value")
    writer = events.writeStream.format("dledger").option("dledger.bootstrap.servers", servers)
    return (
        writer.option("topic", "flights")
        .option("checkpointLocation", f"{checkpoint}/ingest")
        .start()
    )


def delays(spark: SparkSession, servers: str, checkpoint: str) -> StreamingQuery:
    """The topic, at most 20,000 records a micro-batch, into running totals by carrier."""
    reader = spark.readStream.format("dledger").option("dledger.bootstrap.servers", servers)
    reader = reader.option("subscribe", "flights").option("startingOffsets", "earliest")
    flights = reader.option("maxOffsetsPerTrigger", 20_000).load()
    event = f.from_csv(f.col("value").cast("string"), COLUMNS, {"nullValue": "NA"}).alias("event")
    totals = (
        flights.select(event)
        .groupBy("event.carrier")
        .agg(
            f.count("*").alias("flights"),
            f.sum("event.dep_delay").alias("departure"),
            f.count("event.arr_delay").alias("arrivals"),
            f.sum("event.arr_delay").alias("arrival"),
            f.sum("event.distance").alias("distance"),
        )
    )
    writer = totals.writeStream.outputMode("complete").option(
        "checkpointLocation", f"{checkpoint}/delays"
    )
    return writer.foreachBatch(tell_totals).start()


def tell_totals(batch: DataFrame, batch_id: int) -> None:
    """A sink that hands each new table to the demo."""
    say(batch=batch_id, totals=[row.asDict() for row in batch.collect()])


def main(servers: str, inbox: str, checkpoint: str) -> None:
    """Run both queries until standard input ends."""
    spark = spark_session("flights")
    queries = [ingest(spark, servers, inbox, checkpoint), delays(spark, servers, checkpoint)]
    say(started=[str(query.id) for query in queries])
    sys.stdin.read()
    for query in queries:
        query.stop()
        if error := query.exception():
            raise error
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
