"""What a producer does with records before they go out: place them, check them, group them. Pure but for the wall
clock, which labels records."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dledger.batch.build import Headers, Times, Values
from dledger.batch.records import as_records, encode_batch, make_records
from dledger.batch.sizes import OVERHEAD, split_batch
from dledger.client.appending import place_values
from dledger.client.core import Core
from dledger.client.grouping import Batch, Grouper, Pending, Promise
from dledger.client.window import Done, Item
from dledger.config import MIB
from dledger.errors import ConfigError, DLedgerError, RecordTooLarge
from dledger.messages.client import TopicInfo

MAX_IN_FLIGHT = 2000
"""A node remembers the results of a producer's last 2048 batches of each partition; a repeat must be among them."""


class Intake:
    """The records of one producer that are not on their way yet."""

    def __init__(self, core: Core, info: TopicInfo, partition: int | None) -> None:
        config = core.config
        if not config.idempotent:
            raise ConfigError("a producer needs idempotent=True: what is in flight could not be repeated in order")
        if not 0 < config.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(f"max_in_flight {config.max_in_flight}: 1 to {MAX_IN_FLIGHT}")
        self._core = core
        self._info = info
        self._partition = partition
        self._turn = 0
        self._grouper = Grouper(min(config.batch_bytes, max_body(core)))

    @property
    def empty(self) -> bool:
        return self._grouper.empty

    def add(
        self,
        future: Promise,
        values: Values,
        keys: Values | None,
        partition: int | None,
        headers: Headers | None,
        timestamps: Times | None,
    ) -> Iterator[Item]:
        """Take records in; what is to go out now.

        Raises:
            RecordTooLarge, ConfigError: nothing was taken.
        """
        name = self._info.name
        plain = headers is None and timestamps is None
        if plain and isinstance(values, bytes) and (keys is None or isinstance(keys, bytes)):
            at = self._place(partition, keys)
            self._check(len(values) + len(keys or b""))
            full = self._grouper.add_value(Pending(future, name, at, 1), values, keys)
        else:
            records = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
            at = self._place(partition, keys)
            full = self._add(future, at, records)
        return self._take((at,)) if full else iter(())

    def add_batch(self, future: Promise, partition: int | None, batch: pa.RecordBatch) -> Iterator[Item]:
        """Take a batch in; it is to go out now, behind what was taken before for its partition."""
        at = self._place(partition, None)
        if not self._grouper.holds(at):
            self._turn += 1
            pending = Pending(future, self._info.name, at, batch.num_rows)
            item = make_item(
                self._core, self._info, at, batch, lambda result: pending.answered(result, pending.left)
            )
            if len(item.header) + len(item.payload) <= max_body(self._core):
                return iter((item,))
        self._add(future, at, batch)
        return self._take((at,))

    def take(self) -> Iterator[Item]:
        """Everything."""
        return self._take(None)

    def _take(self, partitions: tuple[int, ...] | None) -> Iterator[Item]:
        self._turn += 1
        for batch in self._grouper.take(partitions, max_body(self._core)):
            item = self._item(batch)
            if item is not None:
                yield item

    def _item(self, batch: Batch) -> Item | None:
        try:
            return make_item(self._core, self._info, batch.partition, batch.records, batch.answered)
        except DLedgerError as error:
            batch.answered(error)
            return None

    def _place(self, partition: int | None, keys: Values | None) -> int:
        return place_values(self._info, self._partition if partition is None else partition, keys, self._turn)

    def _add(self, future: Promise, at: int, records: pa.RecordBatch) -> bool:
        records, size = as_records(records), records.nbytes
        if not records.num_rows:
            raise ConfigError("a batch has at least one record")
        if size > max_body(self._core) - OVERHEAD:
            split_batch(records, max_body(self._core))  # finds a record that is too large before anything is taken
        return self._grouper.add_batch(Pending(future, self._info.name, at, records.num_rows), records, size)

    def _check(self, size: int) -> None:
        limit = max_body(self._core) - OVERHEAD
        if size > limit:
            raise RecordTooLarge(f"append to {self._info.name!r}: a record of {size} bytes is over the limit {limit}")


def max_body(core: Core) -> int:
    """The group's max_body_bytes, as far as it is known."""
    return core.routes.max_body_bytes or 8 * MIB


def make_item(
    core: Core, info: TopicInfo, partition: int, records: pa.RecordBatch, done: Done, staged: bool = False
) -> Item:
    """A batch as it goes out, still without its number."""
    header, payload = encode_batch(
        records, topic_id=info.topic_id, partition=partition, staged=staged, codec=core.codec, now_us=core.now_us()
    )
    deadline_ms = core.now_ms() + core.config.request_timeout_ms
    return Item(info.topic_id, partition, header, payload, deadline_ms, done)
