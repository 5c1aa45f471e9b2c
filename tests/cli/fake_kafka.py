"""A Kafka in memory, with the part of confluent-kafka's interface that ``dledger import`` uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class TopicPartition:
    """A place, and an offset there."""

    topic: str
    partition: int = -1
    offset: int = -1001
    error: Any = None


class KafkaError:
    """An error's code."""

    _PARTITION_EOF = -191
    _AUTO_OFFSET_RESET = -140
    _TRANSPORT = -195

    def __init__(self, code: int, text: str = "") -> None:
        self._code, self._text = code, text

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return self._text


class KafkaException(Exception):
    """Carries an error."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record, or an event of a partition."""

    at: tuple[str, int]
    number: int
    text: bytes | None = None
    name: bytes | None = None
    pairs: Headers | None = None
    time_ms: int = 1_700_000_000_000
    failure: KafkaError | None = None

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes | None:
        return self.text

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> Headers | None:
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        return (1, self.time_ms) if self.time_ms else (0, 0)

    def error(self) -> KafkaError | None:
        return self.failure


@dataclass(slots=True)
class FakeKafka:
    """Stands for the module and for the cluster.

    Attributes:
        logs: (topic, partition) -> its records.
        ends: (topic, partition) -> the log's end, where that is not behind the last record.
        begins: (topic, partition) -> the first offset that is kept.
        groups: group -> (topic, partition) -> committed offset.
        before_fetch: called before each fetch.
    """

    logs: dict[tuple[str, int], list[Message]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    groups: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    cluster_id: str = "cluster-1"
    before_fetch: Callable[[], object] = lambda: None
    reachable: bool = True
    configs: list[dict[str, Any]] = field(default_factory=list)

    TopicPartition = TopicPartition
    KafkaError = KafkaError
    KafkaException = KafkaException
    ConsumerGroupTopicPartitions = staticmethod(
        lambda group, places: SimpleNamespace(group_id=group, topic_partitions=places)
    )

    def add(self, topic: str, partition: int, offsets: Iterable[int], **more: Any) -> None:
        """Records with these offsets, whose values name them."""
        self.logs.setdefault((topic, partition), []).extend(
            Message((topic, partition), n, b"%d/%d" % (partition, n), **more) for n in offsets
        )

    def end(self, place: tuple[str, int]) -> int:
        log = self.logs[place]
        return self.ends.get(place, log[-1].number + 1 if log else 0)

    def Consumer(self, config: dict[str, Any]) -> FakeConsumer:
        self.configs.append(config)
        return FakeConsumer(self, tells_ends=bool(config.get("enable.partition.eof")))

    @property
    def admin(self) -> Any:
        return SimpleNamespace(AdminClient=lambda _: FakeAdmin(self))


class FakeConsumer:
    """Reads what it is assigned, a few records at a time."""

    def __init__(self, kafka: FakeKafka, *, tells_ends: bool) -> None:
        self._kafka = kafka
        self._tells_ends = tells_ends
        self._at: dict[tuple[str, int], int] = {}
        self._told: set[tuple[str, int]] = set()
        self.closed = False

    def list_topics(self, timeout: float) -> Any:
        if not self._kafka.reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Broker transport failure"))
        topics: dict[str, Any] = {}
        for topic, partition in self._kafka.logs:
            made = topics.setdefault(topic, SimpleNamespace(partitions={}, error=None))
            made.partitions[partition] = None
        return SimpleNamespace(cluster_id=self._kafka.cluster_id, topics=topics)

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        place = at.topic, at.partition
        return self._kafka.begins.get(place, 0), self._kafka.end(place)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = {(one.topic, one.partition): one.offset for one in places}

    def consume(self, most: int, timeout: float) -> list[Message]:
        self._kafka.before_fetch()
        found: list[Message] = []
        for place, offset in self._at.items():
            rows = [m for m in self._kafka.logs[place] if m.number >= offset][: min(most, 7)]
            found += rows
            end = self._kafka.end(place)
            if rows:
                self._at[place] = rows[-1].number + 1
                self._told.discard(place)
            elif self._tells_ends and place not in self._told:
                self._told.add(place)
                found.append(Message(place, end, failure=KafkaError(KafkaError._PARTITION_EOF)))
        return found

    def close(self) -> None:
        self.closed = True


class FakeAdmin:
    """Knows the groups."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._groups = kafka.groups

    def list_consumer_groups(self, request_timeout: float) -> Any:
        valid = [SimpleNamespace(group_id=name) for name in self._groups]
        return SimpleNamespace(result=lambda: SimpleNamespace(valid=valid))

    def list_consumer_group_offsets(self, asked: list[Any], request_timeout: float) -> Any:
        (one,) = asked
        committed = self._groups.get(one.group_id, {})
        places = [
            TopicPartition(at.topic, at.partition, committed.get((at.topic, at.partition), -1001))
            for at in one.topic_partitions
        ]
        answer = SimpleNamespace(topic_partitions=places)
        return {one.group_id: SimpleNamespace(result=lambda: answer)}
