"""The table of every option of format "dledger", from which the parser and the documentation are
checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BATCH: Final = "batch read"
STREAM: Final = "stream read"
READ: Final = "batch read, stream read"
WRITE: Final = "write"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of docs/options.md."""

    name: str
    default: str
    where: str
    """``all``, or some of ``batch read``, ``stream read``, ``write``, separated by commas."""
    meaning: str


OPTIONS: Final = (
    Option(
        "path",
        "",
        "all",
        "Directory of a group of nodes on this machine; `.load(path)` and `.save(path)` set it. "
        "A write makes the group where there is none; the first use starts its nodes.",
    ),
    Option(
        "layout",
        "",
        READ,
        "Read a store from its files alone: `rocketmq`, a RocketMQ broker's; `dledger`, that "
        "of a node of Java's DLedger. The path may be any fsspec URL; other options then mean "
        "what stands below.",
    ),
    Option(
        "storageOptions",
        "",
        READ,
        'Of `layout` at a URL: what fsspec\'s file system needs, as JSON: `{"anon": true}`.',
    ),
    Option(
        "onDamage",
        "fail",
        READ,
        "Of `layout`: what to do about bytes that are no sound message. `fail`: an error "
        "that says where; `skip`: go on behind them with a warning, which counts them.",
    ),
    Option("replicas", "3 for a new group", "all", "Nodes of the group of a path: 1, 3, 5 or 7."),
    Option(
        "dledger.bootstrap.servers",
        "",
        "all",
        "`host:port,...` of a running group, in place of a path.",
    ),
    Option("bootstrap.servers", "", "all", "The same as `dledger.bootstrap.servers`."),
    Option(
        "dledger.peers",
        "",
        "all",
        "`n0-host:port;n1-host:port`: all nodes of a group of which this application "
        "runs one; its files lie under the path.",
    ),
    Option("dledger.selfId", "", "all", "Which of `dledger.peers` this application runs."),
    Option(
        "dledger.*",
        "",
        "all",
        "Any other setting of the client, which all stand below, or of the group of a "
        "path: `dledger.request.timeout.ms`, `dledger.secret.file`, `dledger.flush`.",
    ),
    Option("subscribe", "", READ, "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        "",
        READ,
        "Topics whose whole name fits this regular expression (Java's syntax). A "
        "stream finds new ones while it runs and reads them from their first record.",
    ),
    Option("assign", "", READ, 'Partitions to read: `{"orders": [0, 1]}`.'),
    Option(
        "topic",
        "",
        "all",
        "The topic to write; it overrides a column `topic`. In a read: the same as "
        "`subscribe` with one topic.",
    ),
    Option(
        "startingOffsets",
        "earliest in batch, latest in a stream",
        READ,
        "`earliest`, `latest` (stream only), `committed` (what the group of `groupId` has "
        "processed), `-100` (so "
        "many records before the end of each partition), `-10m` (the time so long before now), or "
        "JSON: "
        '`{"orders": {"0": 23, "1": -2}}`; -2 is earliest, -1 latest. A stream that has a '
        "checkpoint goes on "
        "from there.",
    ),
    Option(
        "startingTimestamp",
        "",
        READ,
        "Start at the first record of each partition that is as new: milliseconds "
        "since 1970, or `2024-03-10T07:30:00Z`. Exact to the record.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        READ,
        'The same with a time for each partition: `{"orders": {"0": 1700000000000}}`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        READ,
        "Where no record is as new as a starting time asks: "
        "`error`, or `latest` to start at the partition's end.",
    ),
    Option(
        "endingOffsets",
        "latest",
        BATCH,
        "`latest`, `committed`, `-100`, `-10m` or JSON; where a batch read stops. "
        "Fixed when the read is planned.",
    ),
    Option(
        "endingTimestamp",
        "",
        BATCH,
        "Stop before the first record of each partition that is as new.",
    ),
    Option("endingOffsetsByTimestamp", "", BATCH, "The same with a time for each partition."),
    Option(
        "groupId",
        "",
        READ,
        "The consumer group that `committed` means; a partition that it has not begun is read "
        "from its first record. A stream tells the group what each of its committed micro-batches "
        "has processed.",
    ),
    Option(
        "holdRetention",
        "as the group does",
        STREAM,
        "true: what the group of `groupId` has not processed is kept over its time, up to the "
        "nodes' `hold_retention_ms` and `hold_retention_bytes`; false: no longer.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        STREAM,
        "Most records of one micro-batch, over all partitions.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "1",
        STREAM,
        "Least records of one micro-batch: it waits for them, up to "
        "`maxTriggerDelay`. `Trigger.AvailableNow` and `Once` do not wait.",
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        STREAM,
        "Longest wait for `minOffsetsPerTrigger`, from when the first record was "
        "there; right after a start there is none.",
    ),
    Option(
        "maxBytesPerTrigger",
        "1g without `maxOffsetsPerTrigger`",
        STREAM,
        "Most stored bytes of one micro-batch (`64m`, `1g`), in whole stored batches; `none`: no "
        "limit. The smaller one of the limits counts.",
    ),
    Option(
        "minPartitions",
        "one for each partition and 64 MiB",
        READ,
        "Least number of Spark tasks to cut a read into. Of more than 64 tasks those that would "
        "read little, up to 1 MiB together, are put together, unless this wants more.",
    ),
    Option("maxRecordsPerPartition", "no limit", READ, "Most records of one Spark task."),
    Option(
        "maxBytesPerPartition",
        "64m",
        READ,
        "Most stored bytes of one Spark task, unless one stored batch has more.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        READ,
        "Fail when records that should be read are no longer "
        "kept, naming them; false: warn and go on behind them.",
    ),
    Option(
        "onTopicRecreate",
        "fail",
        STREAM,
        "When a topic, or the whole group, was deleted and created again: "
        "`fail`, or `restart` to warn and read the new one from its first record.",
    ),
    Option(
        "fetch.maxWaitMs",
        "200",
        STREAM,
        "How long an idle query's question for new records waits at the leader, "
        "in ms. New records end it at once; other sources of the query wait as long.",
    ),
    Option("includeHeaders", "false", READ, "Add the column `headers` to keys and values."),
    Option(
        "includeMetadata",
        "false",
        READ,
        "Add the columns `term`, `entryIndex` and `size`; to a typed topic's columns `_record`, a "
        "struct of topic, partition, offset, timestamp, term and entryIndex.",
    ),
    Option(
        "schemaVersion",
        "the newest one",
        READ,
        "The version of a typed topic's columns to read it under.",
    ),
    Option(
        "valueFormat",
        "",
        READ,
        "`json`: read typed topics as keys and values, like raw ones; the value is the row "
        "as JSON.",
    ),
    Option(
        "metadata",
        "",
        BATCH,
        "Read what the log knows of itself in place of records: `topics`, `partitions`, "
        "`groups`, `commits`, `nodes` or `entries`; see below. With `layout`: `damage`.",
    ),
    Option(
        "startingEntry",
        "the first kept",
        BATCH,
        "Of `metadata` commits and entries: from this entry of the log "
        "on; `-1000`: the last so many entries.",
    ),
    Option(
        "createTopic",
        "true for a path, false for servers",
        WRITE,
        "Create a topic that is not there.",
    ),
    Option(
        "createTopic.partitions",
        "1",
        WRITE,
        "Partitions of a topic that is created; one that exists with another number is an error.",
    ),
    Option(
        "createTopic.description",
        "",
        WRITE,
        "A text for people, kept with a topic that is created.",
    ),
    Option(
        "topicType",
        "as the topic or the frame is",
        WRITE,
        "`raw`: keys and values, as in Kafka. `typed`: a frame's own columns, as they are. A topic "
        "that is there says it itself; a new one is raw when the frame has a column `value` and no "
        "other columns than a record's.",
    ),
    Option(
        "schemaEvolution",
        "none",
        WRITE,
        "What a frame may do to a typed topic's columns: `none`, or `add` new nullable ones and "
        "wider numbers. Columns that it lacks are null, narrower numbers are widened either way.",
    ),
    Option(
        "keyColumn",
        "",
        WRITE,
        "The column of a typed topic whose value, as text, chooses the partition and is the "
        "key. Kept with the topic's columns; set it with the first frame.",
    ),
    Option(
        "timeColumn",
        "",
        WRITE,
        "The column of a typed topic with each row's event time, by which it is found. "
        "Kept with the topic's columns; without one it is the time of the write.",
    ),
    Option(
        "partitioner",
        "murmur2",
        WRITE,
        "Where rows go that have no value in a column `partition`. `murmur2`: by key, to the "
        "partition that Kafka's own clients choose; rows without a key one batch after the other. "
        "`roundRobin`: row by row, whatever the key. `explicit`: nowhere, each row must say it.",
    ),
    Option(
        "deliveryGuarantee",
        "exactly-once",
        WRITE,
        "`exactly-once`: all rows of a write are seen at once, and once, whatever is run again. "
        "`at-least-once`: each row is seen as soon as it is stored, and again when its task or "
        "batch is run again; saves a round trip and the wait for the commit.",
    ),
    Option(
        "compression", "none", WRITE, "`none`, `lz4` or `zstd`: how records are stored and sent."
    ),
    Option(
        "txnId",
        "",
        WRITE,
        "Names a write. In foreachBatch it tells apart two writes to one topic; a batch job "
        "that is run again under the same name does not write again.",
    ),
    Option(
        "onReplayMismatch",
        "fail",
        WRITE,
        "What is done when a batch of a query, or a write with a `txnId`, is run again with other "
        "rows than those that were committed: `fail`, or `keep` to warn and write nothing, because "
        "what was committed stands.",
    ),
    Option(
        "txnTimeout",
        "1h",
        WRITE,
        "Records staged by a task are dropped when they were not committed for this "
        "long (`30m`, `2h`).",
    ),
)
"""The whole table, in the order of the documentation."""

