"""A load generator that takes little processor time itself: single append requests of one body, so
many in flight, over one connection or several.

All frames are packed beforehand, one for each request that may be in flight: a request id names its
place there, and is used again when it was answered. Of an answer no more is read than its code.
"""

from __future__ import annotations

import selectors
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handshake import Greeting
from dledger.net.user_directory import group_secret
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.wire import (
    PREFIX_SIZE,
    FrameLimits,
    FrameReader,
    decode,
    encode,
    pack_append_responses,
)
from dledger.records.body.records import encode_batch

FIRST_ID = 1000
"""Above the ids of the handshake."""
PATIENCE_S = 30.0
LARGE = 64 << 10
"""Frames of this size are sent as they are, not joined."""
ANSWER = struct.Struct(">8sIII4x3s")
"""Magic to ``reserved``, request id, lengths of header and payload, and behind the CRC the begin of
the header: an array and its first field, the code."""
SUCCESS = pack_append_responses([0], [0], 0)
LEAD, CODE = SUCCESS[:8], SUCCESS[PREFIX_SIZE : ANSWER.size]


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


class Caller:
    """One connection with its requests; ``tls``: as the user of a certificate."""

    def __init__(
        self, address: str, body: list[Any], in_flight: int, tls: ssl.SSLContext | None = None
    ) -> None:
        greeting = Greeting(secret=lambda answer: group_secret(answer.group))
        connection = BlockingConnection(
            address, greeting, limits=FrameLimits(), timeout_s=PATIENCE_S, tls=tls
        )
        self.socket = connection._socket
        self.socket.settimeout(PATIENCE_S)
        request = AppendRequest(timeout_ms=10_000)
        self._frames = [b"".join(encode(request, FIRST_ID + at, body)) for at in range(in_flight)]
        self._sent_at = [0.0] * in_flight
        self._buffer = memoryview(bytearray(64 * max(in_flight, 64)))
        self._have = 0
        self.under_way = 0
        self.latencies: list[float] = []

    def send(self, places: list[int]) -> None:
        """Send the requests of these places."""
        now = time.perf_counter()
        for place in places:
            self._sent_at[place] = now
        self.under_way += len(places)
        frames = [self._frames[place] for place in places]
        if len(frames[0]) < LARGE:
            frames = [b"".join(frames)]
        for frame in frames:
            self.socket.sendall(frame)

    def receive(self) -> list[int]:
        """Wait for answers; the places of their requests.

        Raises:
            RuntimeError: one says something else than success, or the node closed the connection.
        """
        size = self.socket.recv_into(self._buffer[self._have :])
        if not size:
            raise RuntimeError("the node closed the connection")
        have, at, view, places = self._have + size, 0, self._buffer, []
        while have - at >= ANSWER.size:
            lead, request_id, header, payload, code = ANSWER.unpack_from(view, at)
            if lead != LEAD or code != CODE:
                raise RuntimeError(f"a request was answered {self._refusal(at, have)}")
            end = at + PREFIX_SIZE + header + payload
            if end > have:
                break
            places.append(request_id - FIRST_ID)
            at = end
        now = time.perf_counter()
        self.latencies += [now - self._sent_at[place] for place in places]
        view[: have - at] = bytes(view[at:have])
        self._have = have - at
        self.under_way -= len(places)
        return places

    def _refusal(self, at: int, have: int) -> str:
        frames = FrameReader(FrameLimits()).feed(bytes(self._buffer[at:have]))
        answers = [decode(frame.kind, frame.header) for frame in frames[:1]]
        return " ".join(f"{one.code!r} {one.message}" for one in answers) or "in pieces"


def one_record(topic_id: int, size: int) -> list[Any]:
    """The body of an append of one record with a value of ``size`` bytes."""
    batch = pa.record_batch({"value": pa.array([b"x" * size], pa.binary())})
    header, payload = encode_batch(
        batch, topic_id=topic_id, partition=0, now_us=int(time.time() * 1e6)
    )
    return [header, payload]


def append_load(
    address: str,
    topic_id: int,
    size: int,
    in_flight: int,
    seconds: float,
    connections: int = 1,
    tls: ssl.SSLContext | None = None,
    begins: Callable[[], object] = int,
) -> Load:
    """Append records of ``size`` bytes to the leader at ``address`` for that long, ``in_flight`` at
    once over each of ``connections``. ``begins`` is called once these are open."""
    body = one_record(topic_id, size)
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        callers = [Caller(address, body, in_flight, tls) for _ in range(connections)]
        for caller in callers:
            stack.enter_context(caller.socket)
            ready.register(caller.socket, selectors.EVENT_READ, caller)
        begins()
        began = time.perf_counter()
        until, last = began + seconds, began
        for caller in callers:
            caller.send(list(range(in_flight)))
        while any(caller.under_way for caller in callers):
            heard = callers if connections == 1 else [key.data for key, _ in ready.select()]
            for caller in heard:
                places, last = caller.receive(), time.perf_counter()
                if places and last < until:
                    caller.send(places)
    latencies = [one for caller in callers for one in caller.latencies]
    return Load(len(latencies), size, last - began, latencies)
