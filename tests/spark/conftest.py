"""One Spark session and one real group for all tests here; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from dledger import Client, EmbeddedGroup
from examples.session import spark_session

_numbers = itertools.count()


def make_session(master: str, warehouse: Path, **settings: str) -> SparkSession:
    """In place of the session that there is."""
    before = SparkSession.getActiveSession()
    if before is not None:
        before.stop()
    quiet = {"spark.log.level": "OFF", "spark.sql.warehouse.dir": str(warehouse)}
    return spark_session("tests", SparkSession.builder.master(master), **quiet, **settings)


def run(writer: Any, checkpoint: str | Path) -> StreamingQuery:
    """Run a query until it has read what was there when it started."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query: StreamingQuery = writer.start()
    query.awaitTermination()
    return query


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    """Three nodes."""
    with EmbeddedGroup(tmp_path_factory.mktemp("spark") / "log", replicas=3) as group:
        yield group


@pytest.fixture
def client(running: EmbeddedGroup) -> Iterator[Client]:
    with Client(running.bootstrap_servers) as one:
        yield one


class Table:
    """Shorthands for format "dledger" on the group of the tests."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path

    def write(self, frame: DataFrame, topic: str = "", **options: Any) -> None:
        named = {"topic": topic} if topic else {}
        writer = frame.write.format("dledger").options(**named, **options)
        writer.mode("append").save(self.path)

    def read(self, topic: str, **options: Any) -> DataFrame:
        return self.spark.read.format("dledger").options(subscribe=topic, **options).load(self.path)

    def metadata(self, name: str) -> DataFrame:
        return self.spark.read.format("dledger").option("metadata", name).load(self.path)

    def stream(self, topic: str, **options: Any) -> DataFrame:
        """From its first record on."""
        reader = self.spark.readStream.format("dledger")
        options = {"startingOffsets": "earliest", "subscribe": topic, **options}
        return reader.options(**options).load(self.path)

    def writer(self, frame: DataFrame, topic: str, **options: Any) -> Any:
        """Of a stream into a topic."""
        named = {"topic": topic, "path": self.path, **options}
        return frame.writeStream.format("dledger").options(**named)

    def copy(
        self, frame: DataFrame, topic: str, checkpoint: str | Path, **options: Any
    ) -> StreamingQuery:
        """Write a stream into a topic, as far as it goes by now."""
        return run(self.writer(frame, topic, **options), checkpoint)

    def values(self, topic: str) -> list[str]:
        """Every value as text, by partition and offset."""
        columns = ("partition", "offset", "CAST(value AS STRING) AS value")
        return [row.value for row in sorted(self.read(topic).selectExpr(*columns).collect())]


@pytest.fixture(scope="session")
def last_session() -> Iterator[None]:
    """Stops what is left at the end."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture
def spark(last_session: None, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The one session of all tests, with three attempts for each task; made again when a test has
    replaced it."""
    return SparkSession.getActiveSession() or make_session(
        "local[2, 3]",
        tmp_path_factory.getbasetemp() / "warehouse",
        **{"spark.sql.session.timeZone": "America/New_York"},
    )


@pytest.fixture
def table(spark: SparkSession, running: EmbeddedGroup) -> Table:
    return Table(spark, str(running.path))


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
