"""``dledger import``: what Kafka has is here once, in order, with its groups, whatever happens on
the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger import Client
from dledger.cli.kafka import copying
from dledger.cli.kafka.cluster import KafkaCluster
from dledger.cli.kafka.copying import KafkaImport
from dledger.client.blocking.kafka_offsets import PREFIX, OffsetMap
from dledger.errors import ConfigError, ProducerFenced
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal, run
from tests.cli.fake_kafka import FakeKafka, KafkaError, Message


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessGroup]:
    """A group that commands find by themselves."""
    with InProcessGroup(1) as group:
        monkeypatch.setenv("DLEDGER_BOOTSTRAP", group.bootstrap_servers)
        yield group


@pytest.fixture
def client(group: InProcessGroup) -> Iterator[Client]:
    with group.client() as client:
        yield client


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Topic orders: partition 0 with gaps of compaction and markers, partition 1 without."""
    fake: Any = FakeKafka()
    fake.add("orders", 0, [3, 4, 5, 9, 10, 20, 21, 22, 23, 24, 30])
    fake.add("orders", 1, range(20))
    fake.ends["orders", 0] = 32
    fake.begins["orders", 0] = 3
    monkeypatch.setitem(sys.modules, "confluent_kafka", fake)
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", fake.admin)
    return fake


IMPORT = "import kafka --from k:9092 orders"


def values(client: Client, topic: str = "orders") -> list[list[bytes]]:
    """By partition."""
    return [
        [v for batch in client.read(topic, p, 0) for v in batch.column("value").to_pylist()]
        for p in range(client.topic(topic).partitions)
    ]


def expected(kafka: FakeKafka, topic: str = "orders") -> list[list[bytes | None]]:
    places = sorted(place for place in kafka.logs if place[0] == topic)
    return [[message.text for message in kafka.logs[place]] for place in places]


def importing(client: Client, kafka: FakeKafka) -> KafkaImport:
    """An import at its beginning, by its own objects."""
    cluster = KafkaCluster(kafka, "k:9092", config={}, timeout_s=5)
    going = KafkaImport(client, cluster)
    cluster_id, topics = cluster.topics()
    going.begin(cluster_id, topics)
    return going


def quiet(_: KafkaImport) -> None:
    """No progress."""


def test_record_comes_with_all_that_it_has(client: Client, kafka: FakeKafka) -> None:
    place = ("all", 0)
    pairs: list[tuple[str, bytes | None]] = [("shop", b"7"), ("empty", None)]
    kafka.logs[place] = [
        Message(place, 0, b"v", b"k", pairs, 1_700_000_000_123),
        Message(place, 1, None, b"tombstone"),
        Message(place, 2, b"", None, None, 0),
    ]
    out("import kafka --from k:9092 all")
    (batch,) = client.read("all", 0, 0)
    rows = batch.to_pylist()
    assert [(r["key"], r["value"]) for r in rows] == [
        (b"k", b"v"), (b"tombstone", None), (None, b""),
    ]  # fmt: skip
    assert rows[0]["headers"] == [{"key": "shop", "value": b"7"}, {"key": "empty", "value": None}]
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert rows[2]["timestamp"] > rows[1]["timestamp"]  # it had none: that of its import


def test_topic_is_made_with_its_partitions_and_copied_once(
    client: Client, kafka: FakeKafka
) -> None:
    assert "orders: 31 records imported, 31 in all" in out(IMPORT)
    assert values(client) == expected(kafka)
    assert "orders: 0 records imported, 31 in all" in out(IMPORT)
    kafka.add("orders", 0, [33, 34])
    kafka.add("orders", 2, range(3))
    kafka.ends["orders", 0] = 35
    told = json.loads(out(f"{IMPORT} --json"))
    assert told["topics"]["orders"]["records"] == 5
    assert values(client) == expected(kafka)
    assert kafka.configs[-1]["isolation.level"] == "read_committed"


def test_topics_are_chosen_by_name_and_pattern(client: Client, kafka: FakeKafka) -> None:
    for name in ("pay-eu", "pay-us", "other", "__consumer_offsets"):
        kafka.add(name, 0, range(2))
    out("import kafka --from k:9092 --pattern pay-.* orders")
    imported = {info.name for info in client.topics() if not info.name.startswith(PREFIX)}
    assert imported == {"orders", "pay-eu", "pay-us"}
    assert "no topic 'order' (did you mean 'orders'?)" in refusal(
        "import kafka --from k:9092 order"
    )
    assert "which topics?" in refusal("import kafka --from k:9092")
    assert "no regular expression" in refusal("import kafka --from k:9092 --pattern (")


