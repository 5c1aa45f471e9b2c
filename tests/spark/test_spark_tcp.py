"""The same with Spark's Python workers on TCP sockets, which is Spark's default. Runs last: it replaces the session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger import EmbeddedGroup

pytestmark = pytest.mark.spark


def test_batch_and_stream_work_over_tcp_sockets(
    spark: SparkSession, running: EmbeddedGroup, table: Any, topic: str, tmp_path: Path
) -> None:
    spark.stop()
    conftest: Any = sys.modules[type(table).__module__]
    session = conftest.make_session(unix_sockets=False)
    assert session.conf.get("spark.python.unix.domain.socket.enabled") == "false"
    table.spark = session
    table.write(session.range(100).selectExpr("CAST(id AS STRING) AS value"), topic)
    source = table.stream(topic, startingOffsets="earliest")
    writer = source.writeStream.format("dledger").option("topic", f"{topic}-copy").option("path", table.path)
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert table.values(f"{topic}-copy") == table.values(topic)
    session.stop()
