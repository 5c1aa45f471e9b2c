"""A Kafka cluster as ``dledger import`` reads it, through confluent-kafka: topics, records as
columns, and the offsets of groups."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dledger.errors import ConfigError, OffsetOutOfRange, Unavailable
from dledger.records.body.build import make_records
from dledger.records.columns.arrays import number, number_column

if TYPE_CHECKING:
    import pyarrow as pa

Place = tuple[str, int]
"""Topic and partition."""
GroupOffsets = dict[str, dict[Place, int]]
"""Group -> place -> offset in Kafka of the first record that it has not processed."""

NO_TIME: Final = 0
"""Of a message whose time is not known (``TIMESTAMP_NOT_AVAILABLE``)."""
STEP_BYTES: Final = 32 << 20
"""About so many bytes of values are taken at once."""
STEP_RECORDS: Final = 50_000
QUEUED_KIB: Final = 64 << 10
"""Bytes that librdkafka fetches ahead, in KiB."""
LOGIN: Final = "are the addresses right, and does it want TLS or SASL (--kafka-config)?"
DECIDED: Final = {
    "group.id": "dledger-import",  # needed for a consumer; it joins no group and commits nothing
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
}
"""What an import needs of its consumer."""
DEFAULTS: Final = {
    "client.id": "dledger-import",
    "queued.max.messages.kbytes": QUEUED_KIB,
    "log_level": 2,  # what fails is told by an error
}


class KafkaRows(NamedTuple):
    """Records of one partition, in order, with their offsets in Kafka."""

    topic: str
    partition: int
    offsets: list[int]
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Fetched:
    """What Kafka gave: rows, and the end of each partition that has no more of them."""

    rows: list[KafkaRows] = field(default_factory=list)
    at_end: dict[Place, int] = field(default_factory=dict)


def load() -> Any:
    """The module ``confluent_kafka``.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise ConfigError(
            f"confluent-kafka is needed to read from Kafka: pip install 'dledger[kafka]' ({error})"
        ) from error
    return confluent_kafka