def test_offset_of_kafka_leads_to_the_record_that_is_meant(
    client: Client, kafka: FakeKafka
) -> None:
    out(IMPORT)
    log = OffsetMap(client, "orders")
    for place, messages in kafka.logs.items():
        for offset in range(kafka.end(place) + 1):
            meant = sum(message.number < offset for message in messages)
            assert log.here(place[1], offset) == meant, (place, offset)
    with pytest.raises(ConfigError, match=r"offset 33 of orders\[0\] is not imported yet"):
        log.here(0, 33)


def test_groups_stand_where_they_stood_and_are_never_moved_back(
    client: Client, kafka: FakeKafka
) -> None:
    kafka.groups = {
        "billing": {("orders", 0): 10, ("orders", 1): 20},
        "audit": {("orders", 0): 32},
        "else": {("payments", 0): 5},
        "a group": {("orders", 0): 3},
    }
    told = run(IMPORT)
    assert "group billing: orders[0] 4, orders[1] 20" in told.stdout
    assert "'a group' is left out" in told.stderr
    assert client.groups() == ["audit", "billing"]
    assert client.group("billing").offsets == {"orders": {0: 4, 1: 20}}
    assert client.group("audit").offsets == {"orders": {0: 11}}
    client.commit_offsets("billing", {"orders": {0: 8}})
    kafka.groups["billing"]["orders", 0] = 20
    out(IMPORT)
    assert client.group("billing").offsets == {"orders": {0: 8, 1: 20}}
    client.delete_group("billing")
    out(f"{IMPORT} --group audit")
    out(f"{IMPORT} --no-groups")
    assert client.groups() == ["audit"]
    assert "exclude each other" in refusal(f"{IMPORT} --group audit --no-groups")


def test_import_that_is_interrupted_anywhere_goes_on_without_doubles(
    client: Client, kafka: FakeKafka
) -> None:
    def interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyboardInterrupt

    told = []
    kafka.before_fetch = interrupt
    for _ in range(2):
        calls = 0
        done = run(IMPORT)
        assert done.exit_code == 130
        told.append(done.stderr)
    assert "interrupted: orders: 14 records; the same command goes on there" in told[0]
    kafka.before_fetch = lambda: None
    out(IMPORT)
    assert values(client) == expected(kafka)


def test_import_whose_process_died_before_it_knew_its_commit_goes_on(
    client: Client, kafka: FakeKafka
) -> None:
    first = importing(client, kafka)
    fetched = first.cluster.fetch(0)
    first.topics["orders"].take(fetched.rows, {})  # and here it dies
    out(IMPORT)
    assert values(client) == expected(kafka)


def test_commit_whose_answer_was_lost_is_known_as_ones_own(
    client: Client, kafka: FakeKafka
) -> None:
    orders = importing(client, kafka).topics["orders"]
    rows = importing(client, kafka).cluster.fetch(0).rows
    before = orders.step
    for _ in range(2):  # as a client repeats a commit
        orders.step = before
        orders.take(rows, {})
    assert sum(map(len, values(client))) == 14


def test_second_import_at_the_same_time_writes_nothing_and_ends(
    client: Client, kafka: FakeKafka
) -> None:
    first, second = importing(client, kafka), importing(client, kafka)
    first.topics["orders"].take(first.cluster.fetch(0).rows, {})
    with pytest.raises(ProducerFenced, match="another import of topic 'orders' runs"):
        second.run(quiet)
    first.run(quiet)
    assert values(client) == expected(kafka)


def test_topic_to_which_others_write_is_refused(client: Client, kafka: FakeKafka) -> None:
    client.create_topic("orders", 2)
    client.append("orders", b"mine", partition=1)
    assert "orders[1] has 1 records here, of which 0 are imported" in refusal(IMPORT)
    assert values(client) == [[], [b"mine"]]


def test_topic_that_was_made_again_is_named_with_the_way_on(
    client: Client, kafka: FakeKafka
) -> None:
    out(IMPORT)
    client.delete_topic("orders")
    assert "deleted and made again. Delete topic 'kafka-offsets.orders' too" in refusal(IMPORT)
    client.delete_topic("kafka-offsets.orders")
    out(IMPORT)
    assert values(client) == expected(kafka)


