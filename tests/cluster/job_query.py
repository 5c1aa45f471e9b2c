"""The program that test_job_kills kills: it keeps count and sum of each key of topic ``events`` as
its state, and writes what a micro-batch has changed to topics ``counts`` and ``sums``, in
foreachBatch.

Before that, each task notes which records it was given, by offset and a digest of their bytes, in a
file of its own: ``reads/<micro-batch>/<run of the query>-<anything>``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.session import spark_session


def make_session(directory: Path) -> SparkSession:
    """Two executors, each a JVM with Python workers of its own; one that dies is replaced."""
    settings = {
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.speculation": "true",
        # the check wants the offsets of every batch
        "spark.sql.streaming.minBatchesToRetain": "1000000",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    return spark_session("job", builder, **settings)


def noter(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes records on, and notes them."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        here = Path(folder, context.getLocalProperty("streaming.sql.batchId"))
        here.mkdir(exist_ok=True)
        run = context.getLocalProperty("spark.jobGroup.id").replace("-", "")
        with (here / f"{run}-{uuid.uuid4().hex}").open("w") as out:
            for one in batches:
                columns = (
                    one.column(name).to_pylist() for name in ("partition", "offset", "key", "value")
                )
                for partition, offset, key, value in zip(*columns, strict=True):
                    out.write(f"{partition} {offset} {digest(key, value)}\n")
                out.flush()
                yield one

    return note


def digest(key: bytes, value: bytes) -> str:
    return hashlib.sha256(len(key).to_bytes(4) + key + value).hexdigest()


def writer(servers: str) -> Callable[[DataFrame, int], None]:
    """Writes each changed key with the batch and what it has come to."""

    def write(frame: DataFrame, batch: int) -> None:
        changed = frame.persist()
        for topic, column in (("counts", "records"), ("sums", "total")):
            rows = changed.selectExpr("key", f"concat('{batch},', {column}) AS value")
            log = rows.write.format("dledger").option("dledger.bootstrap.servers", servers)
            log.option("topic", topic).mode("append").save()
        changed.unpersist()

    return write


def main(servers: str, directory: Path) -> None:
    spark = make_session(directory)
    reader = spark.readStream.format("dledger").option("dledger.bootstrap.servers", servers)
    reader = reader.options(subscribe="events", startingOffsets="earliest", groupId="job")
    events = reader.option("maxOffsetsPerTrigger", 300).load()
    noted = events.mapInArrow(noter(str(directory / "reads")), events.schema)
    numbers = noted.selectExpr("key", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
    changed = numbers.groupBy("key").agg(
        f.count("number").alias("records"), f.sum("number").alias("total")
    )
    stream = changed.writeStream.outputMode("update").foreachBatch(writer(servers))
    stream.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
