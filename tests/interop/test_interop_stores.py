"""What a real broker writes, in each of its three forms, is read here as its own consumer pulls
it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Written:
    """A store that a broker has written; it has been stopped."""

    path: Path
    port: int
    served: dict[Any, dict[str, Any]]
    """What its consumer pulled."""
    shown: Any
    """What tailed the store meanwhile, from its begin on."""


@pytest.fixture(scope="module")
def write(programs: Any, real: Any, traffic: Any) -> Callable[..., Written]:
    """Lets a broker write messages of every kind into a store while it is tailed."""

    def written(path: Path, port: int, count: int, tail: Any = None, **settings: Any) -> Written:
        tail = tail or traffic.Tail(path)
        with (
            real.Broker(programs, path.parent.name, path, port, **settings) as broker,
            broker.client() as client,
        ):
            with ThreadPoolExecutor(1) as other:
                sent = other.submit(traffic.send_all_kinds, client, count)
                while not sent.done():
                    tail.look()
                sent.result()
            served = traffic.written(real, client, path)
            ours = traffic.by_place(traffic.rows(path))
            real.eventually("the stream to show all", lambda: tail.look() >= len(ours))
            traffic.assert_same(ours, served)  # while the broker runs
        return Written(path, port, served, tail)

    return written


@pytest.fixture(scope="module")
def plain(write: Callable[..., Written], real: Any, tmp_path_factory: Any) -> Written:
    """A store with a plain commit log."""
    return write(tmp_path_factory.mktemp("plain") / "store", real.free_port(), 400)


@pytest.fixture(scope="module")
def ledger(write: Callable[..., Written], real: Any, tmp_path_factory: Any) -> Written:
    """A store of DLedger mode."""
    return write(
        tmp_path_factory.mktemp("ledger") / "store", real.free_port(), 200, **real.in_ledger_mode()
    )


@pytest.fixture(scope="module")
def upgraded(write: Callable[..., Written], real: Any, plain: Written) -> Written:
    """The plain store, gone on with in DLedger mode."""
    return write(plain.path, plain.port, 200, plain.shown, **real.in_ledger_mode())


def assert_read_alike(traffic: Any, written: Written, path: Path, forms: list[str]) -> None:
    store = traffic.opened(path)
    assert [form.name for form in store.forms] == forms
    assert len([file for form in store.forms for file in form.files]) > 3
    for most in (1 << 40, 5000):  # whole files, and ranges that begin within messages
        traffic.assert_same(traffic.by_place(traffic.rows(store, most)), written.served)


def test_a_plain_store_is_read_as_its_consumer_pulls_it(plain: Written, traffic: Any) -> None:
    assert_read_alike(traffic, plain, plain.path / "commitlog", ["commitlog"])
    kinds = {(one["sys_flag"] & 0xC, one["sys_flag"] >> 8 & 3) for one in plain.served.values()}
    # committed ones; packed by LZ4, ZSTD and zlib
    assert kinds >= {(0, 0), (8, 0), (0, 1), (0, 2), (0, 3)}
    assert {topic for topic, _, _ in plain.served} == {
        *traffic.TOPICS,
        *traffic.HIDDEN,
        "SCHEDULE_TOPIC_XXXX",
    }


def test_a_store_of_ledger_mode_is_read_as_its_consumer_pulls_it(
    ledger: Written, traffic: Any
) -> None:
    assert_read_alike(traffic, ledger, ledger.path, ["dledger"])


def test_an_upgraded_store_is_read_as_its_consumer_pulls_it(
    upgraded: Written, traffic: Any
) -> None:
    assert_read_alike(traffic, upgraded, upgraded.path, ["commitlog", "dledger"])


def test_stream_shows_each_message_once_during_writes_and_upgrade(
    ledger: Written, upgraded: Written, traffic: Any
) -> None:
    """Brokers write meanwhile and are upgraded."""
    for written in (ledger, upgraded):
        traffic.assert_same(traffic.by_place(written.shown.rows), written.served)
        assert written.shown.looks > 1


def test_store_of_killed_broker_is_read_as_restarted_broker_serves_it(
    programs: Any, real: Any, traffic: Any, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", real.free_port()
    tail = traffic.Tail(store)
    with real.Broker(programs, "killed", store, port) as broker, broker.client() as client:
        for topic, queues in traffic.TOPICS.items():
            client.create_topic(topic, queues)
        with ThreadPoolExecutor(1) as other:
            sent = other.submit(client.send, traffic.plain(4000))
            real.eventually("some messages", lambda: sent.done() or tail.look() > 300)
            broker.kill()
            client.kill()
            with pytest.raises((OSError, ValueError)):  # nobody answers any more
                sent.result()
    ours = traffic.by_place(traffic.rows(store))
    assert 300 < len(ours) < 4000
    traffic.assert_same(
        traffic.by_place(tail.rows), {place: ours[place] for place in traffic.by_place(tail.rows)}
    )
    with real.Broker(programs, "killed", store, port) as broker, broker.client() as client:
        traffic.assert_same(ours, traffic.all_served(real, client, ours))


def test_entries_are_read_as_a_ledger_server_gets_them(
    ledger: Written, programs: Any, real: Any, traffic: Any
) -> None:
    ours = traffic.entries(ledger.path / "dledger-n0")
    with real.Ledger(programs, ledger.path) as server:
        assert server.entries() == ours


@pytest.mark.spark
def test_spark_shows_an_upgraded_store_as_its_consumer_pulls_it(
    upgraded: Written, traffic: Any, spark: Any
) -> None:
    reader = spark.read.format("dledger").options(layout="rocketmq", minPartitions="7")
    found = []
    for row in reader.load(str(upgraded.path)).collect():
        named = {traffic.snake_case(name): value for name, value in row.asDict().items()}
        found.append(traffic.comparable({name: named[name] for name in traffic.PULLED}))
    traffic.assert_same(traffic.by_place(found), upgraded.served)
