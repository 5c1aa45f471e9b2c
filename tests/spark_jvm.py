"""How the JVMs of tests start: quickly, for they live for seconds.

Most of what a start of Spark takes is the loading of classes. ``python tests/spark_jvm.py FILE``
writes an archive of those that the queries below load, and a JVM with that archive starts in less
than half of the time. A JVM of another kind, or with another class path, does not use it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"
"""Where ``make test`` has it written."""
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
"""What the second compiler and the parallel collector cost never comes back."""


def options() -> str:
    """For ``SPARK_SUBMIT_OPTS``."""
    return f"{QUICK} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK


def write_archive(path: Path) -> None:
    """Of the classes that are loaded by queries as those of the tests are."""
    part = path.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={part}"
    from examples.session import spark_session

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warehouse = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        session = spark_session("classes", None, **warehouse)
        play(session, folder)
        gateway: Any = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which the JVM ends, and writes
        gateway.proc.wait()
    part.replace(path)


def play(spark: Any, folder: Path) -> None:
    """Batches and streams, of both kinds of topics."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    from dledger import Client, EmbeddedGroup

    with EmbeddedGroup(folder / "log", replicas=1) as group:
        format_, servers = "dledger", {"dledger.bootstrap.servers": group.bootstrap_servers}
        rows = spark.range(0, 100, 1, 2)
        raw = rows.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
        with Client(group.bootstrap_servers) as client:
            client.create_topic("typed", schema=pa.schema({"id": pa.int64(), "x": pa.float64()}))
        for topic, frame in ("raw", raw), ("typed", rows.selectExpr("id", "id * 0.5d AS x")):
            options = {**servers, "createTopic": "true", "topic": topic}
            frame.write.format(format_).options(**options).mode("append").save()
        read = spark.read.format(format_).options(**servers, subscribe="raw").load()
        first = f.col("value").cast("string").substr(1, 1).alias("first")
        read.groupBy(first).count().orderBy("first").show()
        read.createOrReplaceTempView("records")
        spark.sql("SELECT max(offset), count(*) FROM records WHERE partition = 0").collect()
        stream = spark.readStream.format(format_).options(
            **servers, subscribe="raw", startingOffsets="earliest"
        )
        plain = stream.load().select("key", "value")
        counts = plain.groupBy("key").count()
        copy = plain.writeStream.format(format_).options(**servers, createTopic="true", topic="to")
        by_batch = counts.writeStream.outputMode("complete").foreachBatch(
            lambda batch, number: batch.collect()
        )
        for number, writer in enumerate((copy, by_batch)):
            writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}"))
            writer.trigger(availableNow=True).start().awaitTermination()
        spark.createDataFrame([(1, "a")], "n int, s string").write.json(str(folder / "json"))
        spark.read.json(str(folder / "json")).select(f.udf(str, "string")("n")).collect()


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