def test_writer_during_the_import_is_noticed(client: Client, kafka: FakeKafka) -> None:
    kafka.before_fetch = lambda: client.append("orders", b"mine", partition=0)
    assert "orders[0] has 1 records here, of which 0 are imported" in refusal(IMPORT)


def test_another_cluster_is_refused(client: Client, kafka: FakeKafka) -> None:
    out(IMPORT)
    kafka.cluster_id = "cluster-2"
    assert "imported from Kafka cluster 'cluster-1'" in refusal(IMPORT)


def test_records_that_kafka_removed_stop_the_import_or_are_skipped(
    client: Client, kafka: FakeKafka
) -> None:
    out(IMPORT)
    kafka.add("orders", 1, range(20, 40))
    kafka.logs["orders", 1] = kafka.logs["orders", 1][30:]
    kafka.begins["orders", 1] = 30
    assert "orders[1] that were not imported; its first one is at offset 30" in refusal(IMPORT)
    out(f"{IMPORT} --skip-removed")
    assert values(client)[1][-11:] == [b"1/19", *(b"1/%d" % n for n in range(30, 40))]
    log = OffsetMap(client, "orders")
    assert [log.here(1, n) for n in (19, 20, 25, 30, 31)] == [19, 20, 20, 20, 21]


def test_removal_during_the_import_is_told(client: Client, kafka: FakeKafka) -> None:
    going = importing(client, kafka)
    gone = Message(("orders", 0), 3, failure=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    going.cluster._consumer.consume = lambda *_: [gone]
    with pytest.raises(LookupError, match=r"removed records of orders\[0\].*--skip-removed"):
        going.run(quiet)


def test_follow_goes_on_and_carries_groups_now_and_then(client: Client, kafka: FakeKafka) -> None:
    going = importing(client, kafka)
    now, ends = 0.0, [20]

    def more() -> None:
        nonlocal now
        now += copying.FOLLOW_S / 2
        if ends[-1] == 30:
            raise KeyboardInterrupt
        kafka.add("orders", 1, [ends[-1]])
        ends.append(ends[-1] + 1)
        kafka.groups = {"billing": {("orders", 1): ends[-1]}}

    going.clock = lambda: now
    kafka.before_fetch = more
    with pytest.raises(KeyboardInterrupt):
        going.run(quiet, follow=True)
    assert values(client) == expected(kafka)
    assert client.group("billing").offsets["orders"][1] > 20


def test_offsets_are_translated_as_spark_writes_them(
    client: Client, kafka: FakeKafka, tmp_path: Path
) -> None:
    out(IMPORT)
    given = '{"orders":{"0":20,"1":-1}}'
    assert json.loads(out(f"import offsets '{given}'")) == {"orders": {"0": 5, "1": -1}}
    assert json.loads(out("import offsets", given)) == {"orders": {"0": 5, "1": -1}}
    assert "'payments' was not imported" in refusal("""import offsets '{"payments":{"0":1}}'""")
    for text in ("v1", "[1]", '{"orders":5}', '{"orders":{"a":1}}'):
        assert "write topic -> partition -> offset" in refusal(f"import offsets '{text}'")


def test_settings_of_kafka_come_from_a_file(
    client: Client, kafka: FakeKafka, tmp_path: Path
) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# login\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n\n")
    out(f"{IMPORT} --kafka-config {file}")
    config = kafka.configs[-1]
    assert (config["security.protocol"], config["sasl.password"]) == ("SASL_SSL", "a=b")
    for text, says in (("group.id=x", "the import decides group.id"), ("secret", "name=value")):
        file.write_text(text)
        told = refusal(f"{IMPORT} --kafka-config {file}")
        assert says in told
        assert "secret" not in told


def test_kafka_that_does_not_answer_is_named_with_the_way_out(
    group: InProcessGroup, kafka: FakeKafka
) -> None:
    kafka.reachable = False
    told = refusal(IMPORT)
    assert "Kafka at k:9092: Broker transport failure" in told
    assert "--kafka-config" in told


def test_missing_confluent_kafka_is_told_with_its_install_line(
    group: InProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert "pip install 'dledger[kafka]'" in refusal(IMPORT)


def test_record_that_is_too_large_is_named(client: Client, kafka: FakeKafka) -> None:
    place = ("large", 0)
    kafka.logs[place] = [Message(place, 5, bytes(9 << 20))]
    assert "large[0], one of Kafka's offsets 5 to 5" in refusal("import kafka --from k:9092 large")
    assert values(client, "large") == [[]]
