"""The way out from any thread into a `Pipeline` on the background loop, no more than fits at a
time.

A batch changes hands in one step, the append to `Flow.ready`: an interrupt finds it handed over or
not. All counting is the loop's, which no interrupt reaches.
"""

from __future__ import annotations

import weakref
from _thread import RLock
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from dledger.client.aio.outflow import FlowBase
from dledger.client.aio.pipeline import Pipeline
from dledger.client.blocking.background_loop import Background, background
from dledger.client.blocking.waiting import Gates
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.writing.batching import OutgoingBatch
from dledger.client.protocol.writing.in_flight_window import Done, Item
from dledger.errors import DLedgerError

SMALL_BYTES: Final = 16 << 10
ROW: Final = 32
"""Batches below SMALL_BYTES go to the loop up to ROW at a time: waking it costs as much as the work
on one of them."""
_SIZE: Final = attrgetter("size")


class Flow(FlowBase):
    """Batches into a pipeline; `wake` must follow when some are `ready`.

    Args:
        make: makes the pipeline, on the background loop.
    """

    def __init__(
        self,
        core: ClientState,
        what: str,
        *,
        make: Callable[[], Pipeline],
        ready: deque[OutgoingBatch],
    ) -> None:
        super().__init__(core, what, ready=ready)
        self.background = background()
        self._most, self._most_bytes = core.config.max_in_flight, core.config.max_in_flight_bytes
        self._low, self._low_bytes = self._most * 3 // 4, self._most_bytes * 3 // 4
        self._row = min(ROW, self._most // 8)
        self._gates = Gates()
        self._lock = RLock()  # a signal handler may append, too
        self._scheduled = False

        self.background.run(partial(self._start, make))

    async def _start(self, make: Callable[[], Pipeline]) -> None:
        """On the loop, which no interrupt keeps from binding the end of the pipeline to that of
        this object."""
        self.pipeline = make()
        self._end = weakref.finalize(self, _forget, self.background, self.pipeline)
        ref = weakref.ref(self)
        self.pipeline.on_answers = lambda: flow.take() if (flow := ref()) else None

    @property
    def empty(self) -> bool:
        """Whether every batch is answered."""
        # in this order: `take` counts what it then takes away
        return not self.ready and not self._count

    def wait_for_room(self) -> None:
        """Wait until less than the limits is in flight. The caller holds no lock, since the loop
        may need it.

        The loop's own thread, where the callbacks of futures run, goes on at once: it must not wait
        for itself.

        Raises:
            ForkedClient: as `check`.
        """
        self.check()
        if not self._has_room() and not self.background.here:  # mostly there is
            self._send()
            self._gates.wait(self._has_room)

    def _has_room(self) -> bool:
        waiting = tuple(self.ready)  # one step: the loop takes from it meanwhile
        size = self._bytes + sum(map(_SIZE, waiting))
        return self._count + len(waiting) < self._most and size < self._most_bytes

    def wake(self, size: int) -> None:
        """``size`` bytes are ready. Few need not wake the loop: while something is unanswered, its
        answer does."""
        if (
            size >= SMALL_BYTES
            or len(self.ready) >= self._row
            or not self.pipeline.window.unanswered
        ):
            self._send()

    def _send(self) -> None:
        with self._lock:
            if not self._scheduled:
                self.background.loop.call_soon_threadsafe(self.take)
                # only now: an interrupt before it costs a second call, behind it nothing
                self._scheduled = True

    def take(self) -> None:
        """On the loop: send the batches that are ready and fit."""
        with self._lock:
            # before the queue is read: a later batch schedules anew
            self._scheduled = False
        found: list[Item] = []
        while self.ready and self._count < self._most:
            outgoing = self.ready[0]
            if not outgoing.taken:
                outgoing.taken = True
                self._count += len(outgoing.items)
                self._bytes += outgoing.size
                found += outgoing.items
            self.ready.popleft()  # after it was counted: `empty` must find it in one of the two
            outgoing.refuse()
        for item in found:
            item.done = self._freeing(len(item.header) + len(item.payload), item.done)
        if found:
            self.pipeline.push(*found)
        self._open()

    def _freeing(self, size: int, done: Done) -> Done:
        def answered(result: int | DLedgerError) -> None:
            done(result)
            self._count -= 1
            self._bytes -= size
            self._open()
            if not self._count and self.ready:
                self._send()

        return answered

    def _open(self) -> None:
        """Threads are woken for a row of batches, not for each."""
        if not self._count or (self._count <= self._low and self._bytes <= self._low_bytes):
            self._gates.open()

    def wait_empty(self) -> None:
        """Wait until every batch is answered.

        Raises:
            ConfigError: this is the loop's own thread, which would wait for itself.
            ForkedClient: as `check`.
        """
        self.check()
        self.background.check_elsewhere()
        self._send()
        self._gates.wait(lambda: self.empty)

    def close(self) -> None:
        """Wait until every batch is answered, then end the pipeline. It may be asked for again, and
        waits again."""
        if self._end.alive:
            self.wait_empty()
            self.background.run(self.pipeline.close)
            self._end.detach()

    def cancel(self) -> None:
        """End the pipeline now; unanswered batches fail."""
        self._end()


def _forget(loop: Background, pipeline: Pipeline) -> None:
    if loop.alive:
        loop.loop.call_soon_threadsafe(pipeline.cancel)
