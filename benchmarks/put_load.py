"""A load generator for the RocketMQ commit log of a group: requests of messages, many in flight,
over one connection, with no client library in between.

The messages of each request are encoded once. What is measured is the group.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.load import Load
from dledger.net.connections.connection import Connection, connect
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.handshake import Greeting
from dledger.net.loop import run
from dledger.net.user_directory import group_secret
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloResponse
from dledger.protocol.messages.rocketmq import PutMessageRequest, PutMessageResponse
from dledger.protocol.wire import FrameLimits
from dledger.protocol.wire.codec import encode

REQUEST = PutMessageRequest(timeout_ms=10_000)


class Generator:
    """Keeps ``in_flight`` requests under way until so many seconds are over."""

    def __init__(self, messages: bytes, in_flight: int, seconds: float) -> None:
        self._messages, self._in_flight, self._seconds = [messages], in_flight, seconds
        self._greeting = Greeting(secret=lambda answer: group_secret(answer.group))
        self._sent: dict[int, float] = {}
        self._next = 2
        self.latencies: list[float] = []
        self.last = 0.0

    async def run(self, address: str) -> float:
        """Seconds from the first request to the last answer."""
        self._finished = asyncio.get_running_loop().create_future()
        handlers = Handlers(on_frame=self._answered, on_close=self._closed)
        self._connection = await connect(
            address, handlers, FrameLimits(header_bytes=1 << 20, payload_bytes=1 << 20), 5
        )
        self._connection.send(self._greeting.hello, 1)
        await self._finished
        self._connection.close()
        await self._connection.wait_closed()
        return self.last - self._started

    def _send(self) -> None:
        self._sent[self._next] = time.perf_counter()
        self._connection.send_frame(encode(REQUEST, self._next, self._messages))
        self._next += 1

    def _begin(self) -> None:
        self._started = time.perf_counter()
        self._until = self._started + self._seconds
        for _ in range(self._in_flight):
            self._send()

    def _answered(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        if isinstance(message, HelloResponse):
            proof = self._greeting.answered(message)
            if proof is not None:
                connection.send(proof, 1)
            else:
                self._begin()
            return
        if not isinstance(message, PutMessageResponse):
            return
        now = time.perf_counter()
        if message.code != Code.SUCCESS:
            self._closed(
                connection,
                RuntimeError(f"a request was answered {message.code!r} {message.message}"),
            )
            return
        self.latencies.append(now - self._sent.pop(request_id))
        self.last = now
        if now < self._until:
            self._send()
        elif not self._sent and not self._finished.done():
            self._finished.set_result(None)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        if not self._finished.done():
            self._finished.set_exception(error or RuntimeError("the node closed the connection"))


def put_load(address: str, messages: bytes, count: int, in_flight: int, seconds: float) -> Load:
    """Put ``count`` encoded messages with each request into the RocketMQ commit log of a group, for
    that long."""
    generator = Generator(messages, in_flight, seconds)
    took = run(generator.run(address))
    return Load(len(generator.latencies) * count, len(messages) // count, took, generator.latencies)
