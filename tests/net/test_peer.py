"""The link to a peer comes back by itself, keeps order, and never holds more than its bound."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dledger.net import Connection, FrameLimits, Handlers, Listener, PeerLink
from dledger.net.connections.handshake import Greeting
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry, LogEnd, stamp
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.peer import PushEntryRequest, PushType
from dledger.types import Term
from tests.net.net_fakes import Watched
from tests.net.tls_port import N0, beat, from_leader


def greet() -> Greeting:
    return Greeting(HelloRequest(group="g", node_id="n1"))


def push(*entries: Entry) -> PushEntryRequest:
    return from_leader(PushEntryRequest, type=PushType.APPEND, entries=entries)


class Peer(Watched):
    """The node at the other end."""

    def __init__(self) -> None:
        super().__init__()
        self.code = Code.SUCCESS
        self.silent = False
        self.address = ""
        self.links: list[PeerLink] = []
        self.rounds: list[int] = []
        self.bodies: list[bytes] = []
        self.hellos: list[HelloRequest] = []
        self.connections: list[Connection] = []
        self.listener: Listener

    async def open(self, port: int = 0) -> None:
        handlers = Handlers(
            on_open=self.connections.append, on_frame=self.on_frame, on_close=self.on_close
        )
        self.listener = Listener(handlers, FrameLimits())
        await self.listener.open("127.0.0.1", port)
        self.address = f"127.0.0.1:{self.listener.port}"

    def link(
        self,
        where: Callable[[], str] | None = None,
        greeting: Callable[[], Greeting] = greet,
        **options: Any,
    ) -> PeerLink:
        """A started link to this peer, or to where the call says that it is."""
        self.links.append(PeerLink(where or (lambda: self.address), greeting, **options))
        self.links[-1].start()
        return self.links[-1]

    async def close(self) -> None:
        for link in self.links:
            await link.close()
        await self.listener.close()

    def on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        if isinstance(message, HelloRequest):
            self.hellos.append(message)
            if not self.silent:
                connection.send(
                    HelloResponse(code=self.code, message="not of our group", node_id=N0),
                    request_id,
                )
        elif isinstance(message, PushEntryRequest):
            self.bodies += [bytes(entry.body) for entry in message.entries]
        else:
            self.rounds.append(message.round)
        self.changed.set()

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self.changed.set()


@pytest.fixture
@contextlib.asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.open()
    try:
        yield peer
    finally:  # uvloop does not end beside an open port
        await peer.close()


async def test_link_sends_messages_from_before_open_in_order_after_hello(
    peer: Peer,
) -> None:
    link = peer.link()
    for number in range(100):
        link.send(beat(number))
    await peer.until(lambda: len(peer.rounds) == 100)
    assert peer.rounds == list(range(100))
    assert [(hello.group, hello.node_id) for hello in peer.hellos] == [("g", "n1")]
    assert link.connected


async def test_link_says_nothing_but_hello_until_it_is_answered(peer: Peer) -> None:
    peer.silent = True
    changes: list[bool] = []
    link = peer.link(on_change=changes.append)
    link.send(beat(1))
    await peer.until(lambda: bool(peer.hellos))
    assert not link.connected
    assert not changes
    assert not peer.rounds
    peer.connections[0].send(HelloResponse(code=Code.SUCCESS), 1)
    await peer.until(lambda: peer.rounds == [1])
    assert changes == [True]


async def test_link_leaves_a_peer_that_does_not_answer_its_hello(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.net.connections.peer.CONNECT_S", 0.05)
    peer.silent = True
    link = peer.link()
    link.send(beat(1))
    await peer.until(lambda: len(peer.hellos) == 2)
    assert link.dropped == 1


async def test_link_lost_in_the_turn_of_its_late_answer_is_opened_again(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was paused finds both at once. Its link stayed closed for ever, and the leader
    never heard of it."""
    timeouts: list[asyncio.Timeout] = []
    timeout, opened = asyncio.timeout, PeerLink._open

    def noted(delay: float | None) -> asyncio.Timeout:
        timeouts.append(timeout(delay))
        return timeouts[-1]

    def opened_late(link: PeerLink, connection: Connection) -> None:
        opened(link, connection)
        timeouts[-1].reschedule(asyncio.get_running_loop().time())

    monkeypatch.setattr(asyncio, "timeout", noted)
    monkeypatch.setattr(PeerLink, "_open", opened_late)
    link = peer.link()
    link.send(beat(1))
    await peer.until(lambda: peer.rounds == [1])
    monkeypatch.undo()
    peer.connections[0].abort()
    await peer.until(lambda: len(peer.hellos) == 2)


