"""Spark's driver and tasks as clients of a group under TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger import EmbeddedGroup
from tests.spark.conftest import Table, run

pytestmark = pytest.mark.spark


def test_batch_and_stream_go_through_tls_by_path_and_by_address(
    spark: SparkSession, issue: Callable[..., dict[str, str]], tmp_path: Path, checkpoint: str
) -> None:
    files = issue()
    tls = {f"dledger.{name.replace('_', '.')}": path for name, path in files.items()}
    small = {"segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}
    with EmbeddedGroup(tmp_path / "log", **small, **files) as group:
        frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
        Table(spark, group.path).write(frame, "orders", **tls)
        by_address = {"dledger.bootstrap.servers": group.bootstrap_servers, **tls}
        orders = spark.readStream.format("dledger").options(**by_address, subscribe="orders")
        source = orders.option("startingOffsets", "earliest").load()
        writer = source.writeStream.format("dledger").options(**by_address, topic="copy")
        run(writer.option("createTopic", True), checkpoint)
        copy = spark.read.format("dledger").options(**by_address, subscribe="copy").load()
        assert {int(row.value) for row in copy.select("value").collect()} == set(range(100))
