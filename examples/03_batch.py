"""python examples/03_batch.py

Write a DataFrame into a topic and read a topic as a DataFrame, with nothing but a path for an
address.
"""

import tempfile

from pyspark.sql import functions as f

from session import spark_session


def main() -> None:
    """The path is the address: the nodes are started when somebody comes, and end by themselves
    some time later."""
    spark = spark_session("batch")
    with tempfile.TemporaryDirectory() as directory:
        log = f"{directory}/log"
        orders = spark.range(100_000).select(
            f.concat(f.lit("customer-"), f.col("id") % 100).alias("key"),
            f.to_json(f.struct("id", (f.col("id") % 7 * 10).alias("amount"))).alias("value"),
        )
        orders.write.format("dledger").option("topic", "orders").mode("append").save(log)

        table = spark.read.format("dledger").option("subscribe", "orders").load(log)
        table.printSchema()
        amount = f.get_json_object(f.col("value").cast("string"), "$.amount").cast("int")
        totals = table.groupBy(f.col("key").cast("string").alias("customer")).agg(
            f.sum(amount).alias("total")
        )
        totals.orderBy(f.desc("total"), "customer").show(5)

        offsets = {
            "startingOffsets": '{"orders": {"0": 10}}',
            "endingOffsets": '{"orders": {"0": 15}}',
        }
        some = spark.read.format("dledger").option("subscribe", "orders").options(**offsets)
        some.load(log).selectExpr("offset", "cast(key as string)", "cast(value as string)").show(
            truncate=False
        )
        print("rows:", table.count())
        stop(log)
    spark.stop()


def stop(log: str) -> None:
    """End the nodes now: the folder is about to go."""
    from dledger import EmbeddedGroup

    EmbeddedGroup(log).stop()


if __name__ == "__main__":
    main()
