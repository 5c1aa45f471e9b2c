"""Readers that were interrupted between two batches, or while they wait, go on with the next
record."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import pytest

from dledger.checksum import crc32
from dledger.client import AsyncClient, Client
from dledger.client.aio import client as aclient
from dledger.client.protocol.reading.replicas import Replicas
from dledger.client.protocol.reading.resuming import Resuming
from dledger.net.connections.blocking import RECEIVE_BYTES, BlockingConnection, Lost
from dledger.protocol.messages.client import FetchRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.fetched import RUN_ROW, FetchedRun, FetchResponse
from dledger.records.body import records

PIECES = [[f"{n}".encode() for n in range(at, at + 3)] for at in range(0, 12, 3)]
ALL = [value for piece in PIECES for value in piece]


class Stopped(Exception):
    """What a program's signal handler raises."""


@pytest.fixture
def topic(client: Client) -> str:
    for piece in PIECES:
        client.append("t", piece)
    return "t"


def values(found: Any) -> list[bytes]:
    return [value for batch in found for value in batch["value"].to_pylist()]


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_reader_goes_on_behind_a_wait_that_timed_out(
    group: Any, fast: dict[str, Any], topic: str
) -> None:
    async with AsyncClient(group.bootstrap, **fast) as client:
        reader, found = client.read(topic, 0, 0, follow=True), []
        while len(values(found)) < len(ALL):
            found.append(await anext(reader))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(reader), 0.05)
        await client.append(topic, b"behind it")
        found.append(await asyncio.wait_for(anext(reader), 60))
        await reader.aclose()
        assert values(found) == [*ALL, b"behind it"]


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_reader_cancelled_at_any_await_gives_each_record_once(
    group: Any, fast: dict[str, Any], topic: str
) -> None:
    for turns in range(6):
        async with AsyncClient(group.bootstrap, **fast) as client:
            reader, found = client.read(topic, 0, 0), []
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    task = asyncio.ensure_future(anext(reader))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    if not found:
                        task.cancel()
                    try:
                        found.append(await task)
                    except asyncio.CancelledError:
                        turns += 3
        assert values(found) == ALL


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_bodies_go_on_behind_an_exception(
    group: Any, fast: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> Any:
        raise Stopped
        yield

    async with AsyncClient(group.bootstrap, **fast) as client:
        bodies = client.fetch_bodies(topic, 0, 0, 12)
        assert (await anext(bodies))[0].base_offset == 0
        with monkeypatch.context() as patch:
            patch.setattr(aclient, "fetch", None)
            patch.setattr(bodies, "_running", fails())
            with pytest.raises(Stopped):
                await anext(bodies)
        assert [batch.base_offset async for batch, _ in bodies] == [3, 6, 9]


def test_reader_goes_on_behind_an_interrupt(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception comes with the second batch, which nobody was given."""
    with_offsets, calls = records.with_offsets, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise Stopped
        return with_offsets(*arguments)

    monkeypatch.setattr(records, "with_offsets", interrupted)
    reader = client.read(topic, 0, 1, 11)
    found = [next(reader)]
    with pytest.raises(Stopped):
        next(reader)
    assert values([*found, *reader]) == ALL[1:11]


def test_reader_goes_on_behind_an_interrupt_of_its_own_bookkeeping() -> None:
    def make(position: int) -> Generator[int, None, None]:
        yield from range(position, 4)

    def end_of(found: int) -> int:
        if found == 1 and not stops.pop():
            raise Stopped
        return found + 1

    stops = [True, False]
    reader = Resuming(make, 0, end_of=end_of)
    assert next(reader) == 0
    with pytest.raises(Stopped):
        next(reader)
    assert list(reader) == [1, 2, 3]
    assert list(reader) == []


def test_reader_that_another_thread_is_in_is_not_made_again() -> None:
    def make(position: int) -> Generator[int, None, None]:
        for n in range(position, 3):
            if n == 1:
                with pytest.raises(ValueError, match="already executing"):
                    next(reader)
            yield n

    reader = Resuming(make, 0, end_of=lambda found: found + 1)
    assert list(reader) == [0, 1, 2]


@pytest.mark.parametrize(("max_bytes", "is_kept"), [(1, False), (1 << 20, True)])
def test_reader_asks_ahead_while_more_is_there(
    client: Client, topic: str, max_bytes: int, is_kept: bool
) -> None:
    """A connection on which an answer is under way is not used again."""
    reader = client.read(topic, 0, 0, follow=True, max_bytes=max_bytes)
    next(reader)
    reader.close()
    (transport,) = client._transports
    assert (client.core.routes.leader in transport._connections) is is_kept


def test_next_request_leaves_while_an_answer_is_on_its_way(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("large")
    large = [bytes([n]) * (2 * RECEIVE_BYTES) for n in range(3)]
    for value in large:
        client.append("large", [value])
    seen: list[str] = []
    send, receive = BlockingConnection.send, BlockingConnection.receive

    def sending(self: Any, message: Any, *rest: Any, **how: Any) -> int:
        seen.extend(["ask"] * isinstance(message, FetchRequest))
        return send(self, message, *rest, **how)

    def receiving(self: Any, *arguments: Any) -> Any:
        answer = receive(self, *arguments)
        seen.extend(["answer"] * isinstance(answer[1], FetchResponse))
        return answer

    monkeypatch.setattr(BlockingConnection, "send", sending)
    monkeypatch.setattr(BlockingConnection, "receive", receiving)
    assert values(client.read("large", 0, 0, max_bytes=1)) == large
    assert seen == ["ask", "ask", "answer", "ask", "answer", "answer"]


@pytest.mark.parametrize("fault", ["drop", "lose", Code.BEHIND])
def test_records_come_once_where_the_request_under_way_fails(
    client: Client, group: Any, fault: Any
) -> None:
    """The answer before it is whole, and another replica goes on behind that."""
    client.create_topic("large")
    large = [bytes([n]) * (2 * RECEIVE_BYTES) for n in range(4)]
    for value in large:
        client.append("large", [value])
    group.fault(FetchRequest, None, fault)
    assert values(client.read("large", 0, 0, max_bytes=1)) == large
    assert len(group.requests(FetchRequest)) == len(large) + 1


@pytest.mark.parametrize("length", [1, 2 * RECEIVE_BYTES], ids=["small", "large"])
def test_answer_that_is_not_sound_takes_the_one_behind_it_with_it(
    client: Client, group: Any, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one is another place's: the reader asks again where it stands, on another connection."""
    client.create_topic("damaged")
    for n in range(3):
        client.append("damaged", [bytes([n]) * length])
    body = group.bodies[group.index - 2]
    row = RUN_ROW.pack(0, 0, 0, 0, 0, 0, len(body), crc32(body) ^ 1)
    damaged = FetchResponse(code=Code.SUCCESS, end_offset=3, run=FetchedRun(row, end_offset=1))
    fetch = group._fetch

    def damaged_once(*_: Any) -> Any:
        group._fetch = fetch
        return damaged, [bytes(HEADER_SIZE), body]

    group._fetch = damaged_once

    def failed(self: Any, error: Exception) -> float:
        raise error

    monkeypatch.setattr(Replicas, "failed", failed)
    found = values(client.read("damaged", 0, 0, max_bytes=1))
    assert found == [bytes([n]) * length for n in range(3)]


def test_answer_is_taken_whose_next_request_cannot_leave(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = BlockingConnection.send, []

    def sending(self: Any, message: Any, *rest: Any, **how: Any) -> int:
        sent.extend([message] * isinstance(message, FetchRequest))
        if len(sent) == 2 and sent[1] is message:
            raise Lost("sending failed", sent=False)
        return send(self, message, *rest, **how)

    def failed(self: Any, error: Exception) -> float:
        raise error

    reader = client.read(topic, 0, 0, max_bytes=1)
    monkeypatch.setattr(BlockingConnection, "send", sending)
    monkeypatch.setattr(Replicas, "failed", failed)
    assert values(reader) == ALL
    assert len(sent) == len(PIECES) + 1


def test_connections_of_a_reader_end_when_its_client_was_closed_before(
    client: Client, topic: str
) -> None:
    """As of a scan that is read ahead: its thread ends with the batch that it waits for."""
    client.begin_offsets(topic)
    (transport,) = client._transports
    reader = client.read(topic, 0, 0)
    next(reader)
    assert not client._transports
    client.close()
    client.begin_offsets(topic)
    reader.close()
    assert not transport._connections
    assert transport not in client._transports


@pytest.mark.parametrize("given", [0, 1])
def test_reader_that_is_closed_is_over(client: Client, topic: str, given: int) -> None:
    reader = client.read(topic, 0, 0)
    assert len([next(reader) for _ in range(given)]) == given
    reader.close()
    assert list(reader) == []
