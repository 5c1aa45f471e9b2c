"""A real Kafka, a group, and a Spark session that reads both: `make kafka` fetches what they
need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger import Client, EmbeddedGroup
from examples.kafka_copy.broker import Broker
from examples.session import spark_session

JARS = "DLEDGER_KAFKA"
"""The environment variable with the folder of jars."""
PARTITIONS = 3


@pytest.fixture(scope="session")
def jars() -> Path:
    """Of the broker, and of Spark's connector."""
    folder = os.environ.get(JARS)
    if not folder:
        pytest.skip(f"needs a real Kafka: make kafka (it sets {JARS} to the folder of its jars)")
    return Path(folder)


@pytest.fixture(scope="session")
def broker(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker; a topic that is written to is made with PARTITIONS."""
    with Broker(jars / "broker", tmp_path_factory.mktemp("broker") / "kafka", PARTITIONS) as one:
        yield one


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    """Three nodes."""
    with EmbeddedGroup(tmp_path_factory.mktemp("group") / "log", replicas=3) as one:
        yield one


@pytest.fixture
def client(group: EmbeddedGroup) -> Iterator[Client]:
    with Client(group.bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="session")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With Spark's own Kafka connector."""
    files = ",".join(sorted(map(str, (jars / "connector").glob("*.jar"))))
    warehouse = str(tmp_path_factory.mktemp("spark") / "warehouse")
    session = spark_session(
        "Kafka jobs", **{"spark.jars": files, "spark.sql.warehouse.dir": warehouse}
    )
    yield session
    session.stop()
