"""The way out of asyncio producers and stages: the batches on their way, and their outcomes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from dledger import forks
from dledger.client.aio.pipeline import Pipeline
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.writing.batching import OutgoingBatch
from dledger.client.protocol.writing.in_flight_window import Done
from dledger.errors import DLedgerError


class FlowBase:
    """The common part of the ways out, from threads and from a loop: batches of one process.

    Args:
        what: names it in errors.
        ready: where batches are put that are to go out, in order.
    """

    def __init__(self, core: ClientState, what: str, *, ready: deque[OutgoingBatch]) -> None:
        self.ready = ready
        self._config = core.config
        self._what = what
        self._born = forks.generation
        self._count = 0
        self._bytes = 0

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that it belongs to."""
        return self._born != forks.generation

    def check(self) -> None:
        """Before any lock is taken, which in a forked child may be held for ever.

        Raises:
            ForkedClient: this process is a child of the one that it belongs to.
        """
        forks.check_born_here(self._born, self._what)


class AsyncFlow(FlowBase):
    """Batches into a pipeline, no more than fit at a time; `dledger.client.blocking.outflow` for
    one loop."""

    def __init__(
        self, core: ClientState, what: str, *, pipeline: Pipeline, ready: deque[OutgoingBatch]
    ) -> None:
        super().__init__(core, what, ready=ready)
        self.pipeline = pipeline
        self._waiting: list[asyncio.Future[None]] = []

    def take(self) -> None:
        """Send the ready batches, whether there is room or not."""
        while self.ready:
            outgoing = self.ready.popleft()
            outgoing.refuse()
            for item in outgoing.items:
                size = len(item.header) + len(item.payload)
                self._count += 1
                self._bytes += size
                item.done = self._freeing(size, item.done)
                self.pipeline.push(item)

    def _freeing(self, size: int, done: Done) -> Done:
        def answered(result: int | DLedgerError) -> None:
            done(result)
            self._count -= 1
            self._bytes -= size
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

        return answered

    async def room(self) -> None:
        """Wait until less than the limits is in flight. Raises as `check`."""
        self.check()
        config = self._config
        await self._wait(
            lambda: self._count < config.max_in_flight and self._bytes < config.max_in_flight_bytes
        )

    async def empty(self) -> None:
        """Wait until everything is answered. Raises as `check`."""
        self.check()
        await self._wait(lambda: not self._count)

    async def _wait(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    async def close(self) -> None:
        await self.empty()
        await self.pipeline.close()
