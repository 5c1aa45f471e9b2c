"""A query goes on exactly once while its path's group gets other nodes, and moves to servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from dledger import Client, EmbeddedGroup
from dledger.embedded.home import Home
from dledger.embedded.start import stop_group
from tests.cli.commands import out
from tests.embedded.changing import Load, file_of, targets
from tests.embedded.conftest import SMALL
from tests.spark.conftest import Table

pytestmark = pytest.mark.spark


@pytest.fixture
def moving(spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    """A path's group of its own."""
    path = tmp_path / "log"
    EmbeddedGroup(path, replicas=1, **SMALL)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield Table(spark, str(path))
    spark.conf.set("spark.sql.shuffle.partitions", before or "200")
    stop_group(Home(path), file_of(path))


def started(table: Table, checkpoint: str) -> StreamingQuery:
    """The stateful query: each number of the topic in goes to the topic out once."""
    frame: DataFrame = table.stream("in").selectExpr("CAST(value AS STRING) AS value")
    writer = table.writer(frame.dropDuplicates(["value"]), "out")
    query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()
    return query


def numbers(table: Table) -> list[int]:
    """What the sink holds."""
    with Client(table.path) as client:
        frame = client.table("out")
    return sorted(int(value) for value in frame["value"].to_pylist())


def test_a_stateful_query_goes_on_over_growth_and_two_moves(
    moving: Table, tmp_path: Path, checkpoint: str
) -> None:
    """Each number is appended twice, while nodes come and go; the query runs on, and is started
    again with its checkpoint after the last move."""
    path = Path(moving.path)
    seen = 0
    with (
        targets(path, tmp_path, "n5", "n6", "n7") as first,
        targets(path, tmp_path, "n0", "n1", "n2") as second,
    ):
        with Load(path, "in", copies=2):
            pass  # the topic is there
        query = started(moving, checkpoint)
        query.processAllAvailable()
        seen = len(numbers(moving))
        for command, nodes in (("up --nodes 3", None), ("move", first), ("move", second)):
            if nodes is not None:
                nodes.start()
                command = f"{command} --to '{nodes.servers}'"
            with Load(path, "in", first=seen, copies=2) as appends:
                out(f"{command} {path}")
            query.processAllAvailable()
            assert query.exception() is None
            assert appends.acknowledged > seen
            seen = appends.acknowledged
            assert numbers(moving) == list(range(seen)), command
        query.stop()
        with Load(path, "in", copies=2), Load(path, "in", first=seen, copies=2) as appends:
            pass
        query = started(moving, checkpoint)
        query.processAllAvailable()
        query.stop()
        assert numbers(moving) == list(range(appends.acknowledged))
        assert not any(path.glob("n*"))
