"""The program that test_spark_connect runs: a write, a read and a stream over Spark Connect."""

import sys

from pyspark.sql import SparkSession

from examples.session import spark_session
from tests.spark.conftest import Table


def main(path: str, checkpoint: str) -> None:
    spark = spark_session("connect", SparkSession.builder.remote("local[2]"))
    table = Table(spark, path)
    table.write(spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value"), "a")
    table.copy(table.stream("a"), "b", checkpoint)
    rows = table.read("b").selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
    print("sum", rows.selectExpr("SUM(n)", "COUNT(*)").collect()[0].asDict())  # noqa: T201 - the test reads it
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
