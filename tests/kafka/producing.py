"""What other programs do to Kafka: records, transactions, groups that commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Record = tuple[int, bytes | None, bytes | None]
"""Partition, key, value."""


def make_topic(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic  # where its types say that it is

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(servers: str, topic: str, records: Iterable[Record], **more: Any) -> None:
    """All of them, acknowledged."""
    from confluent_kafka import Producer

    settings = {"queue.buffering.max.messages": 1_000_000, "log_level": 2}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition, **more)
        producer.poll(0)
    assert producer.flush(60) == 0


def transactions(servers: str, topic: str, batches: Iterable[tuple[bool, list[Record]]]) -> None:
    """Each batch in a transaction, which is committed or aborted."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": f"tx-{topic}", "log_level": 2}
    )
    producer.init_transactions(30)
    for commits, records in batches:
        producer.begin_transaction()
        for partition, key, value in records:
            producer.produce(topic, value, key, partition)
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)


def commit(servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """What a consumer of the group has processed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    places = [TopicPartition(topic, at, offset) for (topic, at), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def consumed(servers: str, topic: str, partitions: int, start: int = 0) -> list[list[Any]]:
    """What a reader of committed records sees from ``start`` on: (offset, key, value, headers,
    time in ms), by partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, at, start) for at in range(partitions)])
    found: list[list[Any]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    while left:
        for one in consumer.consume(10_000, 1):
            if one.error() is None:
                fields = one.offset(), one.key(), one.value(), one.headers(), one.timestamp()[1]
                found[one.partition()].append(fields)
            else:
                assert one.error().code() == KafkaError._PARTITION_EOF, one.error()
                left.discard(one.partition())
    consumer.close()
    return found
