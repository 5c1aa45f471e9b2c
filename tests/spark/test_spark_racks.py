"""Executors in several racks, each of which reads from the node of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from dledger import Client
from dledger.testing import InProcessGroup
from tests.node.scraping import fetch
from tests.spark.conftest import make_session, run

pytestmark = pytest.mark.spark
RECORDS = 800


@pytest.fixture
def executors(last_session: None, tmp_path: Path) -> Iterator[SparkSession]:
    """Two executors, 0 and 1, that are told to stand in the racks r0 and r1: as two machines are by
    their own environments. Here each Python looks at its executor's directory for the number."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nos.environ['DLEDGER_RACK'] = 'r' + os.path.basename(os.getcwd())\n"
    )
    settings = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    session = make_session("local-cluster[2,1,1024]", tmp_path / "warehouse", **settings)
    yield session
    session.stop()


def served(client: Client, topic: str) -> dict[str, float]:
    """How many records of the topic each node has sent to readers, by its metrics."""
    found = {}
    for node, state in client.status().items():
        _, _, text = fetch(state["metrics_port"], "/metrics")
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        found[str(node)] = sum(
            one.value
            for one in samples
            if one.name == "dledger_topic_read_records_total" and one.labels["topic"] == topic
        )
    return found


def test_each_executor_reads_from_the_node_of_its_rack(
    executors: SparkSession, topic: str, tmp_path: Path
) -> None:
    """By a batch and by a stream; no task is read elsewhere."""
    with InProcessGroup(3, metrics_port=0) as group, group.client() as client:
        client.upgrade_group()
        for number in range(3):
            client.label_member(f"n{number}", rack=f"r{number}")
        client.create_topic(topic, 8)
        for number in range(RECORDS):
            client.append(topic, str(number).encode(), partition=number % 8)
        options: dict[str, Any] = {
            "dledger.bootstrap.servers": group.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        assert executors.read.format("dledger").options(**options).load().count() == RECORDS
        after_batch = served(client, topic)
        assert after_batch["n2"] == 0
        assert min(after_batch["n0"], after_batch["n1"]) > 0
        assert sum(after_batch.values()) == RECORDS
        stream = executors.readStream.format("dledger").options(**options).load()
        query = run(stream.writeStream.format("noop"), tmp_path / "checkpoint")
        assert sum(one.numInputRows for one in query.recentProgress) == RECORDS
        after_stream = served(client, topic)
        assert after_stream["n2"] == 0
        assert min(after_stream[node] - after_batch[node] for node in ("n0", "n1")) > 0
        # the option counts for all executors, over the variable
        near = executors.read.format("dledger").options(**options, **{"dledger.rack": "r2"})
        assert near.load().count() == RECORDS
        assert served(client, topic) == {**after_stream, "n2": RECORDS}
