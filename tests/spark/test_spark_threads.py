"""Writes and streams from threads that did not make the session."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dledger import Client
from dledger.errors import ConfigError
from dledger.spark import in_thread
from tests.spark.conftest import run

pytestmark = pytest.mark.spark


def nums(spark: SparkSession, *values: int) -> DataFrame:
    return spark.range(min(values), max(values) + 1, 1, 1).selectExpr("CAST(id AS STRING) AS value")


def apart(function: Callable[[], Any]) -> Any:
    """What it returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_thread_without_a_session_of_its_own_does_not_know_the_format(
    spark: SparkSession, table: Any
) -> None:
    """Spark's own; when this passes, `in_thread` is needed no more."""
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        apart(lambda: table.write(nums(spark, 0), "never"))


def test_a_plain_thread_writes(spark: SparkSession, table: Any, topic: str) -> None:
    apart(in_thread(lambda: table.write(nums(spark, 0, 2), topic)))
    assert table.values(topic) == ["0", "1", "2"]


def test_the_documented_line_makes_the_session_active(
    spark: SparkSession, table: Any, topic: str
) -> None:
    def write() -> None:
        spark.createDataFrame([], "a int")
        table.write(nums(spark, 0, 2), topic)

    apart(write)
    assert table.values(topic) == ["0", "1", "2"]


def test_threads_of_a_pool_write(spark: SparkSession, table: Any, topic: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        write = in_thread(table.write)
        done = [pool.submit(write, nums(spark, n), f"{topic}-{n % 2}") for n in range(4)]
        for one in done:
            one.result()
    assert sorted(table.values(f"{topic}-0") + table.values(f"{topic}-1")) == ["0", "1", "2", "3"]


def test_a_stream_is_started_from_a_thread(
    spark: SparkSession, table: Any, topic: str, checkpoint: str, client: Client
) -> None:
    client.create_topic(topic)
    client.append(topic, [b"a", b"b"])

    def start() -> Any:
        writer = table.writer(table.stream(topic).select("value"), f"{topic}-copy")
        writer = writer.option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    apart(in_thread(start)).awaitTermination()
    assert table.values(f"{topic}-copy") == ["a", "b"]


def test_threads_of_foreach_batch_write_once_though_the_batch_is_run_again(
    spark: SparkSession, table: Any, topic: str, checkpoint: str, client: Client
) -> None:
    client.create_topic(topic)
    client.append(topic, [b"a", b"b"])
    copy, failures = f"{topic}-copy", [True]

    def each(frame: DataFrame, _batch: int) -> None:
        apart(in_thread(lambda: table.write(frame.select("value"), copy)))
        if failures:
            failures.pop()
            raise RuntimeError("after the write")

    with pytest.raises(PySparkException, match="after the write"):
        run(table.stream(topic).writeStream.foreachBatch(each), checkpoint)
    run(table.stream(topic).writeStream.foreachBatch(each), checkpoint)
    assert not failures
    assert table.values(copy) == ["a", "b"]


def test_a_thread_without_a_session_is_told_to_name_one(
    spark: SparkSession, table: Any, topic: str
) -> None:
    with pytest.raises(ConfigError, match=r"in_thread\(write, spark\)"):
        apart(lambda: in_thread(table.write))
    apart(lambda: apart(in_thread(lambda: table.write(nums(spark, 7), topic), spark)))
    assert table.values(topic) == ["7"]