async def test_link_takes_no_other_node_for_its_peer(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dledger.net")
    link = peer.link(greeting=lambda: Greeting(HelloRequest(group="g", node_id="n1"), peer="n2"))
    link.send(beat(1))
    await peer.until(lambda: len(peer.hellos) == 2)
    assert not peer.rounds
    await link.close()
    assert "n0 answers where n2 should" in caplog.text


async def test_link_carries_entries_byte_for_byte(peer: Peer) -> None:
    link = peer.link()
    end, entries = LogEnd(), []
    for body in (b"small", bytes(200_000), b"", b"x" * 1_000_000):
        entries.append(stamp(end, Term(1), 1, body, 8 << 20))
        end = LogEnd.after(entries[-1])
    link.send(push(*entries))
    await peer.until(lambda: len(peer.bodies) == 4)
    assert peer.bodies == [entry.body for entry in entries]


async def test_link_reconnects_when_the_peer_comes_back_at_another_address(peer: Peer) -> None:
    changes: list[bool] = []
    gone = asyncio.Event()

    def changed(up: bool) -> None:
        changes.append(up)
        if not up:
            gone.set()

    link = peer.link(on_change=changed)
    link.send(beat(1))
    await peer.until(lambda: peer.rounds == [1])
    await peer.listener.close()
    await gone.wait()
    peer.hellos.clear()
    await peer.open()
    await peer.until(lambda: bool(peer.hellos))
    link.send(beat(2))
    await peer.until(lambda: 2 in peer.rounds)
    assert changes == [True, False, True]


async def test_link_drops_what_waited_for_a_peer_that_is_not_there(peer: Peer) -> None:
    """A peer that comes back needs today's messages, not those of an hour ago."""
    address, port = peer.address, peer.listener.port
    await peer.listener.close()
    asked = asyncio.Event()
    attempts = 0

    def where() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            asked.set()
        return address

    link = peer.link(where)
    link.send(beat(1))
    await asked.wait()
    assert link.dropped == 1
    await peer.open(port)
    await peer.until(lambda: bool(peer.hellos))
    link.send(beat(2))
    await peer.until(lambda: bool(peer.rounds))
    assert peer.rounds == [2]


async def test_link_without_a_known_address_waits_for_one(peer: Peer) -> None:
    addresses: dict[str, str] = {}
    peer.link(lambda: addresses["n0"])
    await asyncio.sleep(0)
    addresses["n0"] = peer.address
    await peer.until(lambda: bool(peer.hellos))


async def test_link_holds_no_more_than_its_bound(peer: Peer) -> None:
    link = peer.link(max_bytes=1 << 20)
    await peer.until(lambda: bool(peer.hellos))
    peer.connections[0].pause_reading()
    entry = stamp(LogEnd(), Term(1), 1, bytes(500_000), 8 << 20)
    for _ in range(100):
        link.send(push(entry))
        await asyncio.sleep(0)
    assert link.dropped > 0
    assert link.unsent_bytes < 2 << 20
    peer.connections[0].abort()


async def test_link_that_is_refused_says_so_once_and_tries_again(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dledger.net")
    peer.code = Code.UNKNOWN_GROUP
    link = peer.link()
    await peer.until(lambda: len(peer.hellos) == 3)
    await link.close()
    lines = [r.getMessage() for r in caplog.records if r.name == "dledger.net"]
    assert len(lines) == 1
    assert "not of our group" in lines[0]


async def test_link_that_a_defect_ended_still_closes_and_the_defect_is_told() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    def address() -> str:
        raise ZeroDivisionError

    link = PeerLink(address, greet)
    link.start()
    while not told:  # noqa: ASYNC110 - it is told in the loop's own time
        await asyncio.sleep(0)
    await link.close()
    assert isinstance(told[0]["exception"], ZeroDivisionError)
