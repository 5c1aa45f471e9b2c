"""Queries whose checkpoints an earlier release wrote go on, and each row is there once."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger import Client, EmbeddedGroup
from tests.spark.conftest import Table

pytestmark = pytest.mark.spark
GOLDEN = Path(__file__).parents[1] / "golden"
QUERIES = ("query_before_digests", "query_before_restructure")
"""Of commits 074f747 and 0cc0c48 (``tests/compatibility/spark_story.py``): ``log``, a group with
one node, and ``checkpoint``, of a query that copies t, which has two partitions, and u to the topic
copy. Its batch 1 is in the log, and not in the checkpoint's commits. The topic named was written
with the txnId load."""


@pytest.fixture(params=QUERIES)
def old(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with tarfile.open(GOLDEN / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with (
        EmbeddedGroup(tmp_path / "log", replicas=1) as group,
        Client(group.bootstrap_servers) as client,
    ):
        yield Old(spark, tmp_path, client)


class Old(Table):
    """The golden group, and the query that has read it."""

    def __init__(self, spark: SparkSession, root: Path, client: Client) -> None:
        super().__init__(spark, str(root / "log"))
        self.root = root
        self.client = client

    def run(self, names: str = "t,u", target: str = "copy", checkpoint: str = "checkpoint") -> None:
        self.copy(self.stream(names).select("key", "value"), target, self.root / checkpoint)

    def values(self, topic: str) -> list[str]:
        return sorted(super().values(topic))

    def append(self, first: int, last: int) -> None:
        for partition in (0, 1):
            self.client.append(
                "t", [f"t{partition}-{i}".encode() for i in range(first, last)], partition=partition
            )


def copied(last: int, last_u: int = 8) -> list[str]:
    return sorted(
        [f"t{p}-{i}" for p in (0, 1) for i in range(last)] + [f"u-{i}" for i in range(last_u)]
    )


def test_a_query_of_the_release_before_goes_on_exactly_once(old: Old) -> None:
    shutil.copytree(old.root / "checkpoint", old.root / "fork")
    old.run()
    assert old.values("copy") == copied(15), "the replay of batch 1 writes nothing"
    old.append(15, 20)
    old.run()
    old.run(names="u")
    old.append(20, 25)
    old.run()
    assert old.values("copy") == copied(25)
    old.run(target="other", checkpoint="fork")
    assert old.values("other") == sorted({*copied(25)} - {*copied(10, 5)}), (
        "batch 0 was before the copy"
    )


def test_a_write_with_a_txn_id_of_the_release_before_is_known(old: Old) -> None:
    rows = old.spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    for topic in ("named", "anew"):
        old.write(rows, topic, txnId="load")
    assert old.values("named") == old.values("anew") == ["0", "1", "2"]
