"""The program that test_spark_not_found runs: a session whose first look-up of Python sources
fails."""

import sys

from pyspark.sql import SparkSession

from dledger.datasource.java import ensure_java


def main(path: str, line: str, python: str) -> None:
    ensure_java()
    exec(python, {})
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )

    def write() -> None:
        frame = spark.range(0, 3, 1, 1).selectExpr("CAST(id AS STRING) AS value")
        frame.write.format("dledger").option("topic", "mended").mode("append").save(path)

    try:
        write()
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        print("not found")  # noqa: T201 - the test reads it
    exec(line, {"spark": spark})
    write()
    print("rows", spark.read.format("dledger").option("subscribe", "mended").load(path).count())  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
