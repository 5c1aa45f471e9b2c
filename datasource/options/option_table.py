"""Every option of format "dledger" and its uses; docs/options.md says what each one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ALL: Final = "all"
BATCH: Final = "batch read"
STREAM: Final = "stream read"
READ: Final = "batch read, stream read"
WRITE: Final = "write"

OPTIONS: Final = {
    "path": ALL,
    "layout": READ,
    "storageOptions": READ,
    "onDamage": READ,
    "replicas": ALL,
    "dledger.bootstrap.servers": ALL,
    "bootstrap.servers": ALL,
    "dledger.peers": ALL,
    "dledger.selfId": ALL,
    "dledger.*": ALL,
    "subscribe": READ,
    "subscribePattern": READ,
    "assign": READ,
    "topic": ALL,
    "startingOffsets": READ,
    "startingTimestamp": READ,
    "startingOffsetsByTimestamp": READ,
    "startingOffsetsByTimestampStrategy": READ,
    "endingOffsets": BATCH,
    "endingTimestamp": BATCH,
    "endingOffsetsByTimestamp": BATCH,
    "groupId": READ,
    "holdRetention": STREAM,
    "maxOffsetsPerTrigger": STREAM,
    "minOffsetsPerTrigger": STREAM,
    "maxTriggerDelay": STREAM,
    "maxBytesPerTrigger": STREAM,
    "minPartitions": READ,
    "maxRecordsPerPartition": READ,
    "maxBytesPerPartition": READ,
    "failOnDataLoss": READ,
    "onTopicRecreate": STREAM,
    "fetch.maxWaitMs": STREAM,
    "columns": READ,
    "includeHeaders": READ,
    "includeMetadata": READ,
    "schemaVersion": READ,
    "valueFormat": READ,
    "filterPushdown": BATCH,
    "metadata": BATCH,
    "startingEntry": BATCH,
    "createTopic": WRITE,
    "createTopic.partitions": WRITE,
    "createTopic.description": WRITE,
    "topicType": WRITE,
    "schemaEvolution": WRITE,
    "keyColumn": WRITE,
    "timeColumn": WRITE,
    "partitioner": WRITE,
    "deliveryGuarantee": WRITE,
    "compression": WRITE,
    "txnId": WRITE,
    "onReplayMismatch": WRITE,
    "txnTimeout": WRITE,
}
"""Option -> its uses, in the order of the documentation."""

STORE_TABLES: Final = ("damage",)
"""What option ``metadata`` can name with option ``layout``."""

TABLES: Final = ("topics", "partitions", "groups", "commits", "nodes", "entries")
"""What option ``metadata`` can name."""


def is_for(where: str, use: str) -> bool:
    """Whether an option of these uses is for a use."""
    return where == ALL or use in where.split(", ")


def has_layout(given: Mapping[str, str]) -> bool:
    """Whether a read is of a store's files."""
    return any(name.lower() == "layout" for name in given)