def read_config(file: Path | None) -> dict[str, Any]:
    """Settings of librdkafka out of a file with ``name=value`` lines.

    Raises:
        ConfigError: a line is of another form, or a setting is the import's own.
    """
    config: dict[str, Any] = {}
    for at, line in enumerate(file.read_text().splitlines() if file else (), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:  # the text may be a secret
            raise ConfigError(f"{file}, line {at}: write name=value")
        if name in DECIDED or name == "bootstrap.servers":
            raise ConfigError(f"{file}, line {at}: the import decides {name}: take it out")
        config[name] = value.strip()
    return config


class KafkaCluster:
    """One consumer that is assigned what is imported.

    Args:
        servers: ``host:port,...`` of brokers.
        config: further settings of librdkafka, as ``sasl.password``.
        timeout_s: for each question.

    Raises:
        ConfigError: a setting cannot be.
    """

    def __init__(
        self, kafka: Any, servers: str, *, config: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._kafka = kafka
        self._servers = servers
        self._timeout_s = timeout_s
        self._most = 500
        self._last_error = ""
        self._clients = {**DEFAULTS, **config, "bootstrap.servers": servers}
        try:
            self._consumer = kafka.Consumer(
                {**self._clients, **DECIDED, "error_cb": self._remember_error}
            )
        except kafka.KafkaException as error:
            raise ConfigError(
                f"confluent-kafka takes these settings not: {_words(error)}"
            ) from error

    def _remember_error(self, error: Any) -> None:
        self._last_error = str(error)

    @contextmanager
    def _asking(self, what: str, hint: str = LOGIN) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            last = f"; {self._last_error}" if self._last_error else ""
            raise Unavailable(
                f"{what}: Kafka at {self._servers}: {_words(error)}{last}; {hint}"
            ) from error

    def topics(self) -> tuple[str, dict[str, list[int]]]:
        """The cluster's id, and each topic that is not Kafka's own with its partitions."""
        with self._asking("list topics"):
            found = self._consumer.list_topics(timeout=self._timeout_s)
        topics = {
            name: sorted(topic.partitions)
            for name, topic in found.topics.items()
            if topic.error is None and not name.startswith("__")
        }
        return found.cluster_id or "", topics

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """Offsets [begin, end) that a partition has."""
        at = self._kafka.TopicPartition(topic, partition)
        with self._asking(f"offsets of {topic}[{partition}]"):
            begin, end = self._consumer.get_watermark_offsets(at, timeout=self._timeout_s)
        return begin, end

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on."""
        with self._asking("assign"):
            self._consumer.assign(
                [self._kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
            )

    def fetch(self, wait_s: float) -> Fetched:
        """The next records; none when there are no new ones for ``wait_s``.

        Raises:
            OffsetOutOfRange: records were removed before they were read.
            Unavailable: Kafka does not answer.
        """
        with self._asking("fetch"):
            messages = self._consumer.consume(self._most, wait_s)
        by_place: dict[Place, list[Any]] = {}
        at_end: dict[Place, int] = {}
        for message in messages:
            place = message.topic(), message.partition()
            error = message.error()
            if error is None:
                by_place.setdefault(place, []).append(message)
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                at_end[place] = message.offset()
            else:
                self._fail(place, error)
        rows = [
            KafkaRows(*place, list(map(methodcaller("offset"), found)), columns(found))
            for place, found in by_place.items()
        ]
        self._pace(rows)
        return Fetched(rows, at_end)

    def _pace(self, rows: Sequence[KafkaRows]) -> None:
        """Large records are taken a few at a time."""
        if count := sum(len(one.offsets) for one in rows):
            average = sum(one.records.nbytes for one in rows) // count
            self._most = max(1, min(STEP_RECORDS, STEP_BYTES // max(average, 1)))

    def _fail(self, place: Place, error: Any) -> None:
        topic, partition = place
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            begin, end = self.range(topic, partition)
            raise OffsetOutOfRange(removed(place, begin), begin, end)
        raise Unavailable(f"read {topic}[{partition}] from Kafka at {self._servers}: {error}")

    def groups(self, names: Collection[str], places: Collection[Place]) -> GroupOffsets:
        """What groups have processed of these partitions; of all groups unless some are named.
        Groups without any such offset are left out."""
        kafka, found = self._kafka, GroupOffsets()
        asked = [kafka.TopicPartition(*place) for place in places]
        with self._asking("offsets of groups", "--no-groups leaves them out"):
            admin = kafka.admin.AdminClient(self._clients)
            wait = {"request_timeout": self._timeout_s}
            if not names:
                names = [g.group_id for g in admin.list_consumer_groups(**wait).result().valid]
            for name in sorted(names):
                # a request of the broker's is for one group
                question = [kafka.ConsumerGroupTopicPartitions(name, asked)]
                answer = admin.list_consumer_group_offsets(question, **wait)[name].result()
                offsets = {
                    (at.topic, at.partition): at.offset
                    for at in answer.topic_partitions
                    if at.offset >= 0 and at.error is None
                }
                if offsets:
                    found[name] = offsets
        return found

    def close(self) -> None:
        """End the consumer."""
        with suppress(self._kafka.KafkaException):
            self._consumer.close()


def columns(messages: Sequence[Any]) -> pa.RecordBatch:
    """Messages as columns of records."""
    keys = list(map(methodcaller("key"), messages))
    headers = list(map(methodcaller("headers"), messages))
    return make_records(
        list(map(methodcaller("value"), messages)),
        keys=None if keys.count(None) == len(keys) else keys,
        headers=headers if any(headers) else None,
        timestamps=_times(list(map(methodcaller("timestamp"), messages))),
    )


def _times(stamps: Sequence[tuple[int, int]]) -> pa.Array:
    """Of pairs of a kind and milliseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = number_column(pa.int64(), array("q", map(itemgetter(1), stamps)))
    kinds = number_column(pa.int8(), array("b", map(itemgetter(0), stamps)))
    is_unknown = pc.equal(kinds, number(pa.int8(), NO_TIME))
    return pc.if_else(is_unknown, pa.nulls(1, pa.int64())[0], times).cast(pa.timestamp("ms", "UTC"))


def removed(place: Place, begin: int) -> str:
    """The words for records that are gone before they were imported."""
    return (
        f"Kafka has removed records of {place[0]}[{place[1]}] that were not imported; its first "
        f"one is at offset {begin:,} now: --skip-removed goes on there"
    )


def _words(error: Any) -> str:
    return str(error.args[0].str() if error.args and hasattr(error.args[0], "str") else error)
