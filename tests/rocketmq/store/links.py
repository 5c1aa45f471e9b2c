"""Masters and slaves over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha.serve import serve_store
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.message_store import MessageStore


async def until(condition: Callable[[], object]) -> None:
    for _ in iter(lambda: bool(condition()), True):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Work meanwhile; what it ended with, if it did, is raised."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@contextlib.asynccontextmanager
async def serving(store: MessageStore, settings: HASettings) -> AsyncIterator[HAService]:
    """A master over a store."""
    ready: list[HAService] = []
    async with beside(serve_store(store, "127.0.0.1", 0, settings, ready.append)) as task:
        await until(lambda: ready or task.done())
        yield ready[0]


def address(master: HAService) -> str:
    return f"127.0.0.1:{master.accept_socket_service.port}"
