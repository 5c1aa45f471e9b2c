"""Small stores, and messages to make them of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.rocketmq.made_logs import NOW
from tests.rocketmq.store.small_stores import SmallStores


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
def small(tmp_path: Path, clock: Clock) -> Iterator[SmallStores]:
    stores = SmallStores(tmp_path, clock)
    yield stores
    stores.let_go()
