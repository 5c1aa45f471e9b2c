"""Options of Spark's Kafka connector and of Kafka's own clients that are not taken here, each with
what to do about it. docs/from-kafka.md has the same table. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

KAFKA: Final = "kafka."
"""Spark's connector hands options with this prefix on to Kafka's clients."""


class Advice(NamedTuple):
    """What to do about an option of Kafka."""

    here: str
    """The option here; empty: drop it."""
    why: str

    def __str__(self) -> str:
        return f"{f'write {self.here!r}' if self.here else 'drop it'}: {self.why}"


REQUEST: Final = "dledger.request.timeout.ms"

ADVICE: Final = {
    # Spark's connector
    "kafka.bootstrap.servers": Advice(
        "dledger.bootstrap.servers", "host:port of dledger's nodes; or give a path in its place"
    ),
    "kafka.group.id": Advice("groupId", "names the consumer group that is told the progress"),
    "groupIdPrefix": Advice("groupId", "the group has the name that is given"),
    "kafkaConsumer.pollTimeoutMs": Advice(
        REQUEST, "a request is repeated for so long, to the leader of that moment"
    ),
    "fetchOffset.numRetries": Advice(REQUEST, "a request is repeated for so long"),
    "fetchOffset.retryIntervalMs": Advice(
        REQUEST, "the pauses are dledger.retry.min.ms to dledger.retry.max.ms"
    ),
    # both clients
    "kafka.client.id": Advice("", "nodes keep no statistics by client"),
    "kafka.client.rack": Advice(
        "dledger.rack", "or DLEDGER_RACK in the environment of each executor"
    ),
    "kafka.replica.selector.class": Advice(
        "dledger.rack", "readers choose: the nearest replica by its rack, else any"
    ),
    "kafka.client.dns.lookup": Advice("", "nodes are found by the addresses that they tell"),
    "kafka.request.timeout.ms": Advice(REQUEST, "the same, over all attempts"),
    "kafka.default.api.timeout.ms": Advice(REQUEST, "one time-out for every request"),
    "kafka.socket.connection.setup.timeout.ms": Advice(
        "dledger.connect.timeout.ms", "the wait for one connection"
    ),
    "kafka.retries": Advice("", f"requests are repeated until {REQUEST} is over, without doubles"),
    "kafka.retry.backoff.ms": Advice("dledger.retry.min.ms", "the first pause"),
    "kafka.retry.backoff.max.ms": Advice("dledger.retry.max.ms", "the longest pause"),
    "kafka.reconnect.backoff.*": Advice("dledger.retry.min.ms", "one pause for all attempts"),
    "kafka.metadata.*": Advice("", "a client learns of a new leader from its next request"),
    "kafka.connections.max.idle.ms": Advice("", "a process keeps its connections for its tasks"),
    "kafka.send.buffer.bytes": Advice("", "the system sizes the buffers of sockets"),
    "kafka.receive.buffer.bytes": Advice("", "the system sizes the buffers of sockets"),
    "kafka.interceptor.classes": Advice("", "classes of Java cannot run here: use Spark's columns"),
    "kafka.metric.reporters": Advice("", "Spark has the metrics of tasks, dledger status a node's"),
    "kafka.metrics.*": Advice("", "Spark has the metrics of tasks, dledger status a node's"),
    # consumers
    "kafka.auto.offset.reset": Advice("startingOffsets", "earliest or latest"),
    "kafka.enable.auto.commit": Advice(
        "", "a stream with groupId tells its group of each committed micro-batch"
    ),
    "kafka.auto.commit.interval.ms": Advice(
        "", "a stream with groupId tells its group of each committed micro-batch"
    ),
    "kafka.isolation.level": Advice("", "readers see committed records only, always"),
    "kafka.max.poll.records": Advice("maxOffsetsPerTrigger", "limits a micro-batch"),
    "kafka.max.poll.interval.ms": Advice("", "Spark assigns the partitions: there is no rebalance"),
    "kafka.session.timeout.ms": Advice("", "Spark assigns the partitions: there is no rebalance"),
    "kafka.heartbeat.interval.ms": Advice(
        "", "Spark assigns the partitions: there is no rebalance"
    ),
    "kafka.partition.assignment.strategy": Advice("", "Spark assigns the partitions"),
    "kafka.group.instance.id": Advice("", "Spark assigns the partitions: there is no rebalance"),
    "kafka.fetch.max.wait.ms": Advice(
        "fetch.maxWaitMs", "of a stream: how long its question for new records waits"
    ),
    "kafka.fetch.min.bytes": Advice("minOffsetsPerTrigger", "of a stream, in records"),
    "kafka.fetch.max.bytes": Advice("", "a fetch takes some 8 MiB of whole stored batches"),
    "kafka.max.partition.fetch.bytes": Advice(
        "maxBytesPerPartition", "limits the stored bytes of a task"
    ),
    "kafka.check.crcs": Advice("", "checksums are checked, always"),
    "kafka.allow.auto.create.topics": Advice("", "a read makes no topic"),
    "kafka.key.deserializer": Advice("", "columns are binary: cast them, as with Kafka"),
    "kafka.value.deserializer": Advice("", "columns are binary: cast them, as with Kafka"),
    # producers
    "kafka.acks": Advice("", "a majority's disks acknowledge, always"),
    "kafka.enable.idempotence": Advice("", "a repeated write is never taken twice"),
    "kafka.compression.type": Advice("compression", "none, lz4 or zstd"),
    "kafka.transactional.id": Advice("txnId", "a streaming write has one by itself"),
    "kafka.transaction.timeout.ms": Advice("txnTimeout", "the same"),
    "kafka.partitioner.class": Advice("partitioner", "murmur2, roundRobin or explicit"),
    "kafka.partitioner.*": Advice("partitioner", "murmur2, roundRobin or explicit"),
    "kafka.linger.ms": Advice("", "a write sends the batches of Spark as they come"),
    "kafka.batch.size": Advice("", "a write sends the batches of Spark as they come"),
    "kafka.buffer.memory": Advice(
        "dledger.max.in.flight.bytes", "bytes that wait for their answers"
    ),
    "kafka.max.in.flight.requests.per.connection": Advice(
        "dledger.max.in.flight", "order and idempotence hold with any number"
    ),
    "kafka.max.request.size": Advice(
        "", "a record may have 8 MiB, or what the group's max_body_bytes says"
    ),
    "kafka.max.block.ms": Advice(REQUEST, "one time-out for every request"),
    "kafka.delivery.timeout.ms": Advice(REQUEST, "one time-out for every request"),
    "kafka.key.serializer": Advice("", "cast key to binary or string, as with Kafka"),
    "kafka.value.serializer": Advice("", "cast value to binary or string, as with Kafka"),
    # security
    "kafka.security.protocol": Advice(
        "dledger.tls.ca", "the path of a CA's certificate turns TLS on; drop it for PLAINTEXT"
    ),
    "kafka.ssl.truststore.location": Advice(
        "dledger.tls.ca", "PEM; with it there is TLS"
    ),
    "kafka.ssl.truststore.certificates": Advice("dledger.tls.ca", "the path of a PEM file"),
    "kafka.ssl.keystore.location": Advice(
        "dledger.tls.certificate", "PEM; the private key is dledger.tls.key"
    ),
    "kafka.ssl.keystore.certificate.chain": Advice(
        "dledger.tls.certificate", "the path of a PEM file"
    ),
    "kafka.ssl.keystore.key": Advice("dledger.tls.key", "the path of a PEM file"),
    "kafka.ssl.endpoint.identification.algorithm": Advice(
        "", "who the group's authority has signed is checked, always"
    ),
    "kafka.ssl.*": Advice("", "TLS takes PEM files: dledger.tls.ca, .certificate and .key"),
    "kafka.sasl.*": Advice(
        "dledger.credentials", "a file with user and password, or a token, and no JAAS text"
    ),
    "kafka.*": Advice(
        "",
        "it is for a client of Kafka, and none runs here; those of the client here begin with "
        "dledger. and stand in docs/options.md",
    ),
}  # fmt: skip
"""Option -> what to do; ``*`` stands for any rest. The first that fits counts."""

_EXACT: Final = {name.lower(): advice for name, advice in ADVICE.items() if "*" not in name}
_PREFIXES: Final = {name[:-1].lower(): advice for name, advice in ADVICE.items() if "*" in name}


def kafka_advice(name: str) -> Advice | None:
    """What to do about an option of Kafka, with or without ``kafka.`` in front; None for a name
    that Kafka does not have."""
    lower = name.lower()
    # a bare name of another kind, as a word of a user's own, is no option of Kafka
    with_prefix = lower if lower.startswith(KAFKA) else KAFKA + lower
    for spelled in (lower, with_prefix):
        if spelled in _EXACT:
            return _EXACT[spelled]
    for prefix, advice in _PREFIXES.items():
        if with_prefix.startswith(prefix) and (prefix != KAFKA or lower.startswith(KAFKA)):
            return advice
    return None
