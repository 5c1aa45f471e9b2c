"""Pipelined appends for callers that wait: a thread-safe shell around a `Pipeline` on the background loop."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from dledger.batch.build import Headers, Times, Values
from dledger.client.background import Background, background
from dledger.client.channel import Channel
from dledger.client.core import Core
from dledger.client.intake import Intake
from dledger.client.operations import init_producer
from dledger.client.pipeline import Pipeline
from dledger.client.results import Appended
from dledger.client.session import Session
from dledger.client.window import Done, Item, Window
from dledger.errors import ConfigError, DLedgerError
from dledger.messages.client import TopicInfo

SMALL_BYTES: Final = 16 << 10
ROW: Final = 32
"""Items below SMALL_BYTES go to the loop up to ROW at a time: waking it costs as much as the work on one of them."""


class Flow:
    """Items into a pipeline from any thread, no more than fit at a time.

    Args:
        make: makes the pipeline, on the background loop.
    """

    def __init__(self, core: Core, make: Callable[[], Pipeline]) -> None:
        self._limits = core.config
        self._background = background()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._count = 0
        self._bytes = 0
        self._waiting = False
        self._row = min(ROW, core.config.max_in_flight // 8)
        self._low = core.config.max_in_flight * 3 // 4  # a thread is woken for a row of items, not for each
        self._low_bytes = core.config.max_in_flight_bytes * 3 // 4
        self._inbox: deque[Item] = deque()
        self._scheduled = False

        async def start() -> Pipeline:
            return make()

        self.pipeline = self._background.run(start())
        ref = weakref.ref(self)
        self.pipeline.on_answers = lambda: flow.take() if (flow := ref()) else None
        self._end = weakref.finalize(self, _forget, self._background, self.pipeline)

    @property
    def background(self) -> Background:
        return self._background

    def push(self, item: Item) -> None:
        """Wait for room, then send; on the loop's own thread, which must not wait, send at once."""
        size = len(item.header) + len(item.payload)
        with self._lock:
            if not self._background.here:
                while self._count >= self._limits.max_in_flight or not self._has_room(size):
                    self._waiting = True
                    self._changed.wait()
            self._count += 1
            self._bytes += size
        item.done = self._freeing(size, item.done)
        inbox = self._inbox
        inbox.append(item)
        if size >= SMALL_BYTES or len(inbox) >= self._row or not self.pipeline.window.unanswered:
            self._send()

    def _send(self) -> None:
        """Wake the loop. Small items need not: while something is unanswered, its answer wakes the loop anyway."""
        if not self._scheduled:
            self._scheduled = True
            self._background.loop.call_soon_threadsafe(self.take)

    def _has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._limits.max_in_flight_bytes

    def _freeing(self, size: int, done: Done) -> Done:
        def answered(result: int | DLedgerError) -> None:
            done(result)
            with self._lock:
                self._count -= 1
                self._bytes -= size
                if not self._count or (
                    self._waiting and self._count <= self._low and self._bytes <= self._low_bytes
                ):
                    self._waiting = False
                    self._changed.notify_all()

        return answered

    def take(self) -> None:
        """On the loop: send what has come in."""
        self._scheduled = False  # before the inbox is read: what comes after it schedules anew
        if inbox := self._inbox:
            self.pipeline.push(*[inbox.popleft() for _ in range(len(inbox))])

    def wait_empty(self) -> None:
        """Wait until every item is answered."""
        self._send()
        with self._lock:
            while self._count:
                self._changed.wait()

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
        self.name = name
        self._linger_s = core.config.linger_ms / 1000
        self._intake = Intake(core, info, partition)
        self._lock = threading.RLock()
        self._lingering = False
        self._closed = False

        def make() -> Pipeline:
            window = Window(f"append to {info.name!r}")
            window.opened(session)
            return Pipeline(core, channel, window, lambda: channel.run(init_producer(core, name)))

        self._flow = Flow(core, make)

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
        future = _Uncancellable()
        with self._lock:
            self._check()
            self._send(self._intake.add(future, values, keys, partition, headers, timestamps))
            if not self._lingering and not self._intake.empty:
                self._lingering = True
                self._flow.background.loop.call_soon_threadsafe(self._linger)
        return future

    def append_batch(self, partition: int | None, batch: pa.RecordBatch) -> Future[Appended]:
        """Append a batch of record columns now, behind what was appended before it; see `append`."""
        future = _Uncancellable()
        with self._lock:
            self._check()
            self._send(self._intake.add_batch(future, partition, batch))
        return future

    def _check(self) -> None:
        if self._closed:
            raise ConfigError("the producer is closed; open another one")

    def _send(self, items: Iterator[Item]) -> None:
        for item in items:
            self._flow.push(item)

    def _linger(self) -> None:
        self._flow.background.loop.call_later(self._linger_s, self._lingered)

    def _lingered(self) -> None:
        if not self._lock.acquire(blocking=False):  # its holder may wait for room, which this thread makes
            self._linger()
            return
        try:
            self._lingering = False
            self._send(self._intake.take())
        finally:
            self._lock.release()

    def flush(self) -> None:
        """Send what waits, and return when everything is answered. Failures are in the futures."""
        with self._lock:
            self._send(self._intake.take())
        self._flow.wait_empty()

    def close(self) -> None:
        """Flush, then end. Appending afterwards is an error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.flush()
        self._flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Uncancellable(Future[Appended]):
    """The records may be on their way, so there is no calling them back."""

    def cancel(self) -> bool:
        return False
