"""What the machine itself does meanwhile: appends to bare sockets and files beside a group's, as
often and as large as those of its clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.bare import COUNT, HOST, nodes
from verification.chaos.acks import Acks

RATE: Final = 80.0
"""Appends a second; the clients of a campaign make about as many."""
SIZE: Final = 1200
"""Bytes of one."""


class Floor:
    """Three processes that sync each append, as `benchmarks.bare` has them, and one client.

    Args:
        path: an empty directory for their files.
        seconds: how long it will be about.
        now_s: the run's clock.
    """

    def __init__(self, path: Path, seconds: float, now_s: Callable[[], float]) -> None:
        self.acks = Acks(now_s)
        self._path = path
        self._count = int(RATE * seconds)
        self._stack = AsyncExitStack()

    async def begin(self) -> None:
        """From now on, if it has not begun; the first one is acknowledged."""
        if not self.acks.count:
            await self._stack.enter_async_context(self._appending())
            while not self.acks.count:  # noqa: ASYNC110 - wakes no task
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def _appending(self) -> AsyncIterator[None]:
        running = nodes(self._path, SIZE, self._count)
        port = await asyncio.to_thread(running.__enter__)
        reader, writer = await asyncio.open_connection(HOST, port)
        tasks = [asyncio.create_task(_send(writer)), asyncio.create_task(self._hear(reader))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            await asyncio.to_thread(running.__exit__, None, None, None)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while True:
            await reader.readexactly(COUNT.size)
            self.acks.note()


async def _send(writer: asyncio.StreamWriter) -> None:
    dice, body = random.Random("floor"), bytes(SIZE)
    while True:
        writer.write(body)
        await asyncio.sleep(dice.expovariate(RATE))
