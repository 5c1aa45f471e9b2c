"""A query that has read Kafka goes on here from its checkpoint, behind an import of its topics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dledger import Client
from dledger.cli.kafka.cluster import KafkaCluster
from dledger.cli.kafka.copying import KafkaImport
from dledger.datasource.table.schema import read_schema
from dledger.errors import ConfigError
from dledger.streaming.reader import LogStreamReader
from dledger.testing import InProcessGroup
from tests.cli.fake_kafka import FakeKafka
from tests.streaming.stream_engine import Engine


@pytest.fixture
def group() -> Iterator[InProcessGroup]:
    with InProcessGroup(1) as group:
        yield group


@pytest.fixture
def client(group: InProcessGroup) -> Iterator[Client]:
    with group.client() as client:
        yield client


@pytest.fixture
def kafka() -> FakeKafka:
    """Topic orders with gaps in one partition, none in another, and an empty one."""
    fake = FakeKafka()
    fake.add("orders", 0, [0, 1, 2, 10, 11, 20])
    fake.add("orders", 1, range(6))
    fake.add("orders", 2, [])
    return fake


def bring(client: Client, kafka: FakeKafka) -> None:
    """An import of all that there is."""
    cluster = KafkaCluster(kafka, "k:9092", config={}, timeout_s=5)
    going = KafkaImport(client, cluster)
    going.begin(*cluster.topics())
    going.run(lambda _: None)


def moved(group: InProcessGroup, *offsets: str) -> Engine:
    """A query whose checkpoint has these offsets of Kafka; the first one's batch is committed."""
    given = {"dledger.bootstrap.servers": group.bootstrap_servers, "subscribe": "orders"}
    query = Engine(LogStreamReader, given, read_schema(False))
    query.offsets, query.commits = [*offsets], 1
    return query


DONE = json.dumps({"orders": {"0": 10, "1": 2, "2": 0}})


def test_query_goes_on_behind_its_last_batch_of_kafka(
    group: InProcessGroup, client: Client, kafka: FakeKafka
) -> None:
    bring(client, kafka)
    query = moved(group, DONE)
    assert sorted(query.drain()) == [b"0/10", b"0/11", b"0/20", b"1/2", b"1/3", b"1/4", b"1/5"]
    assert not query.trigger(), "nothing is new"
    kafka.add("orders", 1, [6])
    bring(client, kafka)
    query.crash()
    assert query.drain()[-1] == b"1/6"


def test_batch_that_was_planned_over_kafka_has_the_same_rows_here(
    group: InProcessGroup, client: Client, kafka: FakeKafka
) -> None:
    bring(client, kafka)
    query = moved(group, DONE, json.dumps({"orders": {"0": 20, "1": 3, "2": 0}}))
    query.dies()
    assert query.trigger()
    assert sorted(query.values()) == [b"0/10", b"0/11", b"1/2"]
    assert sorted(query.drain())[2:] == [b"0/20", b"1/2", b"1/3", b"1/4", b"1/5"]


def test_checkpoint_without_an_import_or_ahead_of_it_names_the_way_on(
    group: InProcessGroup, client: Client, kafka: FakeKafka
) -> None:
    client.create_topic("orders", 3)
    with pytest.raises(ConfigError, match="'orders' was not imported: dledger import kafka"):
        moved(group, DONE).trigger()
    client.delete_topic("orders")
    bring(client, kafka)
    ahead = json.dumps({"orders": {"0": 21, "1": 7}})
    with pytest.raises(ConfigError, match=r"offset 7 of orders\[1\] is not imported yet"):
        moved(group, ahead).trigger()
