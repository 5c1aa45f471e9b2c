"""The program that test_spark_connect runs: a write, a read and a stream over Spark Connect."""

import os
import sys

from pyspark.sql import SparkSession

from dledger.datasource.java import ensure_java


def main(path: str, checkpoint: str) -> None:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("dledger").option("topic", "a").mode("append").save(path)
    stream = (
        spark.readStream.format("dledger")
        .option("subscribe", "a")
        .option("startingOffsets", "earliest")
    )
    writer = (
        stream.load(path).writeStream.format("dledger").option("topic", "b").option("path", path)
    )
    writer.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()
    copy = spark.read.format("dledger").option("subscribe", "b").load(path)
    rows = copy.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
    print("sum", rows.selectExpr("SUM(n)", "COUNT(*)").collect()[0].asDict())  # noqa: T201 - the test reads it
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
