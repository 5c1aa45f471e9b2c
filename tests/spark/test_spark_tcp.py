"""The same with Spark's Python workers on TCP sockets, which is Spark's default."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_batch_and_stream_work_over_tcp_sockets(
    tcp_spark: SparkSession, table: Any, topic: str, checkpoint: str
) -> None:
    assert tcp_spark.conf.get("spark.python.unix.domain.socket.enabled") == "false"
    table.write(tcp_spark.range(100).selectExpr("CAST(id AS STRING) AS value"), topic)
    source = table.stream(topic, startingOffsets="earliest")
    writer = (
        source.writeStream.format("dledger")
        .option("topic", f"{topic}-copy")
        .option("path", table.path)
    )
    writer.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert table.values(f"{topic}-copy") == table.values(topic)
