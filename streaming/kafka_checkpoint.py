"""The checkpoint of a query that read Kafka before: its offsets, translated by the map that
``dledger import kafka`` has left, so that the query goes on here with all its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dledger.client import Client
from dledger.client.blocking.kafka_offsets import OffsetMap
from dledger.datasource.options.offsets import StreamOffset, is_of_kafka
from dledger.datasource.table.log import Log
from dledger.errors import ConfigError, TopicNotFound


def read_offset(data: dict[str, Any], log: Log) -> StreamOffset:
    """An offset as the checkpoint has it; the same one each time.

    Raises:
        ConfigError: neither dledger nor Spark's Kafka connector wrote it, or a topic was not
            imported from Kafka, or not that far.
    """
    if not is_of_kafka(data):
        return StreamOffset.from_json(data)
    return log.ask(lambda client: _translated(data, client))


def _translated(data: Mapping[str, Mapping[str, int]], client: Client) -> StreamOffset:
    places, ids = {}, {}
    for topic, partitions in data.items():
        try:
            log = OffsetMap(client, topic)
            ids[topic] = client.topic(topic).log_id
        except TopicNotFound as error:
            raise ConfigError(
                f"the checkpoint is of a query over Kafka, and topic {topic!r} was not imported: "
                "dledger import kafka does that; or give this query a checkpointLocation of its own"
            ) from error
        places[topic] = {int(p): log.here(int(p), offset) for p, offset in partitions.items()}
    return StreamOffset(places, ids, group=client.lineage().group_id)
