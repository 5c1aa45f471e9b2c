"""Values appended one by one beside Kafka: three of its brokers by confluent-kafka, and a group of
three nodes by `Producer.append`. A program learns of each record here and there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.groups import group
from benchmarks.producing import AT_ONCE, SIZES, one_by_one
from benchmarks.report import Report
from dledger import Client

BESIDE: Final = "values appended one by one, 3 replicas, beside Kafka's brokers"
OURS: Final = "Producer.append"
THEIRS: Final = {
    "confluent-kafka, polled at each record": AT_ONCE,
    f"confluent-kafka, polled at each {AT_ONCE}": 1,
}
"""Polls for AT_ONCE records: as many as in the examples of its documentation, or, cheaper, one."""
CLIENT: Final = ": processor time of the client"
RATIO: Final = ", times confluent-kafka's"
JARS: Final = "DLEDGER_KAFKA"
"""The environment variable with the folder of jars, as for the tests with a real Kafka."""
TOPIC: Final = "bench"
RETENTION: Final = 512 << 20
"""Bytes that the group and each broker keep, and a file more."""
FILE_BYTES: Final = 128 << 20
BROKER: Final = {
    "log.retention.bytes": RETENTION,
    "log.segment.bytes": FILE_BYTES,
    "log.segment.delete.delay.ms": 1000,
    "log.retention.check.interval.ms": 2000,
    "log.initial.task.delay.ms": 2000,
}
READY_S: Final = 60.0


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Addresses of three brokers, which all have the topic's one partition.

    Raises:
        SystemExit: there are no jars, or no confluent-kafka.
    """
    jars = Path(os.environ.get(JARS, "")) / "broker"
    if not any(jars.glob("kafka_*.jar")) or find_spec("confluent_kafka") is None:
        raise SystemExit(
            f"the section kafka-producer needs a real Kafka and confluent-kafka: make bench "
            f"BENCH=kafka-producer (it gets both, and sets {JARS})"
        )
    from examples.kafka_copy.broker import brokers

    with brokers(jars, directory, 3, BROKER) as servers:
        make_topic(servers)
        yield servers


def make_topic(servers: str) -> None:
    """By asking for it. Its copies, one at each of three brokers, are in step when this returns."""
    from confluent_kafka import KafkaException, Producer

    client = Producer({"bootstrap.servers": servers, "log_level": 2})
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # until the brokers have found each other
            partitions = client.list_topics(TOPIC, 5).topics[TOPIC].partitions
            if [len(one.isrs) for one in partitions.values()] == [3]:
                return
        time.sleep(0.2)
    raise SystemExit(f"three Kafka brokers have no topic after {READY_S:.0f} s")


def by_callbacks(polls: int, producer: Any, value: bytes, seconds: float) -> int:
    """Append for so many seconds; how many records that were. A callback tells of each; poll is
    called so many times for AT_ONCE of them."""
    from confluent_kafka import KafkaException

    count, produce, poll = 0, producer.produce, producer.poll

    def told(error: Any, _: Any) -> None:
        nonlocal count
        if error is not None:
            raise KafkaException(error)
        count += 1

    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(polls):
            poll(0)
            for _ in range(AT_ONCE // polls):
                try:
                    produce(TOPIC, value, on_delivery=told)
                except BufferError:  # it is full; the next value is the same one
                    poll(1)
    producer.flush()
    return count


def theirs(servers: str, polls: int, value: bytes, seconds: float) -> tuple[float, float]:
    """As `spent` has it; the producer has found its brokers before."""
    from confluent_kafka import Producer

    settings = {"acks": "all", "enable.idempotence": True, "log_level": 2}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.produce(TOPIC, b"first")
    producer.flush()
    return spent(partial(by_callbacks, polls), producer, value, seconds)


def ours(client: Client, value: bytes, seconds: float) -> tuple[float, float]:
    """As `spent` has it; the producer has found its leader before."""
    with client.producer(TOPIC) as producer:
        producer.append(b"first").result()
        return spent(one_by_one, producer, value, seconds)


def spent(
    way: Callable[[Any, bytes, float], int], producer: Any, value: bytes, seconds: float
) -> tuple[float, float]:
    """Records a second, until the last one is acknowledged, and µs of processor time a record of
    all threads of this process."""
    own, began = time.process_time(), time.perf_counter()
    records = way(producer, value, seconds)
    took, own = time.perf_counter() - began, time.process_time() - own
    return records / took, own * 1e6 / records


def kafka_producing(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All in turn, ours first or last; the others are idle meanwhile. The ratio is of each turn's
    own figures, beside the faster of theirs. Three turns, which warm all, are left out."""
    seconds, warm = (0.2, 0) if quick else (1.5, 3)
    with ExitStack() as stack:
        servers = stack.enter_context(kafka(directory / "kafka"))
        running = stack.enter_context(group(directory, 3, retention_bytes=RETENTION))
        client = stack.enter_context(Client(running.bootstrap_servers))
        ways = {OURS: partial(ours, client)}
        ways |= {name: partial(theirs, servers, polls) for name, polls in THEIRS.items()}
        for turn in range(warm + repetitions):
            for label, size in SIZES.items():
                value, rates = os.urandom(size), {}
                for name in list(ways)[:: -1 if turn % 2 else 1]:
                    rates[name], each = ways[name](value, seconds)
                    if turn >= warm:
                        report.add(BESIDE, f"{label}, {name}", "records/s", rates[name])
                        report.add(BESIDE, f"{label}, {name}{CLIENT}", "µs", each)
                if turn >= warm:
                    fastest = max(rates[name] for name in THEIRS)
                    report.add(BESIDE, f"{label}{RATIO}", "", rates[OURS] / fastest)
