"""The export of a topic: its records become the messages of a RocketMQ store."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dledger.errors import CorruptEntry, UnreadableBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.client import Client
    from dledger.rocketmq.export.record_messages import RecordMessages
    from dledger.rocketmq.export.store import StoreExport
    from dledger.rocketmq.format.message import Message

FETCHED: Final = 64 << 20
"""Bytes that all partitions together fetch at once."""
BATCH_BYTES: Final = 4 << 20
TIMES: Final = 1000
"""Microseconds in one of RocketMQ's milliseconds."""

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Store time in ms, partition, offset, key, value, headers."""


def export_topic(
    client: Client,
    topic: str,
    messages: RecordMessages,
    place: Path,
    form: str,
    self_id: str,
    file_size: int,
    *,
    index: bool,
) -> dict[str, Any]:
    """Write all records of a topic that there are now; how many messages each queue has."""
    from dledger.rocketmq.export.store import LedgerExport, PlainExport

    client.topic(topic)  # its error has the names that may be meant
    begins, ends = client.begin_offsets(topic), client.end_offsets(topic)
    store: StoreExport
    if form == "dledger":
        store = LedgerExport(
            place, self_id, topic=messages.topic, begins=begins, file_size=file_size, index=index
        )
    else:
        store = PlainExport(place, messages.topic, begins=begins, file_size=file_size, index=index)
    try:
        for batch in batches(rows(client, topic, begins, ends), messages):
            store.put(batch)
        store.close()
    except BaseException:
        store.abandon()
        raise
    queues = [
        {"queue": at, "begin_offset": begins[at], "end_offset": ends[at]} for at in sorted(begins)
    ]
    return {
        "topic": messages.topic,
        "messages": sum(ends[at] - begins[at] for at in begins),
        "queues": queues,
    }


def rows(client: Client, topic: str, begins: dict[int, int], ends: dict[int, int]) -> Iterator[Row]:
    """The records of all partitions, those of each in order, the older one of two partitions
    first."""
    fetch = max(1 << 16, FETCHED // max(1, len(begins)))
    parts = [partition_rows(client, topic, at, begins[at], ends[at], fetch) for at in begins]
    return heapq.merge(*parts, key=lambda row: row[:2])


def partition_rows(
    client: Client, topic: str, partition: int, begin: int, end: int, fetch: int
) -> Iterator[Row]:
    """The records of one partition."""
    if begin >= end:
        return
    for batch in _read(client, topic, partition, begin, end, fetch):
        columns = [batch.column(name) for name in ("offset", "key", "value", "headers")]
        times = batch.column("timestamp").cast("int64").to_pylist()
        for at, offset, key, value, headers in zip(
            times, *(one.to_pylist() for one in columns), strict=True
        ):
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            yield ((at or 0) // TIMES, partition, offset, key, value, pairs)


def _read(
    client: Client, topic: str, partition: int, begin: int, end: int, fetch: int
) -> Iterator[pa.RecordBatch]:
    try:
        yield from client.read(topic, partition, begin, end, max_bytes=fetch, value_format="json")
    except UnreadableBatch as error:
        raise CorruptEntry(
            f"{error.what}. A store has a message for each offset, so none is left out: copy the "
            "records to another topic (Client.read with on_damage='skip'), and export that"
        ) from error


def batches(found: Iterator[Row], messages: RecordMessages) -> Iterator[list[Message]]:
    """Messages of the records, some MiB at a time. Store times never go back: a broker looks them
    up by halving."""
    batch: list[Message] = []
    size = stored = 0
    for born, partition, offset, key, value, headers in found:
        stored = max(stored, born)
        message = messages.message(partition, offset, born, key, value, headers, stored)
        batch.append(message)
        size += len(message.body) + len(message.properties)
        if size >= BATCH_BYTES or len(batch) >= 1 << 14:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
