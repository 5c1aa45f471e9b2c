"""SIGKILL of nodes in mid-write of a streaming query, and what the log says afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from dledger import Client, EmbeddedGroup
from dledger.errors import DLedgerError
from tests.cluster.records import records_of

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
ROWS_PER_BATCH = 5000


class Writer(threading.Thread):
    """Appends numbers one by one, and keeps those that were acknowledged with their offsets."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._done = servers, threading.Event()
        self.acknowledged: dict[int, int] = {}
        """Offset -> number."""
        self.failed: list[DLedgerError] = []
        self.sent = 0

    def run(self) -> None:
        with Client(self._servers) as client:
            while not self._done.wait(0.002):
                try:
                    done = client.append("single", str(self.sent).encode())
                    self.acknowledged[done.start] = self.sent
                except DLedgerError as error:
                    self.failed.append(error)
                self.sent += 1

    def finish(self) -> None:
        self._done.set()
        self.join()


def start_query(spark: SparkSession, servers: str, checkpoint: Path) -> StreamingQuery:
    """Numbers from 0, the same at every replay, in one task, so that their order is known."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    frame = numbers.option("numPartitions", 1).load().selectExpr("cast(value as string) as value")
    writer = frame.writeStream.format("dledger").option("dledger.bootstrap.servers", servers)
    return writer.options(topic="stream", checkpointLocation=str(checkpoint)).start()


class Scene:
    """A group of three, a query that writes to it, and a writer beside it."""

    def __init__(self, spark: SparkSession, path: Path, until: Callable[..., None]) -> None:
        self.until, self.spark, self.checkpoint = until, spark, path / "checkpoint"
        self.group = EmbeddedGroup(path / "log", replicas=3)
        self.servers = self.group.bootstrap_servers
        self.client = Client(self.servers)
        self.client.create_topic("stream")
        self.client.create_topic("single")
        self.query = start_query(spark, self.servers, self.checkpoint)
        self.writer = Writer(self.servers)
        self.writer.start()
        self.ended: list[object] = []
        """Why the query gave up, each time."""

    def end(self) -> int:
        """Rows that the query has committed."""
        return self.client.end_offsets("stream")[0]

    def more(self, batches: int) -> None:
        """Wait until the query has written so many more micro-batches; start it again if it gave
        up."""
        goal, acknowledged = self.end() + batches * ROWS_PER_BATCH, len(self.writer.acknowledged)

        def written() -> bool:
            if not self.query.isActive:
                self.ended.append(self.query.exception())
                self.query = start_query(self.spark, self.servers, self.checkpoint)
            return self.end() >= goal and len(self.writer.acknowledged) > acknowledged

        self.until(written, f"the query to write up to {goal}")

    def kill(self, nodes: list[str], dice: random.Random) -> None:
        """SIGKILL at some moment of a micro-batch, then the same nodes again."""
        self.more(1)
        threading.Event().wait(dice.random())
        with ThreadPoolExecutor(len(nodes)) as killers:
            list(killers.map(self.group.kill, nodes))
        if 2 * len(nodes) < len(self.group.nodes):
            self.more(1)  # a majority lives: the query goes on before anybody comes back
        for node in nodes:
            self.group.restart(node)
        self.more(1)

    def check(self) -> None:
        """Everything that was acknowledged is there once, in order, and nothing else twice."""
        self.query.stop()
        self.writer.finish()
        values = read_values(self.client, "stream")
        assert values == list(range(len(values)))
        single = read_values(self.client, "single")
        assert {
            offset: single[offset] for offset in self.writer.acknowledged
        } == self.writer.acknowledged
        assert len(set(single)) == len(single)
        assert single == sorted(single)
        assert len(self.writer.acknowledged) > 0

    def close(self) -> None:
        self.query.stop()
        self.writer.finish()
        self.client.close()
        self.group.stop()


def read_values(client: Client, topic: str) -> list[int]:
    return [int(value) for _, value in records_of(client, topic)]


def victims(group: EmbeddedGroup, who: str) -> list[str]:
    """The nodes that are meant, as of now."""
    leader = group.leader
    followers = [node for node in group.nodes if node != leader]
    return {
        "leader": [leader],
        "follower": followers[:1],
        "two followers": followers,
        "all": list(group.nodes),
    }[who]


@pytest.mark.parametrize("who", ["leader", "follower", "two followers", "all"])
def test_sigkill_loses_and_doubles_nothing(
    spark: SparkSession,
    tmp_path: Path,
    until: Callable[..., None],
    dice: random.Random,
    kills: int,
    who: str,
) -> None:
    """Acknowledged is kept (P1), in one order (P2), once (P5, P12); with a majority the query goes
    on (P11)."""
    scene = Scene(spark, tmp_path, until)
    try:
        for _ in range(kills):
            scene.kill(victims(scene.group, who), dice)
        if who in {"leader", "follower"}:
            assert scene.ended == [], "the query ended though a majority lived"
            assert scene.writer.failed == []
        scene.check()
    finally:
        scene.close()
