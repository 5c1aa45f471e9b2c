"""python examples/08_typed_topic.py

A DataFrame of any columns goes in as it is and comes back with its own schema, also when the
columns change.
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dledger import EmbeddedGroup
from session import spark_session


def save(frame: DataFrame, log: str, **options: str) -> None:
    """Append a frame to the topic; no to_json, no registry."""
    frame.write.format("dledger").options(topic="orders", **options).mode("append").save(log)


def load(spark: SparkSession, log: str, **options: str) -> DataFrame:
    """The topic as a table; its schema comes from the log."""
    return spark.read.format("dledger").options(subscribe="orders", **options).load(log)


def main() -> None:
    """Two frames whose columns differ, one that does not fit, and four ways to read them."""
    spark = spark_session("typed")
    with tempfile.TemporaryDirectory() as directory:
        log = f"{directory}/log"
        orders = spark.range(1000).select(
            f.col("id").cast("int"),
            f.concat(f.lit("customer-"), f.col("id") % 10).alias("customer"),
            f.array(f.lit("book"), f.lit("pen")).alias("items"),
            f.struct((f.col("id") * 2).alias("amount"), f.lit("EUR").alias("currency")).alias(
                "price"
            ),
        )
        save(orders, log, keyColumn="customer")
        load(spark, log).printSchema()

        more = orders.select(
            f.col("id").cast("long") + 5_000_000_000, "customer", "items", "price", f.lit("web")
        )
        more = more.toDF("id", "customer", "items", "price", "channel")
        try:
            save(more, log)
        except Exception as error:  # Spark wraps what the writer says
            print(
                "refused:",
                *[line for line in str(error).splitlines() if line.startswith("!")],
                sep="\n  ",
            )
        save(more, log, schemaEvolution="add")
        load(spark, log).groupBy("channel").agg(f.count("*"), f.max("id")).orderBy("channel").show()
        print("version 1 has", ", ".join(load(spark, log, schemaVersion="1").columns))

        as_json = load(spark, log, valueFormat="json", startingOffsets='{"orders": {"0": 999}}')
        for row in as_json.selectExpr(
            "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
        ).take(2):
            print(row.key, row.value)
        print("rows:", load(spark, log).count())
        EmbeddedGroup(log).stop()  # end the nodes now: the folder is about to go
    spark.stop()


if __name__ == "__main__":
    main()
