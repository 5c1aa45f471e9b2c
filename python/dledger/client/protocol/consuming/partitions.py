"""A partition that a consumer reads: how far it has handed out, and what waits to be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dledger.client.protocol.consuming.records import ConsumerRecord, as_records
from dledger.client.protocol.consuming.settings import TopicPartition
from dledger.protocol.messages.client import TopicInfo

Batches = Iterator[tuple[pa.RecordBatch, int]]
"""Batches of records, each with the offset behind it."""


class HeldPartition:
    """One partition from its assignment to its end.

    Attributes:
        key: topic id << 32 | number.
        since: the epoch in which it was given to this consumer.
        position: the offset behind the last record that was handed out.
        committed: the last offset that this consumer has committed or begun with.
        is_new: the program has not heard of it yet.
        is_paused: nothing of it is handed out for now.
        is_over: it is this consumer's no more, and nothing of it may be handed out or committed.
        seeks: how often it has gone on elsewhere.
    """

    def __init__(self, info: TopicInfo, number: int, *, since: int, position: int) -> None:
        self.info = info
        self.number = number
        self.key = info.topic_id << 32 | number
        self.since = since
        self.position = self.committed = position
        self.is_new = True
        self.is_paused = False
        self.is_over = False
        self.seeks = 0
        self._now: pa.RecordBatch | None = None
        self._behind = position
        self._next: tuple[pa.RecordBatch, int] | None = None
        self._batches: Batches = iter(())

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.info.name, self.number)

    def put(self, batches: Batches) -> None:
        """Records that follow all that came before; only when `wants_more`."""
        self._batches = batches
        self._next = next(batches, None)

    @property
    def wants_more(self) -> bool:
        """Whether nothing waits behind the batch that is being handed out."""
        return self._next is None

    @property
    def next_offset(self) -> int:
        """The offset behind all that came; only when it `wants_more`."""
        return self._behind

    @property
    def is_ready(self) -> bool:
        """Whether there is something to hand out."""
        if self._now is None and self._next is not None:
            self._now, self._behind = self._next
            self._next = next(self._batches, None)
        return self._now is not None

    def peek(self, most: int) -> pa.RecordBatch:
        """The next records, up to ``most``; only when `is_ready`."""
        assert self._now is not None
        return self._now.slice(0, most)

    def handed_out(self, count: int) -> None:
        """The program has the first ``count`` of these records."""
        batch = self._now
        assert batch is not None
        rest = batch.slice(count)
        position = int(rest.column("offset")[0].as_py()) if rest.num_rows else self._behind
        self._now = rest if rest.num_rows else None
        self.position = position

    def seek(self, offset: int) -> None:
        """Go on there; what waits is forgotten."""
        self.seeks += 1
        self.position = self._behind = offset
        self._now = self._next = None
        self._batches = iter(())


class RecordChunk:
    """Records of a partition on their way to a program that takes them one by one."""

    def __init__(self, held: HeldPartition, most: int) -> None:
        self.held = held
        self._records = as_records(held.info.name, held.number, held.peek(most))
        self._seeks = held.seeks
        self._at = 0

    @property
    def is_live(self) -> bool:
        """Whether there is another record, and the program may have it."""
        held = self.held
        return (
            self._at < len(self._records)
            and not (held.is_over or held.is_paused)
            and held.seeks == self._seeks
        )

    def next(self) -> ConsumerRecord:
        """The next record; only when `is_live`. It counts as handed out."""
        record = self._records[self._at]
        self._at += 1
        self.held.position = record.offset + 1
        return record

    def end(self) -> None:
        """No more are taken from here."""
        if self.held.seeks == self._seeks and self._at:
            self.held.handed_out(self._at)
        self._records = []
