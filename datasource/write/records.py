"""Frames to write -> record batches, and which rows of them go to which topic partition. No loop
over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from dledger.client.protocol.operations.schemas import TypedTopic
from dledger.datasource.table.schema import WriteColumns
from dledger.errors import ConfigError
from dledger.records.body.schema import RECORD_SCHEMA
from dledger.records.columns.partitioner import Division, divided_by_codes
from dledger.records.frames.spreading import Spread


class Routed(NamedTuple):
    """Records of one topic, and which of them go to which partition."""

    topic: str
    records: pa.RecordBatch
    division: Division


class Router:
    """Sends each row of a frame to its topic and partition; see
    `dledger.records.frames.spreading`."""

    def __init__(
        self,
        columns: WriteColumns,
        topic: str,
        *,
        spread: Spread,
        partitions_of: Callable[[str], int],
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._spread = spread
        self._partitions_of = partitions_of

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The rows of ``batch`` by topic.

        Raises:
            ConfigError: a row has no topic, or a partition that its topic does not have.
            TopicNotFound: and topics are not to be created.
        """
        self._spread.next_batch()
        records = self.records(batch)
        if self._topic:
            yield self._to_partitions(self._topic, records, batch)
            return
        names = batch.column(self._columns.topic)
        if names.null_count:
            raise ConfigError(
                "column 'topic' is null in some rows: fill it, or give the option 'topic'"
            )
        encoded = names.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield self._to_partitions(topics[0], records, batch)
            return
        division = divided_by_codes(encoded.indices)
        of_batch = division.of(batch)
        for (code, rows), (_, whole) in zip(division.of(records), of_batch, strict=True):
            yield self._to_partitions(topics[code], rows, whole)

    def records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The record columns that the frame has, with the log's types."""
        arrays: list[pa.Array] = []
        fields: list[pa.Field] = []
        for own in RECORD_SCHEMA:
            place = getattr(self._columns, own.name)
            if place < 0:
                continue
            column = batch.column(place)
            if own.name in {"key", "headers"} and column.null_count == len(column):
                continue  # not stored at all
            arrays.append(column if column.type == own.type else column.cast(own.type))
            fields.append(own)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _to_partitions(self, topic: str, records: pa.RecordBatch, batch: pa.RecordBatch) -> Routed:
        asked = batch.column(self._columns.partition) if self._columns.partition >= 0 else None
        keys = records.column("key") if "key" in records.schema.names else None
        count = self._partitions_of(topic)
        division = self._spread.spread(topic, count, records.num_rows, keys, asked)
        return Routed(topic, records, division)


class TypedRouter:
    """Sends each row of a frame to its partition of a typed topic, under one version of the topic's
    columns."""

    def __init__(self, typed: TypedTopic, spread: Spread) -> None:
        self._typed = typed
        self._spread = spread

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The rows of ``batch`` as those of the topic.

        Raises:
            SchemaMismatch: a value does not fit its column, or is null where none may be.
        """
        self._spread.next_batch()
        rows, info = self._typed.rows(batch), self._typed.info
        keys = self._typed.keys(rows)
        division = self._spread.spread(info.name, info.partitions, rows.num_rows, keys)
        yield Routed(info.name, rows, division)
