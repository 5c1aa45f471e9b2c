"""Files that a RocketMQ broker wrote, and messages to make stores of."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore

sys.path.insert(0, str(Path(__file__).parent))  # for `made_logs`: tests are no packages

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "rocketmq"
SIZES = {
    "cq_SCHEDULE_2.bin": 20_000,
    "cq_TopicA_0.bin": 20_000,
    "dledger_data.bin": 65_536,
    "dledger_data_after_migration.bin": 65_536,
    "indexfile.bin": 8440,
    "old_commitlog.bin": 65_536,
}
"""Bytes of the files as they were written; the copies here do without most of the zeros at their
ends."""
NOW = 1_790_000_000_000
HOST = Host.of("10.1.2.3", 10911)


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


@pytest.fixture(scope="session")
def golden() -> Callable[[str], bytes]:
    return lambda name: (GOLDEN / name).read_bytes().ljust(SIZES.get(name, 0), b"\0")


def make_messages(count: int, size: int = 100, first: int = 0, queues: int = 4) -> list[Message]:
    """Messages that can be told apart, of two topics in turn."""
    return [
        Message(
            ("orders", "payments")[n % 2],
            f"{n:06d}".encode().ljust(size, b"."),
            f"KEYS\x01k{n} all\x02UNIQ_KEY\x01U{n:08d}\x02TAGS\x01t{n % 3}",
            queue_id=n // 2 % queues,
            born_timestamp=NOW - 5,
            born_host=HOST,
            store_host=HOST,
        )
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="session")
def some() -> Callable[..., list[Message]]:
    return make_messages


SMALL = {"file_size": 4096, "units_in_file": 10, "index_slots": 16, "index_units": 50}
"""Sizes with which a few messages fill several files of each kind."""


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
