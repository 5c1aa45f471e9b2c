"""Pipelined appends for callers that wait: a thread-safe shell around a `Pipeline` on the background loop."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from dledger.batch.build import Headers, Times, Values
from dledger.batch.records import encode_batch, make_records
from dledger.batch.sizes import OVERHEAD, split_batch
from dledger.client.appending import place_values
from dledger.client.background import Background, background
from dledger.client.channel import Channel
from dledger.client.core import Core, now_ms, now_us
from dledger.client.grouping import Batch, Grouper, Pending, is_plain
from dledger.client.operations import init_producer
from dledger.client.pipeline import Pipeline
from dledger.client.results import Appended
from dledger.client.session import Session
from dledger.client.window import Done, Item, Window
from dledger.config import MIB
from dledger.errors import ConfigError, DLedgerError, RecordTooLarge
from dledger.messages.client import TopicInfo

MAX_IN_FLIGHT = 2000
"""A node remembers the results of a producer's last 2048 batches of each partition; a repeat must be among them."""


class Flow:
    """Items into a pipeline from any thread, no more than fit at a time.

    Args:
        make: makes the pipeline, on the background loop.
    """

    def __init__(self, core: Core, make: Callable[[], Pipeline]) -> None:
        self._limits = core.config
        self._background = background()
        self._changed = threading.Condition()
        self._count = 0
        self._bytes = 0
        self._waiters = 0
        self._inbox: deque[Item] = deque()
        self._scheduled = False

        async def start() -> Pipeline:
            return make()

        self.pipeline = self._background.run(start())
        self._end = weakref.finalize(self, _forget, self._background, self.pipeline)

    @property
    def background(self) -> Background:
        return self._background

    def push(self, item: Item) -> None:
        """Wait for room, then send; on the loop's own thread, which must not wait, send at once."""
        size = len(item.header) + len(item.payload)
        with self._changed:
            if not self._background.here:
                self._waiters += 1
                self._changed.wait_for(lambda: self._count < self._limits.max_in_flight and self._has_room(size))
                self._waiters -= 1
            self._count += 1
            self._bytes += size
        item.done = self._freeing(size, item.done)
        self._inbox.append(item)
        if not self._scheduled:
            self._scheduled = True
            self._background.loop.call_soon_threadsafe(self._take)

    def _has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._limits.max_in_flight_bytes

    def _freeing(self, size: int, done: Done) -> Done:
        def answered(result: int | DLedgerError) -> None:
            done(result)
            with self._changed:
                self._count -= 1
                self._bytes -= size
                if self._waiters:
                    self._changed.notify_all()

        return answered

    def _take(self) -> None:
        self._scheduled = False  # before the inbox is read: what comes after it schedules anew
        inbox = self._inbox
        self.pipeline.push(*[inbox.popleft() for _ in range(len(inbox))])

    def wait_empty(self) -> None:
        """Wait until every item is answered."""
        with self._changed:
            self._waiters += 1
            self._changed.wait_for(lambda: not self._count)
            self._waiters -= 1

    def close(self) -> None:
        """Wait until every item is answered, then end the pipeline."""
        if self._end.detach():
            self.wait_empty()
            self._background.run(self.pipeline.close())

    def cancel(self) -> None:
        """End the pipeline now; what is not answered fails."""
        self._end()


def _forget(loop: Background, pipeline: Pipeline) -> None:
    if not loop.loop.is_closed():
        loop.loop.call_soon_threadsafe(pipeline.cancel)


