"""The same with Spark's Python workers on TCP sockets, which is Spark's default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import make_session

pytestmark = pytest.mark.spark
UNIX = "spark.python.unix.domain.socket.enabled"


@pytest.fixture
def tcp_spark(last_session: None, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with Spark's default sockets, for one test."""
    session = make_session("local[2, 3]", tmp_path / "warehouse", **{UNIX: "false"})
    yield session
    session.stop()


def test_batch_and_stream_work_over_tcp_sockets(
    tcp_spark: SparkSession, table: Any, topic: str, checkpoint: str
) -> None:
    assert tcp_spark.conf.get(UNIX) == "false"
    table.write(tcp_spark.range(100).selectExpr("CAST(id AS STRING) AS value"), topic)
    table.copy(table.stream(topic), f"{topic}-copy", checkpoint)
    assert table.values(f"{topic}-copy") == table.values(topic)
