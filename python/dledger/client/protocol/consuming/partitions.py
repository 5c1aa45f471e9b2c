"""A partition that a consumer reads: how far it has handed out, and what waits to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from dledger.client.protocol.consuming.records import ConsumerRecord, as_records
from dledger.client.protocol.consuming.settings import TopicPartition
from dledger.client.protocol.reading.damage import FAIL, DamagePolicy
from dledger.errors import CorruptEntry
from dledger.protocol.messages.client import TopicInfo

WAY: Final = 'pass on_damage="skip", or consumer.seek({topic!r}, {partition}, {{end}})'
Batches = Iterator[tuple[pa.RecordBatch | None, int]]
"""Batches of records, each with the offset behind it; None for records that are left out."""


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
        key_column: of a typed topic; empty: it has none; None: the topic is of keys and values.
        damage: what is done about records that cannot be opened.
        failed: the reason why nothing comes behind what waits.
    """

    def __init__(
        self, info: TopicInfo, number: int, *, since: int, position: int, on_damage: str = FAIL
    ) -> None:
        self.info = info
        self.number = number
        self.key = info.topic_id << 32 | number
        self.since = since
        self.position = self.committed = position
        self.is_new = True
        self.is_paused = False
        self.is_over = False
        self.seeks = 0
        self.key_column = "" if info.typed else None
        way = WAY.format(topic=info.name, partition=number)
        self.damage = DamagePolicy(info.name, number, on_damage, way)
        self.failed: Exception | None = None
        self._now: pa.RecordBatch | None = None
        self._at = self._behind = position
        self._next: tuple[pa.RecordBatch, int] | None = None
        self._batches: Batches = iter(())

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.info.name, self.number)

    def put(self, batches: Batches) -> None:
        """Records that follow all that came before; only when `wants_more`."""
        self._batches = batches
        self._next = self._pull()

    def _pull(self) -> tuple[pa.RecordBatch, int] | None:
        """The next records, of those that were put; the position goes on behind what is left out
        before them."""
        try:
            for batch, behind in self._batches:
                if batch is not None:
                    return batch, behind
                self._behind = behind
                if self._now is None:
                    self.position = behind
        except Exception as error:  # it is the program's, when it has all that comes before
            self.failed = error
        return None

    def begin_anew(self) -> None:
        """All that came was handed out, or is forgotten; records from `position` on are put."""
        self.failed = self._now = self._next = None
        self._at = self._behind = self.position
        self._batches = iter(())

    @property
    def wants_more(self) -> bool:
        """Whether nothing waits behind the batch that is being handed out."""
        return self._next is None and self.failed is None

    @property
    def next_offset(self) -> int:
        """The offset behind all that came; only when it `wants_more`."""
        return self._behind

    @property
    def is_ready(self) -> bool:
        """Whether there is something to hand out."""
        if self._now is None and self._next is not None:
            self._now, self._behind = self._next
            self._at = self._behind - self._now.num_rows
            self._next = self._pull()
        return self._now is not None

    def peek(self, most: int) -> pa.RecordBatch:
        """The next records, up to ``most``; only when `is_ready`."""
        assert self._now is not None
        return self._now.slice(0, most)

    def records(self, most: int) -> list[ConsumerRecord]:
        """The next records, one at least and up to ``most``, to be told as `handed_out`. None of
        them when the first one has no form in Python and is left out.

        Raises:
            UnreadableBatch: that one is not to be left out.
        """
        try:
            return as_records(self.info.name, self.number, self.peek(most), self.key_column)
        except CorruptEntry as error:
            self.damage.met(self._at, self._at + 1, error)
            self.handed_out(1)
            return []

    def handed_out(self, count: int) -> None:
        """The program has the first ``count`` of these records."""
        batch = self._now
        assert batch is not None
        rest = batch.slice(count)
        at = self._at + count
        self._now, self._at = (rest if rest.num_rows else None), at
        self.position = at if rest.num_rows else self._behind

    def seek(self, offset: int) -> None:
        """Go on there; what waits is forgotten."""
        self.seeks += 1
        self.position = offset
        self.begin_anew()


class RecordChunk:
    """Records of a partition on their way to a program that takes them one by one."""

    def __init__(self, held: HeldPartition, most: int) -> None:
        self.held = held
        self._records = held.records(most)
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
