"""A node's port under TLS, and what both kinds of connection say of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dledger.config import MIB, ClientConfig, Tls
from dledger.errors import Unavailable
from dledger.net import Connection, FrameLimits, Handlers, Listener, Patience
from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handlers import OnConnection
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.rpc import Rpc
from dledger.net.connections.tls import CertificateRefused, client_context, server_context
from dledger.net.secret import Secret
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import FetchedBatch, FetchResponse
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.peer import HeartBeatRequest
from dledger.protocol.wire import Message
from dledger.types import NodeId, Term

LIMITS = FrameLimits(payload_bytes=16 * MIB)
OpenPort = Callable[..., "Port"]
Issue = Callable[..., dict[str, str]]
N0, N1 = NodeId("n0"), NodeId("n1")


def from_leader(message: Callable[..., Message], **fields: Any) -> Any:
    """A message of leader n1 to n0."""
    return message(group="g", local_id=N1, remote_id=N0, term=Term(1), leader_id=N1, **fields)


def beat(number: int) -> HeartBeatRequest:
    return from_leader(HeartBeatRequest, round=number)


def tls_of(settings: dict[str, str]) -> Tls:
    tls = ClientConfig(**settings).tls  # type: ignore[arg-type]
    assert tls is not None
    return tls


class Port:
    """A node's port, in a thread of its own: says hello, and sends an append's payload back."""

    def __init__(
        self,
        tls: Tls | None,
        new_loop: Callable[[], asyncio.AbstractEventLoop],
        on_open: OnConnection = lambda connection: None,
        **patience: Any,
    ) -> None:
        self.address = ""
        self._on_open = on_open
        self.heard: list[Message] = []
        self.heard_one = threading.Event()
        self._ready = threading.Event()
        self._patience = Patience(**patience)
        self._over = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._thread = threading.Thread(target=self._main, args=(tls,))
        self._thread.start()
        assert self._ready.wait(20)

    def _main(self, tls: Tls | None) -> None:
        with self._runner:
            self._runner.run(self._run(tls))

    async def _run(self, tls: Tls | None) -> None:
        handlers = Handlers(
            on_open=self._on_open, on_frame=self._answer, on_close=lambda _, error: None
        )
        self._listener = listener = Listener(handlers, LIMITS, patience=self._patience)
        await listener.open("127.0.0.1", 0, server_context(tls))
        self.address = f"127.0.0.1:{listener.port}"
        self._ready.set()
        await self._over.wait()
        await listener.close()

    def wait_for(self, message: Message) -> None:
        while self.heard_one.wait(20) and message not in self.heard:
            self.heard_one.clear()

    def _answer(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        self.heard.append(message)
        self.heard_one.set()
        if isinstance(message, HelloRequest):
            connection.send(
                HelloResponse(code=Code.SUCCESS, group="g", node_id=NodeId("n0")), request_id
            )
            self._listener.places.seat_client(connection)
        elif isinstance(message, AppendRequest):
            batch = FetchedBatch(base_offset=0, count=1, size=len(payload), crc=0)
            pieces = [payload[at : at + 50_000] for at in range(0, len(payload), 50_000)]
            connection.send(FetchResponse(code=Code.SUCCESS, batches=(batch,)), request_id, pieces)

    def close(self) -> None:
        if self._thread.is_alive():
            self._runner.get_loop().call_soon_threadsafe(self._over.set)
            self._thread.join(20)
            assert not self._thread.is_alive()


def open_blocking(
    address: str, tls: Tls | None = None, secret: Secret | None = None, **how: Any
) -> BlockingConnection:
    """A client's connection, which proves ``secret`` where that is wanted."""
    greeting = Greeting(secret=lambda answer: secret)
    return BlockingConnection(
        address, greeting, limits=LIMITS, timeout_s=10, tls=client_context(tls), **how
    )


def ask_rpc(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    address: str,
    tls: Tls | None,
    payload: list[bytes],
) -> bytes:
    async def story() -> bytes:
        rpc = await Rpc.open(address, Greeting(), LIMITS, 10, client_context(tls))
        _, found = await rpc.ask(AppendRequest(), payload, 20)
        await rpc.close()
        return bytes(found)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(story())


def refused(address: str, tls: Tls | None, new_loop: Any) -> set[str]:
    """What both kinds of connection say of a port that does not let them in."""
    with pytest.raises((Unavailable, CertificateRefused)) as waiting:
        open_blocking(address, tls)
    with pytest.raises((Unavailable, CertificateRefused)) as running:
        ask_rpc(new_loop, address, tls, [b"a"])
    return {str(waiting.value), str(running.value)}
