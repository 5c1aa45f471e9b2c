"""The program that test_driver_kills kills: a streaming copy from topic ``a`` to topic ``b``, to
the end of ``a``.

It tells consumer group ``copy`` how far it is.
"""

import os
import sys

from pyspark.sql import SparkSession

from dledger.datasource.java import ensure_java


def main(servers: str, checkpoint: str) -> None:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]").appName("copy").config("spark.ui.enabled", "false")
    )
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    reader = (
        spark.readStream.format("dledger")
        .option("dledger.bootstrap.servers", servers)
        .option("subscribe", "a")
    )
    reader = reader.option("startingOffsets", "earliest").option("groupId", "copy")
    frame = reader.option("maxOffsetsPerTrigger", 500).load()
    frame = frame.select("key", "value")
    writer = (
        frame.writeStream.format("dledger")
        .option("dledger.bootstrap.servers", servers)
        .option("topic", "b")
    )
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
