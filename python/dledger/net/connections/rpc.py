"""Requests and answers on one asyncio connection, many under way at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any

from dledger.errors import ProtocolError
from dledger.net.connections.blocking import Lost, greeted
from dledger.net.connections.connection import Connection, connect
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.patience import ThrottlePause
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.messages.throttling import ThrottleNotice
from dledger.protocol.wire import FrameLimits, Message
from dledger.types import Buffer


class Rpc:
    """A connection on which each request id waits for its answer. Made by `Rpc.open`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pause = ThrottlePause()
        self._patience: set[asyncio.Timeout] = set()
        """Of those that wait for answers."""
        self.welcome: HelloResponse
        """The node's description of itself."""
        self._connection: Connection
        self._waiting: dict[int, asyncio.Future[tuple[Any, memoryview]]] = {}
        self._request_id = 0

    @staticmethod
    async def open(
        address: str,
        greeting: Greeting,
        limits: FrameLimits,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> Rpc:
        """Connect and say hello.

        Raises:
            Unavailable: no node answered in time.
            WrongGroup: a node of another group is there.
            ConfigError: the node is of a release that does not understand this one.
            CertificateRefused: one side does not take the other's certificate.
        """
        rpc = Rpc(address)
        handlers = Handlers(on_frame=rpc._answered, on_close=rpc._closed)
        rpc._connection = await connect(address, handlers, limits, timeout_s, tls=tls)
        words: HelloRequest | HelloProof | None = greeting.hello
        with greeted(address, tls, rpc.abort):
            while words is not None:
                answer, _ = await rpc.ask(words, (), timeout_s)
                heard = partial(greeting.answered, answer, rpc._connection.peer_nodes)
                words = await asyncio.to_thread(heard) if greeting.is_slow else heard()
        assert greeting.welcome is not None
        rpc.welcome = greeting.welcome
        return rpc

    @property
    def usable(self) -> bool:
        return not self._connection.closing

    async def ask(
        self, message: Message, payload: Sequence[Buffer], timeout_s: float
    ) -> tuple[Any, memoryview]:
        """Send a request and wait for its answer. What is left of a pause that the node has
        announced does not count.

        Raises:
            Lost: with ``sent``.
        """
        if not self.usable:
            raise Lost("the connection is closed", sent=False)
        self._request_id = request_id = self._request_id % 0xFFFFFFFF + 1
        patience = asyncio.timeout(timeout_s + self.pause.left_s())
        future = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            self._connection.send(message, request_id, payload)
            async with patience:
                self._patience.add(patience)
                answer: tuple[Any, memoryview] = await future
                return answer
        except TimeoutError:
            raise Lost("no answer in time", sent=True) from None
        finally:
            self._waiting.pop(request_id, None)
            self._patience.discard(patience)

    def _answered(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        if isinstance(message, ThrottleNotice):
            self.pause.begin(message)
            for patience in self._patience:
                patience.reschedule((patience.when() or 0.0) + self.pause.left_s())
            return
        future = self._waiting.pop(request_id, None)
        if future is not None and not future.done():
            future.set_result((message, payload))

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        reason = (
            str(error) if isinstance(error, ProtocolError) else "the node closed the connection"
        )
        for future in waiting.values():
            if not future.done():
                future.set_exception(Lost(reason, sent=True, error=error, closed=True))

    def abort(self) -> None:
        self._connection.abort()

    async def close(self) -> None:
        self._connection.close()
        await self._connection.wait_closed()
