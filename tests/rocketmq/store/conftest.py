"""Small stores, and messages to make them of."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from made_logs import NOW, SMALL

from dledger.rocketmq.store.message_store import MessageStore

sys.path.insert(0, str(Path(__file__).parent))  # for `links`: tests are no packages


@pytest.fixture
@contextlib.asynccontextmanager
async def in_time(new_loop: object) -> AsyncIterator[None]:
    """A coroutine that still waits after a minute has failed."""
    async with asyncio.timeout(60):
        yield


class Clock:
    """Milliseconds that go on by ``step`` with each look at them."""

    def __init__(self) -> None:
        self.now = NOW
        self.step = 1

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(clock: Clock) -> Iterator[Callable[..., MessageStore]]:
    """Opens small stores, and lets go of those that a test leaves open."""
    stores: list[MessageStore] = []

    def open_store(root: Path, **settings: object) -> MessageStore:
        stores.append(MessageStore(root, clock=clock, **{**SMALL, **settings}))  # type: ignore[arg-type]
        return stores[-1]

    yield open_store
    for store in stores:
        store.abandon()