class Producer:
    """Appends many batches at a time to one topic, each once and in order in its partition, over changes of leader.

    Small appends are grouped: a batch goes out when it has ``batch_bytes`` or is ``linger_ms`` old. When
    ``max_in_flight`` batches or ``max_in_flight_bytes`` wait for their answers, appending waits. Threads may share it.

    Made by `Client.producer`.
    """

    def __init__(
        self, core: Core, channel: Channel, info: TopicInfo, partition: int | None, name: str, session: Session
    ) -> None:
        config = core.config
        if not config.idempotent:
            raise ConfigError("a producer needs idempotent=True: what is in flight could not be repeated in order")
        if not 0 < config.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(f"max_in_flight {config.max_in_flight}: 1 to {MAX_IN_FLIGHT}")
        self.name = name
        self._core = core
        self._info = info
        self._partition = partition
        self._grouper = Grouper(min(config.batch_bytes, self._max_body))
        self._lock = threading.RLock()
        self._turn = 0
        self._lingering = False
        self._closed = False

        def make() -> Pipeline:
            window = Window(f"append to {info.name!r}")
            window.opened(session)
            return Pipeline(core, channel, window, lambda: channel.run(init_producer(name)))

        self._flow = Flow(core, make)

    @property
    def _max_body(self) -> int:
        return self._core.routes.max_body_bytes or 8 * MIB

    def append(
        self,
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> Future[Appended]:
        """Append records, as `Client.append`; the future has their place when a quorum has them on disk.

        Raises:
            RecordTooLarge, ConfigError: nothing was taken. Everything else comes through the future.
        """
        plain = is_plain(values, keys, headers, timestamps)
        records = None if plain else make_records(values, keys=keys, headers=headers, timestamps=timestamps)
        future = _future()
        with self._lock:
            at = self._place(partition, keys)
            if records is None:
                self._check(len(values) + len(keys or b""))
                full = self._grouper.add_value(Pending(future, self._info.name, at, 1), values, keys)  # type: ignore[arg-type]
            else:
                full = self._add(future, at, records)
            if full:
                self._send(self._grouper.take((at,), self._max_body))
                self._turn += 1
            elif not self._lingering:
                self._lingering = True
                self._flow.background.loop.call_soon_threadsafe(self._linger)
        return future

    def append_batch(self, partition: int | None, batch: pa.RecordBatch) -> Future[Appended]:
        """Append a batch of record columns now, behind what was appended before it; see `append`."""
        future = _future()
        with self._lock:
            at = self._place(partition, None)
            self._add(future, at, batch)
            self._send(self._grouper.take((at,), self._max_body))
            self._turn += 1
        return future

    def _place(self, partition: int | None, keys: Values | None) -> int:
        if self._closed:
            raise ConfigError("the producer is closed; open another one")
        wanted = self._partition if partition is None else partition
        return place_values(self._info, wanted, keys, self._turn)

    def _add(self, future: Future[Appended], at: int, records: pa.RecordBatch) -> bool:
        if not records.num_rows:
            raise ConfigError("a batch has at least one record")
        if records.nbytes > self._max_body - OVERHEAD:
            split_batch(records, self._max_body)  # finds a record that is too large before anything is taken
        return self._grouper.add_batch(Pending(future, self._info.name, at, records.num_rows), records)

    def _check(self, size: int) -> None:
        limit = self._max_body - OVERHEAD
        if size > limit:
            raise RecordTooLarge(f"append to {self._info.name!r}: a record of {size} bytes is over the limit {limit}")

    def _linger(self) -> None:
        self._flow.background.loop.call_later(self._core.config.linger_ms / 1000, self._lingered)

    def _lingered(self) -> None:
        if not self._lock.acquire(blocking=False):  # its holder may wait for room, which this thread makes
            self._linger()
            return
        try:
            self._lingering = False
            self._send(self._grouper.take(None, self._max_body))
            self._turn += 1
        finally:
            self._lock.release()

    def _send(self, batches: list[Batch]) -> None:
        for batch in batches:
            try:
                item = make_item(self._core, self._info, batch.partition, batch.records, batch.answered)
            except DLedgerError as error:
                batch.answered(error)
            else:
                self._flow.push(item)

    def flush(self) -> None:
        """Send what waits, and return when everything is answered. Failures are in the futures."""
        with self._lock:
            self._send(self._grouper.take(None, self._max_body))
        self._flow.wait_empty()

    def close(self) -> None:
        """Flush, then end. Appending afterwards is an error."""
        if not self._closed:
            self.flush()
            self._closed = True
            self._flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _future() -> Future[Appended]:
    future: Future[Appended] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled: the records may be on their way
    return future


def make_item(
    core: Core, info: TopicInfo, partition: int, records: pa.RecordBatch, done: Done, staged: bool = False
) -> Item:
    """A batch as it goes out, still without its number."""
    header, payload = encode_batch(
        records, topic_id=info.topic_id, partition=partition, staged=staged, codec=core.codec, now_us=now_us()
    )
    deadline_ms = now_ms() + core.config.request_timeout_ms
    return Item(info.topic_id, partition, header, payload, deadline_ms, done)
