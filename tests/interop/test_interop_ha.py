"""Real brokers at the other end of RocketMQ's master-slave protocol: as slave of one here, and as
its master."""

from __future__ import annotations

import logging
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.topic_configs import TopicConfig

logger = logging.getLogger(__name__)
HOST = Host.of("127.0.0.1", 10911)


@pytest.fixture
def start(programs: Any, real: Any) -> Iterator[Callable[..., Any]]:
    """Starts ``dledger rocketmq`` with these words over stores of small files; stops what still
    runs."""
    running = []

    def started(*words: str) -> Any:
        sizes = ("mappedFileSizeCommitLog", *real.DEFAULTS)
        settings = [word for name in sizes for word in ("--set", f"{name}={real.BROKER[name]}")]
        command = [sys.executable, "-m", "dledger", "rocketmq", *words, *settings]
        running.append(real.Running(command, programs.log("dledger")))
        return running[-1]

    yield started
    for one in running:
        if one.process.poll() is None:
            one.stop()


def put(real: Any, store: Path, count: int) -> None:
    """Messages into a store, which is made if there is none."""
    units = real.BROKER["mappedFileSizeConsumeQueue"] // 20
    sizes: Any = {"units_in_file": units, "index_slots": 100, "index_units": 400}
    with MessageStore(store, file_size=real.FILE_BYTES, **sizes) as opened:
        opened.topics.put(TopicConfig("orders", 2))
        first = sum(opened.log.next_offsets.values())
        hosts: Any = {"born_host": HOST, "store_host": HOST}
        opened.put_messages(
            Message("orders", b"%d" % n * 300, f"KEYS\x01k{n}", n % 2, **hosts)
            for n in range(first, first + count)
        )


def log_of(store: Path) -> dict[str, bytes]:
    """File name -> bytes of the commit log files that have anything in them."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").glob("*"))}
    return {name: data for name, data in files.items() if any(data)}


def broker_over(real: Any, programs: Any, store: Path, **settings: Any) -> Any:
    name = store.parent.name + store.name
    return real.Broker(programs, name, store, real.free_port(), **settings)


def assert_serves(real: Any, traffic: Any, programs: Any, store: Path) -> None:
    """A broker that opens the store as a master serves each message in it."""
    ours = traffic.by_place(traffic.rows(store))
    with broker_over(real, programs, store) as broker, broker.client() as client:
        for topic in {topic for topic, _, _ in ours} - {"SCHEDULE_TOPIC_XXXX", *traffic.HIDDEN}:
            client.create_topic(topic, 4)
        ours = {place: one for place, one in ours.items() if place[0] not in traffic.HIDDEN}
        theirs = traffic.pulled(client, ours)
    traffic.assert_same(ours, theirs)


@pytest.mark.parametrize("begin", ["empty", "in the middle"])
def test_a_real_slave_follows_a_store_served_here_and_has_the_same_log(
    programs: Any, real: Any, traffic: Any, start: Callable[..., Any], tmp_path: Path, begin: str
) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    put(real, master, 150)
    if begin == "in the middle":
        shutil.copytree(master, slave)
    else:
        shutil.copytree(master / "config", slave / "config")
    put(real, master, 250)
    expected = log_of(master)
    assert len(expected) > 3
    if begin == "empty":  # any master gives an empty slave the last file
        expected = dict([max(expected.items())])
    port = real.free_port()
    served = start("serve-ha", "--store", str(master), "--listen", f"127.0.0.1:{port}")
    served.printed("listening on")
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{port}"}
    with broker_over(real, programs, slave, **settings):
        real.eventually(
            "the slave to catch up", lambda: served.alive() and log_of(slave) == expected
        )
    served.stop()
    assert log_of(slave) == expected
    assert_serves(real, traffic, programs, slave)


@pytest.mark.spark
def test_sync_master_counts_follower_and_spark_shows_its_messages_soon(
    programs: Any, real: Any, traffic: Any, start: Callable[..., Any], tmp_path: Path, spark: Any
) -> None:
    """Spark shows each message of the follower within two seconds."""
    master, store = tmp_path / "master", tmp_path / "follower"
    with (
        broker_over(real, programs, master, brokerRole="SYNC_MASTER") as broker,
        broker.client() as client,
    ):
        client.create_topic("live", 1)
        assert send(client, "alone") == "SLAVE_NOT_AVAILABLE"
        follower = start("follow", f"127.0.0.1:{broker.port + 1}", "--store", str(store))
        real.eventually(
            "the follower's acknowledgement",
            lambda: follower.alive() and send(client, "?") == "SEND_OK",
        )
        with Shown(spark, store, tmp_path) as shown:
            real.eventually(
                "the stream to run", lambda: send(client, "first") and "first" in shown.times
            )
            late = []
            for n in range(30):
                sent = time.monotonic()
                assert send(client, f"live{n}") == "SEND_OK"
                late.append(
                    real.eventually("the message", lambda n=n: shown.times.get(f"live{n}", 0))
                    - sent
                )
            logger.info("shown after %s s", [round(one, 3) for one in sorted(late)])
            assert statistics.median(late) < 2  # each one on a machine that has nothing else to do
        for topic, queues in traffic.TOPICS.items():
            client.create_topic(topic, queues)
        assert {one["status"] for one in client.send(traffic.plain(400))} == {"SEND_OK"}
        follower.stop()
        pulled = traffic.pulled(client, traffic.by_place(traffic.rows(master)))
    assert len(log_of(master)) > 3
    assert log_of(store) == log_of(master)
    traffic.assert_same(traffic.by_place(traffic.rows(store)), pulled)
    assert_serves(real, traffic, programs, store)


def send(client: Any, key: str) -> str:
    """The producer's word on one message."""
    (result,) = client.send([{"topic": "live", "queue": 0, "body": key.encode() * 10, "keys": key}])
    return str(result["status"])


class Shown:
    """A streaming query over a store that notes when it shows the message with a key."""

    def __init__(self, spark: Any, store: Path, folder: Path) -> None:
        self.times: dict[str, float] = {}
        self._lock = threading.Lock()
        frame = spark.readStream.format("dledger").options(
            layout="rocketmq", startingOffsets="earliest"
        )
        writer = frame.load(str(store)).select("keys").writeStream.foreachBatch(self._note)
        self._query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def _note(self, batch: Any, _number: int) -> None:
        keys = [row["keys"] for row in batch.collect()]
        with self._lock:
            for key in keys:
                self.times.setdefault(key, time.monotonic())

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()
