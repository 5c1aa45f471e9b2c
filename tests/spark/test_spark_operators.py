"""Streams with state, joins of two logs, and copies over several topics, with a real Spark and a
real group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dledger import Client

pytestmark = pytest.mark.spark


def test_a_stream_that_drops_repeats_writes_each_value_once_over_a_restart(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """What it has seen is Spark's state; what it has written is the log's."""
    client.create_topic(topic)
    for values in ([b"a", b"b", b"b", b"c"], [b"c", b"a", b"d"]):
        client.append(topic, values)
        once = table.stream(topic).select("value").dropDuplicates(["value"])
        table.copy(once, f"{topic}-once", checkpoint)
    assert sorted(table.values(f"{topic}-once")) == ["a", "b", "c", "d"]


def test_two_topics_are_joined_and_each_pair_is_written_once(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    for side in ("orders", "payments"):
        client.create_topic(f"{topic}-{side}", 2)
    expected = []
    for first in (0, 10):
        keys = [str(number).encode() for number in range(first, first + 10)]
        for side in ("orders", "payments"):
            for part in range(2):
                mine = keys[part::2]
                client.append(
                    f"{topic}-{side}",
                    [side[0].encode() + key for key in mine],
                    keys=mine,
                    partition=part,
                )
        expected += [f"o{key.decode()}p{key.decode()}" for key in keys]
        orders = table.stream(f"{topic}-orders", maxOffsetsPerTrigger=10)
        payments = table.stream(f"{topic}-payments", maxOffsetsPerTrigger=8)
        joined = orders.selectExpr("key", "value AS o").join(
            payments.selectExpr("key", "value AS p"), "key"
        )
        table.copy(joined.selectExpr("concat(o, p) AS value"), f"{topic}-pairs", checkpoint)
    assert sorted(table.values(f"{topic}-pairs")) == sorted(expected)


def test_chain_of_copies_in_one_group_is_exact_and_reports_its_progress(
    table: Any, topic: str, client: Client, tmp_path: Path
) -> None:
    """Each micro-batch is read and written in the same log: its rows and its commit are one entry
    of it."""
    names = [f"{topic}-{step}" for step in "abc"]
    client.create_topic(names[0], 3)
    for partition in range(3):
        client.append(
            names[0], [f"{partition} {n}".encode() for n in range(50)], partition=partition
        )
    for source, target in itertools.pairwise(names):
        frame = table.stream(source, maxOffsetsPerTrigger=80, groupId=f"{topic}-{target}")
        frame = frame.select("key", "value", "partition", "timestamp")
        table.copy(frame, target, tmp_path / target, **{"createTopic.partitions": 3})
    assert table.values(names[2]) == table.values(names[0])
    for source, target in itertools.pairwise(names):
        assert client.group(f"{topic}-{target}").offsets == {source: dict.fromkeys(range(3), 50)}


@pytest.fixture
def batch_rows(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Sets the most rows of Spark's Arrow batches, for one test."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    yield lambda rows: spark.conf.set(name, str(rows))
    spark.conf.set(name, before)


def test_arrow_batches_without_a_limit_are_refused_as_documented(
    table: Any, topic: str, client: Client, batch_rows: Callable[[int], None]
) -> None:
    """Spark itself refuses them."""
    client.create_topic(topic)
    batch_rows(0)
    with pytest.raises(PySparkException, match="maximum arrow batch size should be greater than 0"):
        table.read(topic).collect()


@pytest.mark.parametrize("size", [7, 1_000_000])
def test_any_size_of_spark_s_arrow_batches_gives_the_same_rows(
    spark: SparkSession,
    table: Any,
    topic: str,
    checkpoint: str,
    batch_rows: Callable[[int], None],
    size: int,
) -> None:
    batch_rows(size)
    table.write(spark.range(0, 500, 1, 1).selectExpr("CAST(id AS STRING) AS value"), topic)
    table.copy(table.stream(topic), f"{topic}-copy", checkpoint)
    assert table.values(f"{topic}-copy") == [str(number) for number in range(500)]
