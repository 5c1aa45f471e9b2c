"""A query that copies topics, stopped between a commit in the log and the one in its checkpoint.

Uses the public interface alone, so that the release before can run it, too::

    python spark_story.py write DIRECTORY    # makes DIRECTORY/log and DIRECTORY/checkpoint
    python spark_story.py go-on DIRECTORY    # lets the query go on; prints what it has copied
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dledger import Client, EmbeddedGroup
from dledger.config import GroupConfig

OLDER = {"founding_version": 0} if "founding_version" in GroupConfig.__dataclass_fields__ else {}
"""Settings of a group that older releases can read."""


def copy(spark: SparkSession, root: Path) -> None:
    """Let the query read what is new."""
    stream = spark.readStream.format("dledger").options(subscribe="t,u", startingOffsets="earliest")
    rows = stream.load(str(root / "log")).select("key", "value")
    options = {
        "topic": "copy",
        "path": str(root / "log"),
        "checkpointLocation": str(root / "checkpoint"),
    }
    query = rows.writeStream.format("dledger").options(**options).trigger(availableNow=True)
    query.start().awaitTermination()


def write(spark: SparkSession, root: Path, client: Client) -> None:
    for topic, partitions in (("t", 2), ("u", 1), ("copy", 2)):
        client.create_topic(topic, partitions)
    for first, last, first_u, last_u in ((0, 10, 0, 5), (10, 15, 5, 8)):
        for partition in (0, 1):
            values = [f"t{partition}-{i}".encode() for i in range(first, last)]
            client.append("t", values, partition=partition)
        client.append("u", [f"u-{i}".encode() for i in range(first_u, last_u)])
        copy(spark, root)
    for name in ("1", ".1.crc"):  # as if the query had been killed before it noted its commit
        (root / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    save(rows, root, topic="named", txnId="load")
    save(spark.range(3).selectExpr("id", "CAST(id AS STRING) AS name"), root, topic="typed")


def save(rows: DataFrame, root: Path, **options: str) -> None:
    rows.write.format("dledger").options(**options).mode("append").save(str(root / "log"))


def copied(spark: SparkSession, root: Path) -> list[str]:
    """What lies in the topic that the query writes to."""
    frame = spark.read.format("dledger").option("subscribe", "copy").load(str(root / "log"))
    return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def main(action: str, directory: str) -> None:
    root = Path(directory)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    with (
        EmbeddedGroup(root / "log", replicas=1, **OLDER) as group,
        Client(group.bootstrap_servers) as client,
    ):
        if action == "write":
            write(spark, root, client)
        else:
            copy(spark, root)
        print(json.dumps(copied(spark, root)))  # noqa: T201
        group.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
