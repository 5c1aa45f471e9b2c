"""A load generator: single append requests, many in flight, over one connection, with no client
library in between.

The body of each request is one record of the asked size, encoded once. What is measured is the
group.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dledger.net.connections.connection import Connection, connect
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.handshake import Greeting
from dledger.net.loop import run
from dledger.net.user_directory import group_secret
from dledger.protocol.messages.client import AppendRequest, AppendResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloResponse
from dledger.protocol.messages.rocketmq import PutMessageRequest, PutMessageResponse
from dledger.protocol.wire import FrameLimits
from dledger.protocol.wire.codec import encode
from dledger.records.body.records import encode_batch

APPEND = AppendRequest(timeout_ms=10_000)


@dataclass(frozen=True)
class Load:
    """``seconds`` for ``requests`` appends of ``size`` bytes, and the latency of each in
    seconds."""

    requests: int
    size: int
    seconds: float
    latencies: list[float]

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.requests * self.size / self.seconds / 1e6


def one_record(topic_id: int, size: int) -> list[Any]:
    """The body of an append of one record with a value of ``size`` bytes."""
    batch = pa.record_batch({"value": pa.array([b"x" * size], pa.binary())})
    header, payload = encode_batch(
        batch, topic_id=topic_id, partition=0, now_us=int(time.time() * 1e6)
    )
    return [header, payload]


class Generator:
    """Keeps ``in_flight`` requests under way until so many seconds are over."""

    def __init__(
        self,
        body: list[Any],
        in_flight: int,
        seconds: float,
        request: Any = APPEND,
        answer: type[Any] = AppendResponse,
    ) -> None:
        self._body, self._in_flight, self._seconds = body, in_flight, seconds
        self._request, self._answer = request, answer
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
        self._connection.send_frame(encode(self._request, self._next, self._body))
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
        if not isinstance(message, self._answer):
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


def append_load(address: str, topic_id: int, size: int, in_flight: int, seconds: float) -> Load:
    """Append to the leader at ``address`` for that long."""
    generator = Generator(one_record(topic_id, size), in_flight, seconds)
    took = run(generator.run(address))
    return Load(len(generator.latencies), size, took, generator.latencies)


def put_load(address: str, messages: bytes, count: int, in_flight: int, seconds: float) -> Load:
    """Put ``count`` encoded messages with each request into the RocketMQ commit log of a group, for
    that long."""
    generator = Generator(
        [messages], in_flight, seconds, PutMessageRequest(timeout_ms=10_000), PutMessageResponse
    )
    took = run(generator.run(address))
    return Load(len(generator.latencies) * count, len(messages) // count, took, generator.latencies)