STORE_TABLES: Final = ("damage",)
"""What option ``metadata`` can name with option ``layout``."""

TABLES: Final = ("topics", "partitions", "groups", "commits", "nodes", "entries")
"""What option ``metadata`` can name."""

MEANT: Final = {
    "kafka.group.id": "groupId",
    "groupidprefix": "groupId",
    "group.id": "groupId",
    "fetchoffset.numretries": "dledger.request.timeout.ms",
    "fetchoffset.retryintervalms": "dledger.request.timeout.ms",
    "kafkaconsumer.polltimeoutms": "dledger.request.timeout.ms",
    "kafka.compression.type": "compression",
    "kafka.acks": "deliveryGuarantee",
    "kafka.transactional.id": "txnId",
    "kafka.partitioner.class": "partitioner",
    "kafka.transaction.timeout.ms": "txnTimeout",
    "kafka.request.timeout.ms": "dledger.request.timeout.ms",
    "kafka.ssl.truststore.location": "dledger.tls.ca",
    "kafka.ssl.keystore.location": "dledger.tls.certificate",
}
"""Options of Spark's Kafka connector, in lower case, whose purpose has another name here."""


def has_layout(given: Mapping[str, str]) -> bool:
    """Whether a read is of a store's files."""
    return any(name.lower() == "layout" for name in given)
