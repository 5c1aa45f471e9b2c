"""What is exported here, a real broker opens, serves and goes on with, and a real DLedger reads to
its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger import Client, EmbeddedGroup
from dledger.cli.main import main
from dledger.rocketmq.export.store import LedgerExport, PlainExport
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message

FIRST = 1_790_000_000_000
"""When the first record was made, in milliseconds."""
PARTITIONS = 2
ONE_NODE: Any = {"replicas": 1, "segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}


def record(partition: int, n: int) -> dict[str, Any]:
    """A record, as the message that it becomes."""
    message = {
        "topic": "orders",
        "queue_id": partition,
        "queue_offset": n,
        "keys": f"k{n} schlüssel-{n % 7}",
        "body": b"%d-%d " % (partition, n) * (1 + n * 37 % 200),
        "born_timestamp": FIRST + 10 * n + partition,
        "tags": ("new", "größe", "paid")[n % 3],
    }
    properties = {"KEYS": message["keys"], "TAGS": message["tags"], "größe": f"{n} 🚀"}
    return {**message, "properties": properties}


@pytest.fixture(scope="module")
def group(tmp_path_factory: Any) -> Iterator[tuple[str, Path]]:
    """A group with a topic: its address, and the directory of its only node."""
    path = tmp_path_factory.mktemp("group") / "log"
    with EmbeddedGroup(path, **ONE_NODE) as running:
        with Client(running.bootstrap_servers) as client:
            client.create_topic("orders", PARTITIONS)
            for partition in range(PARTITIONS):
                rows = [record(partition, n) for n in range(150)]
                others = [list(row["properties"].items())[1:] for row in rows]  # no KEYS
                client.append(
                    "orders",
                    [row["body"] for row in rows],
                    partition=partition,
                    keys=[row["keys"].encode() for row in rows],
                    headers=[[(name, text.encode()) for name, text in one] for one in others],
                    timestamps=[1000 * row["born_timestamp"] for row in rows],
                )
        yield running.bootstrap_servers, path / "n0"


def export(target: Path, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["export", str(target), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def goes_on(
    real: Any, traffic: Any, programs: Any, store: Path, port: int, mode: str
) -> dict[Any, dict[str, Any]]:
    """All messages, as RocketMQ's consumer has pulled them from a broker over the store: those that
    were exported, and some that were sent to it. The same are read here."""
    settings = real.in_ledger_mode() if mode == "dledger" else {}
    exported = traffic.by_place(traffic.rows(store))
    settings |= real.DEFAULTS
    name = store.parent.name
    with (
        real.Broker(programs, name, store, port, **settings) as broker,
        broker.client() as client,
    ):
        traffic.assert_same(exported, traffic.pulled(client, exported))
        assert_found(client, list(exported.values()))
        new = [
            {"topic": "orders", "queue": n % 2, "body": b"new %d" % n * 500, "keys": "new"}
            for n in range(60)
        ]
        client.send(new)
        served = traffic.all_served(real, client, exported, len(new))
    traffic.assert_same(traffic.by_place(traffic.rows(store)), served)
    traffic.assert_same(exported, {place: served[place] for place in exported})
    return dict(served)


def assert_found(client: Any, exported: list[dict[str, Any]]) -> None:
    """The broker finds messages by key, which takes the index, by tag, whose code is in the queue,
    and by time."""
    with_key = [one for one in exported if "k21" in one["keys"].split(" ")]
    assert client.query("orders", "k21") == with_key
    queue = [one for one in exported if one["queue_id"] == 0]
    assert client.pull("orders", 0, "größe") == [one for one in queue if one["tags"] == "größe"]
    middle = queue[len(queue) // 2]
    assert client.offset_at("orders", 0, middle["store_timestamp"]) == middle["queue_offset"]


@pytest.mark.parametrize("mode", ["rocketmq", "dledger"])
def test_broker_opens_exported_topic_and_consumer_pulls_every_record(
    group: tuple[str, Path], programs: Any, real: Any, traffic: Any, tmp_path: Path, mode: str
) -> None:
    port, store = real.free_port(), tmp_path / "store"
    words = f"--format {mode} -b {group[0]} --topic orders --file-size {real.FILE_BYTES}".split()
    assert export(store, *words, "--broker", f"127.0.0.1:{port}")["messages"] == 300
    served = goes_on(real, traffic, programs, store, port, mode)
    for partition in range(PARTITIONS):
        for n in range(150):
            expected = record(partition, n)
            assert {name: served["orders", partition, n][name] for name in expected} == expected
    assert sorted(place[2] for place in served if place[1] == 0) == list(range(180))


@pytest.mark.parametrize("mode", ["rocketmq", "dledger"])
def test_a_broker_opens_an_export_whose_queues_begin_above_zero(
    programs: Any, real: Any, traffic: Any, tmp_path: Path, mode: str
) -> None:
    port, store = real.free_port(), tmp_path / "store"
    host, begins = Host.of("127.0.0.1", port), {0: 1000, 1: 0}
    messages = [
        Message(
            "orders",
            b"%d" % n * 400,
            f"KEYS\x01k{n}\x02TAGS\x01größe",
            queue_id=n % 2,
            queue_offset=begins[n % 2] + n // 2,
            born_timestamp=FIRST,
            born_host=host,
            store_timestamp=FIRST + n,
            store_host=host,
        )
        for n in range(300)
    ]
    made: PlainExport | LedgerExport = (
        LedgerExport(store, "n0", topic="orders", begins=begins, file_size=real.FILE_BYTES)
        if mode == "dledger"
        else PlainExport(store, "orders", begins=begins, file_size=real.FILE_BYTES)
    )
    made.put(messages)
    made.close()
    served = goes_on(real, traffic, programs, store, port, mode)
    assert sorted(place[2] for place in served if place[1] == 0) == list(range(1000, 1180))
    assert {
        place: message["body"] for place, message in served.items() if message["keys"] != "new"
    } == {("orders", one.queue_id, one.queue_offset): one.body for one in messages}


@pytest.mark.parametrize("what", ["topic", "node"])
def test_ledger_server_reads_all_exported_entries_and_appends_behind(
    group: tuple[str, Path],
    stopped: Path,
    programs: Any,
    real: Any,
    traffic: Any,
    tmp_path: Path,
    what: str,
) -> None:
    store = tmp_path / "store"
    words = ("-b", group[0], "--topic", "orders") if what == "topic" else ("--node", str(stopped))
    export(store, "--format", "dledger", "--file-size", str(real.FILE_BYTES), *words)
    exported = traffic.entries(store / "dledger-n0")
    assert len(exported) >= (300 if what == "topic" else 3)
    with real.Ledger(programs, store) as server:
        assert server.entries() == exported
        answer = server.append(b"one more")
        assert (answer["code"], answer["index"]) == (200, exported[-1]["entry_index"] + 1)
    after = traffic.entries(store / "dledger-n0")
    assert (after[:-1], after[-1]["body"]) == (exported, b"one more")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The directory of a node that has three records of very different sizes, and does not run."""
    path = tmp_path / "log"
    with (
        EmbeddedGroup(path, **ONE_NODE) as running,
        Client(running.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        for size in (0, 50_000, 40_000):
            client.append("t", b"x" * size)
    return path / "n0"
