"""The records of a producer before they go out: placed, checked, grouped. Pure but for the wall
clock, which labels records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from dledger.client.protocol.appending import place_values
from dledger.client.protocol.client_state import CODECS, ClientState
from dledger.client.protocol.writing.batching import (
    Batch,
    OutgoingBatch,
    PartitionQueue,
    Pending,
    Promise,
)
from dledger.client.protocol.writing.in_flight_window import Done, Item
from dledger.config import MIB
from dledger.errors import ConfigError, DLedgerError, RecordTooLarge
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values, as_records, make_records
from dledger.records.body.records import encode_batch
from dledger.records.body.sizer import OVERHEAD, split_batch

MAX_IN_FLIGHT = 2000
"""A node remembers the results of a producer's last 2048 batches of each partition; a repeat must
be among them."""
CLOSED = "the producer is closed; open another one"
Addition: TypeAlias = Callable[[], int]
"""Takes records that were checked; gives the bytes that are ready to go out now."""


class RecordAccumulator:
    """The records of one producer that are not on their way yet.

    Attributes:
        ready: the batches to go out, in order; the sender takes them from there.
    """

    def __init__(self, core: ClientState, info: TopicInfo, *, partition: int | None) -> None:
        config = core.config
        if not config.idempotent:
            raise ConfigError(
                "a producer needs idempotent=True: what is in flight could not be repeated in order"
            )
        if not 0 < config.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(f"max_in_flight {config.max_in_flight}: 1 to {MAX_IN_FLIGHT}")
        self._core = core
        self._info = info
        self._partition = partition
        self._turn = 0
        self._batch_bytes = min(config.batch_bytes, max_body(core))
        self._groups: dict[int, PartitionQueue] = {}
        self.ready: deque[OutgoingBatch] = deque()

    @property
    def empty(self) -> bool:
        return not self._groups

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
        plain = headers is None and timestamps is None
        if plain and isinstance(values, bytes) and (keys is None or isinstance(keys, bytes)):
            at = self._place(partition, keys)
            self._check_value(values, keys)
            return [partial(self._add_value, future, at, values, keys)]
        records = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
        return self._additions(future, self._place(partition, keys), records, now=False)

    def batch(
        self, future: Promise, partition: int | None, batch: pa.RecordBatch
    ) -> list[Addition]:
        """As `values`, of record columns that go out now, behind the records of their partition."""
        return self._additions(future, self._place(partition, None), batch, now=True)

    def _place(self, partition: int | None, keys: Values | None) -> int:
        return place_values(
            self._info, self._partition if partition is None else partition, keys, self._turn
        )

    def _check_value(self, value: bytes, key: bytes | None) -> None:
        size, limit = len(value) + len(key or b""), max_body(self._core) - OVERHEAD
        if size > limit:
            raise RecordTooLarge(
                f"append to {self._info.name!r}: a record of {size} bytes is over the limit {limit}"
            )

    def _add_value(self, future: Promise, at: int, value: bytes, key: bytes | None) -> int:
        group = self._group(at)
        group.add_value(Pending(future, self._info.name, at, 1), value, key)
        return self._hand_over(group) if group.size >= self._batch_bytes else 0

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
        group = self._group(at)
        if now and not group.entries:
            size = self._ready(
                self._outgoing([Batch(at, records, [(pending, records.num_rows)])], None)
            )
            self._groups.pop(at, None)
            return size
        group.add_batch(pending, records, records.nbytes)
        return self._hand_over(group) if now or group.size >= self._batch_bytes else 0

    def hand_over(self) -> int:
        """Everything goes out now; its bytes."""
        return sum(self._hand_over(group) for group in list(self._groups.values()))

    def _group(self, at: int) -> PartitionQueue:
        """The open group of a partition."""
        group = self._groups.get(at)
        if group is not None and group.outgoing is not None:  # its closing was interrupted
            self._hand_over(group)
            group = None
        if group is None:
            group = self._groups[at] = PartitionQueue(at)
        return group

    def _hand_over(self, group: PartitionQueue) -> int:
        """Close a group and put it where the loop finds it. After an interrupt in here another call
        does the same again: the loop takes it once."""
        size = 0
        if group.entries:
            if group.outgoing is None:
                group.outgoing = self._outgoing(*group.batches(max_body(self._core)))
            size = self._ready(group.outgoing)
        self._groups.pop(group.partition, None)
        return size

    def _ready(self, outgoing: OutgoingBatch) -> int:
        self._turn += 1
        self.ready.append(outgoing)
        return outgoing.size

    def _outgoing(self, batches: list[Batch], error: DLedgerError | None) -> OutgoingBatch:
        if error is not None:
            return OutgoingBatch((), [(batch, error) for batch in batches])
        items: list[Item] = []
        refused: list[tuple[Batch, DLedgerError]] = []
        for batch in batches:
            try:
                items.append(
                    make_item(
                        self._core, self._info, batch.partition, batch.records, batch.answered
                    )
                )
            except DLedgerError as why:
                refused.append((batch, why))
        return OutgoingBatch(items, refused)


def max_body(core: ClientState) -> int:
    """The group's max_body_bytes, as far as it is known."""
    return core.routes.max_body_bytes or 8 * MIB


def make_item(
    core: ClientState,
    info: TopicInfo,
    partition: int,
    records: pa.RecordBatch,
    done: Done,
    staged: bool = False,
) -> Item:
    """A batch as it goes out, still without its number."""
    header, payload = encode_batch(
        records,
        topic_id=info.topic_id,
        partition=partition,
        staged=staged,
        codec=CODECS[core.config.compression],
        now_us=core.environment.wall_us(),
    )
    deadline_ms = core.environment.now_ms() + core.config.request_timeout_ms
    return Item(info.topic_id, partition, header, payload, deadline_ms, done)
