"""One Spark session and one real group for all tests here; each test has topics of its own."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dledger import Client, EmbeddedGroup
from dledger.datasource.java import ensure_java

_numbers = itertools.count()


def make_session(unix_sockets: bool, warehouse: Path) -> SparkSession:
    """local[2] with three attempts for each task."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2, 3]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.python.unix.domain.socket.enabled": str(unix_sockets).lower(),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


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
        writer = frame.write.format("dledger").options(
            **({"topic": topic} if topic else {}), **options
        )
        writer.mode("append").save(self.path)

    def read(self, topic: str, **options: Any) -> DataFrame:
        return self.spark.read.format("dledger").options(subscribe=topic, **options).load(self.path)

    def stream(self, topic: str, **options: Any) -> DataFrame:
        return (
            self.spark.readStream.format("dledger")
            .options(subscribe=topic, **options)
            .load(self.path)
        )

    def values(self, topic: str) -> list[str]:
        """Every value as text, by partition and offset."""
        rows = (
            self.read(topic)
            .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
            .collect()
        )
        return [row.value for row in sorted(rows)]


@pytest.fixture(scope="session")
def last_session() -> Iterator[None]:
    """Stops what is left at the end."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture
def spark(last_session: None, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The one session of all tests; made again when a test has replaced it."""
    return SparkSession.getActiveSession() or make_session(
        True, tmp_path_factory.getbasetemp() / "warehouse"
    )


@pytest.fixture
def tcp_spark(last_session: None, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with Spark's default sockets, for one test."""
    before = SparkSession.getActiveSession()
    if before is not None:
        before.stop()
    session = make_session(False, tmp_path / "warehouse")
    yield session
    session.stop()


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
