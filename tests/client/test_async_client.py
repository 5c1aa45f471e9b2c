"""The asyncio client has the names of the blocking one, and serves many callers at a time. Tests
with the fixture ``either`` show that it has the same manners."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any

import pytest

from dledger.client import Appended, AsyncClient, Client
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from tests.client.conftest import numbered


@pytest.fixture
def client(connect_async: Any) -> contextlib.AbstractAsyncContextManager[AsyncClient]:
    return connect_async()


def test_both_clients_have_the_same_names_and_parameters() -> None:
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert {name for name in dir(AsyncClient) if not name.startswith("_")} == names
    for name in names:
        blocking, other = getattr(Client, name), getattr(AsyncClient, name)
        if callable(blocking):
            assert (
                inspect.signature(blocking).parameters.keys()
                == inspect.signature(other).parameters.keys()
            )


async def test_appends_at_the_same_time_are_each_stored_once(
    client: AsyncClient, group: Any
) -> None:
    group.fault(
        AppendRequest, None, "lose", None, "drop", Code.NOT_LEADER, ("done", Code.TERM_CHANGED)
    )
    await asyncio.gather(*[client.append("t", value) for value in numbered(40)])
    assert sorted(group.values("t")) == sorted(numbered(40))


async def test_append_that_is_cancelled_does_not_spoil_the_next_one(
    client: AsyncClient, group: Any
) -> None:
    await client.append("t", b"a")
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def silence() -> str:
        loop.call_soon_threadsafe(arrived.set)
        return "silence"

    group.fault(AppendRequest, silence)
    cut = asyncio.create_task(client.append("t", b"b"))
    await arrived.wait()
    cut.cancel()
    assert await client.append("t", b"c") == Appended("t", 0, 1, 2)


async def test_producer_goes_on_when_somebody_stops_waiting_for_an_answer(
    client: AsyncClient, group: Any
) -> None:
    async with await client.producer("t") as producer:
        first, second = await producer.append(b"a"), await producer.append(b"b")
        assert not first.cancel()
        waiting = first.future()
        waiting.cancel()
        assert (await second).start == 1
    assert waiting.cancelled()
    assert (await first).start == 0
    assert group.values("t") == [b"a", b"b"]
