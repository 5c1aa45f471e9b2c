"""The records of a producer before they go out: placed, checked, grouped. Pure but for the wall
clock, which labels records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from dledger.client.protocol.appending import (
    Appendable,
    check_kind,
    encoder_of,
    is_typed_batch,
    partitions_of,
)
from dledger.client.protocol.arguments import whole
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.results import Delivery, OnDelivery, Promise
from dledger.client.protocol.writing.batching import (
    Batch,
    OutgoingBatch,
    PartitionQueue,
    Pending,
)
from dledger.client.protocol.writing.gathered import Gathered
from dledger.client.protocol.writing.in_flight_window import Done, Item
from dledger.client.protocol.writing.record_future import ValueBatch, call_program
from dledger.config import MIB
from dledger.errors import ConfigError, DLedgerError, RecordTooLarge
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values, as_records, make_records
from dledger.records.body.sizer import OVERHEAD, split_batch
from dledger.records.columns.partitioner import partition_for

MAX_IN_FLIGHT = 2000
"""A node remembers the results of a producer's last 2048 batches of each partition; a repeat must
be among them."""
CLOSED = "the producer is closed; open another one"
RECORD: Final = 32
"""Bytes of a batch that a record takes beside its key and value, as it is reckoned here."""
Addition: TypeAlias = Callable[[], int]
"""Takes records that were checked; gives the bytes that are ready to go out now."""


def place_value(info: TopicInfo, partition: int | None, key: bytes | None, turn: int) -> int:
    """`place` for a value that is no batch yet."""
    if partition is not None and type(partition) is not int:
        partition = whole("partition", partition)
    if partition is not None or info.partitions == 1:
        if not 0 <= (partition or 0) < info.partitions:
            raise ConfigError(
                f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {partition}"
            )
        return partition or 0
    return turn % info.partitions if key is None else partition_for(key, info.partitions)


class RecordAccumulator:
    """The records of one producer that are not on their way yet.

    Attributes:
        ready: the batches to go out, in order; the sender takes them from there.
        joined: the open queue and its last batch, where the next value that has no key and names no
            partition only has to be put there. None before anything else is done with that queue,
            and when the turn goes to another one.
        joins_to: the size up to which that queue may grow so: it stays open, and no record is near
            the limit of an entry.
    """

    def __init__(
        self,
        core: ClientState,
        info: TopicInfo,
        *,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> None:
        config = core.config
        if not config.idempotent:
            raise ConfigError(
                "a producer needs idempotent=True: what is in flight could not be repeated in order"
            )
        if not 0 < config.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(f"max_in_flight {config.max_in_flight}: 1 to {MAX_IN_FLIGHT}")
        self._core = core
        self._info = info
        self._is_typed = info.typed
        self._partition = partition
        self._on_delivery = on_delivery
        self._turn = 0
        self._batch_bytes = min(config.batch_bytes, max_body(core))
        self.joins_to = self._batch_bytes - OVERHEAD
        self._queues: dict[int, PartitionQueue] = {}
        self.joined: tuple[PartitionQueue, ValueBatch] | None = None
        self.ready: deque[OutgoingBatch] = deque()

    @property
    def empty(self) -> bool:
        return not self._queues

    def place(self, partition: int | None, key: bytes | None) -> int:
        """The partition of a single value."""
        if partition is None and key is None and self._partition is None:
            return self._turn % self._info.partitions
        return self._place(partition, key)

    def has_open(self, at: int) -> bool:
        """Whether a partition's next value joins others that wait: it needs no room of its own."""
        return at in self._queues

    def add_value(self, at: int, value: bytes, key: bytes | None) -> tuple[ValueBatch, int, int]:
        """Take a single value: its batch, its number there, and the bytes that are ready to go out.

        Raises:
            RecordTooLarge, SchemaMismatch: it is not taken.
        """
        self.joined = None
        if self._is_typed:
            check_kind(self._info, is_typed=False)
        size = len(value) + len(key or b"")
        if size > self._batch_bytes - OVERHEAD:
            self._check_size(size)
        queue = self._queue(at)
        batch = queue.values(key is not None)
        queue.size += size + RECORD
        number = len(batch.records)
        batch.records.append((value, key) if batch.keyed else value)
        if queue.size >= self._batch_bytes:
            return batch, number, self._hand_over(queue)
        return batch, number, 0

    def join(self, at: int, batch: ValueBatch) -> None:
        """A value was put into a batch, which sees to its way out: values like it may follow."""
        queue = self._queues.get(at)
        if queue is not None and not batch.keyed and at == self.place(None, None):
            self.joined = queue, batch

    def values(
        self,
        future: Promise,
        values: Values,
        *,
        keys: Values | None,
        partition: int | None,
        headers: Headers | None,
        timestamps: Times | None,
    ) -> list[Addition]:
        """An append, by what takes its pieces in order: the caller calls each of them where there
        is room.

        Raises:
            RecordTooLarge, ConfigError: no record can be taken.
        """
        records = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
        check_kind(self._info, is_typed=False)
        partition = self.partition(partition)
        if keys is not None and partition is None and self._info.partitions > 1:
            division = partitions_of(records, self._info.partitions)
            if division is not None:
                return self.pieces(future, list(division.of(records)), now=False)
        return self._additions(future, self._place(partition, None), records, now=False)

    def batch(
        self, future: Promise, partition: int | None, batch: pa.RecordBatch
    ) -> list[Addition]:
        """As `values`, of record columns that go out now, behind the records of their partition."""
        check_kind(self._info, is_typed_batch(batch))
        return self._additions(future, self._place(partition, None), batch, now=True)

    def pieces(
        self, future: Promise, pieces: Sequence[tuple[int, pa.RecordBatch]], now: bool = True
    ) -> list[Addition]:
        """As `values`, of batches for a partition each; with ``now`` they go out now."""
        if len(pieces) > 1:
            future = Gathered(future, self._info.name, parts=len(pieces))
        return [
            addition
            for at, batch in pieces
            for addition in self._additions(future, at, batch, now=now)
        ]

    def partition(self, asked: int | None) -> int | None:
        """Where records go that are appended with this argument: the producer's partition where it
        is None and there is one."""
        return self._partition if asked is None else asked

    def _place(self, partition: int | None, key: bytes | None) -> int:
        return place_value(self._info, self.partition(partition), key, self._turn)

    def _check_size(self, size: int) -> None:
        limit = max_body(self._core) - OVERHEAD
        if size > limit:
            raise RecordTooLarge(
                f"append to {self._info.name!r}: a record of {size} bytes is over the limit {limit}"
            )

    def _additions(
        self, future: Promise, at: int, batch: pa.RecordBatch, now: bool
    ) -> list[Addition]:
        records = as_records(batch)
        if not records.num_rows:
            raise ConfigError("a batch has at least one record")
        pieces = [records]
        # no less than what it has of them
        if records.get_total_buffer_size() > max_body(self._core) - OVERHEAD:
            pieces = list(split_batch(records, max_body(self._core)))
        pending = Pending(future, self._info.name, at, records.num_rows)
        return [partial(self._add_piece, pending, one, now or len(pieces) > 1) for one in pieces]

    def _add_piece(self, pending: Pending, records: pa.RecordBatch, now: bool) -> int:
        """Take a piece of an append; with ``now`` all of its partition is ready to go out."""
        at = pending.partition
        self.joined = None
        queue = self._queue(at)
        if now and not queue.entries:
            size = self._ready(
                self._outgoing([Batch(at, records, [(pending, 0, records.num_rows)])], None)
            )
            self._queues.pop(at, None)
            return size
        queue.add_batch(pending, records, records.nbytes)
        return self._hand_over(queue) if now or queue.size >= self._batch_bytes else 0

    def hand_over(self) -> int:
        """Everything goes out now; its bytes."""
        return sum(self._hand_over(queue) for queue in list(self._queues.values()))

    def _queue(self, at: int) -> PartitionQueue:
        """The open queue of a partition."""
        queue = self._queues.get(at)
        if queue is not None and queue.outgoing is not None:  # its closing was interrupted
            self._hand_over(queue)
            queue = None
        if queue is None:
            queue = self._queues[at] = PartitionQueue(self._info.name, at)
        return queue

    def _hand_over(self, queue: PartitionQueue) -> int:
        """Close a queue and put it where the loop finds it. After an interrupt in here another call
        does the same again: the loop takes it once."""
        size = 0
        self.joined = None
        if queue.entries:
            if queue.outgoing is None:
                queue.outgoing = self._outgoing(*queue.batches(max_body(self._core)))
            queue.drop_values()
            size = self._ready(queue.outgoing)
        self._queues.pop(queue.partition, None)
        return size

    def _ready(self, outgoing: OutgoingBatch) -> int:
        self._turn += 1
        self.ready.append(outgoing)
        return outgoing.size

    def _outgoing(self, batches: list[Batch], error: DLedgerError | None) -> OutgoingBatch:
        if error is not None:
            return OutgoingBatch((), [(self._done(batch), error) for batch in batches])
        items: list[Item] = []
        refused: list[tuple[Done, DLedgerError]] = []
        for batch in batches:
            done = self._done(batch)
            try:
                item = make_item(self._core, self._info, batch.partition, batch.records, done)
            except DLedgerError as why:
                refused.append((done, why))
            else:
                items.append(item)
        return OutgoingBatch(items, refused)

    def _done(self, batch: Batch) -> Done:
        """The callback for a batch's answer."""
        if self._on_delivery is None:
            return batch.answered
        records = sum(count for *_, count in batch.parts)
        told = Delivery(self._info.name, batch.partition, records)
        return partial(_deliver, self._on_delivery, told, batch.answered)


def _deliver(
    on_delivery: OnDelivery, told: Delivery, done: Done, result: int | DLedgerError
) -> None:
    done(result)
    if isinstance(result, DLedgerError):
        told = replace(told, error=result)
    else:
        told = replace(told, start=result, end=result + told.records)
    call_program(on_delivery, told)


def max_body(core: ClientState) -> int:
    """The queue's max_body_bytes, as far as it is known."""
    return core.routes.max_body_bytes or 8 * MIB


def make_item(
    core: ClientState,
    info: TopicInfo,
    partition: int,
    records: Appendable,
    done: Done,
    staged: bool = False,
) -> Item:
    """A batch as it goes out, still without its number."""
    header, payload = encoder_of(core, records)(
        records,
        topic_id=info.topic_id,
        partition=partition,
        staged=staged,
        now_us=core.environment.wall_us(),
    )
    deadline_ms = core.environment.now_ms() + core.config.request_timeout_ms
    return Item(info.topic_id, partition, header, payload, deadline_ms, done)
