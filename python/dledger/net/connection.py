"""One connection of frames under asyncio, and how to open one.

Small frames are parsed out of one receive buffer, many per read; a large payload is received straight into a buffer of
its own. What is sent in one turn of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from dledger.config import MIB
from dledger.errors import ProtocolError, Unavailable
from dledger.messages.hello import HelloRequest
from dledger.net.address import split_address, tune
from dledger.types import Buffer
from dledger.wire import HELLO_LIMITS, Frame, FrameReader, Limits, Message, decode, encode

log = logging.getLogger("dledger.net")

RECEIVE_BYTES: Final = 256 << 10
"""The receive buffer: one per thread, not per connection, because a read is parsed before the next one begins."""
JOIN_BYTES: Final = 16 << 10
"""Buffers below this are joined before they are written: a copy is cheaper than a piece of a scattered write."""
MOST_PIECES: Final = 512
"""Buffers in one call of the kernel; it takes 1024."""
WRITE_HIGH_BYTES: Final = 1 * MIB
"""Unsent bytes from which a connection counts as slow: `drain` waits, and one that we accepted is not read from."""
SHUTDOWN_S: Final = 1.0
"""How long a connection under TLS that is closed waits for the other side to close it too, which may be silent."""

OnFrame = Callable[["Connection", int, Any, memoryview], None]
OnConnection = Callable[["Connection"], None]
OnClose = Callable[["Connection", Exception | None], None]
_thread = threading.local()


def _receive_buffer() -> memoryview:
    buffer: memoryview | None = getattr(_thread, "buffer", None)
    if buffer is None:
        buffer = _thread.buffer = memoryview(bytearray(RECEIVE_BYTES))
    return buffer


def _ignore(connection: Connection) -> None:
    """Nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What a connection tells its owner.

    ``on_frame`` gets the request id, the message and its payload, which nobody else changes or reuses; ``on_batch_end``
    comes after the last frame of each read; ``on_close`` comes once.
    """

    on_frame: OnFrame
    on_close: OnClose
    on_open: OnConnection = _ignore
    on_batch_end: OnConnection = _ignore


class Connection(asyncio.BufferedProtocol):
    """Frames both ways. Made by `dledger.net.listen` and `connect`.

    Attributes:
        context: whatever the owner wants to remember of this connection.
        opened_at, received_at: loop times in seconds of its begin and of the last byte.
        said_hello: whether an accepted connection has sent its first frame.
    """

    def __init__(self, handlers: Handlers, limits: Limits, accepted: bool) -> None:
        self.context: Any = None
        self.peer_name = "?"
        self.opened_at = self.received_at = 0.0
        self.said_hello = not accepted
        self._handlers = handlers
        self._accepted = accepted
        self._reader = FrameReader(limits, HELLO_LIMITS if accepted else None)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._queued = 0
        self._descriptor = -1
        self._write_paused = False
        self._read_paused = False
        self._frames: list[Frame] = []
        self._again: asyncio.Handle | None = None
        self._drained: list[asyncio.Future[None]] = []
        self._closed = self._loop.create_future()
        self._error: Exception | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            tune(sock)
            if transport.get_extra_info("sslcontext") is None:  # else only the transport may write to it
                self._descriptor = sock.fileno()
        self.peer_name = _name(transport.get_extra_info("peername"))
        self.opened_at = self.received_at = self._loop.time()
        self._handlers.on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        wanted = self._reader.wanted
        if wanted is not None:
            return wanted
        buffer, rest = _receive_buffer(), self._reader.rest
        if not rest:
            return buffer
        if len(rest) >= len(buffer) // 2:  # a header near its limit
            buffer = memoryview(bytearray(2 * len(rest)))
            _thread.buffer = buffer
        buffer[: len(rest)] = rest
        return buffer[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received_at = self._loop.time()
        reader = self._reader
        try:
            if reader.wanted is not None:
                frame = reader.received(nbytes)
                if frame is None:
                    return
                self._frames.append(frame)
            else:
                reader.parse(_receive_buffer()[: len(reader.rest) + nbytes], self._frames)
            self._dispatch()
        except ProtocolError as error:
            self.fail(error)

    def _dispatch(self) -> None:
        """Hand out what was received. Frames that are not wanted yet stay, and nothing more is read."""
        frames, self._frames = self._frames, []
        taken = 0
        for frame in frames:
            if self._held_back:
                break
            self._take(frame)
            taken += 1
        if taken:
            self._handlers.on_batch_end(self)
        if taken < len(frames) and not self.closing:
            self._frames = frames[taken:]
            self._read_or_not()

    @property
    def _held_back(self) -> bool:
        """Whether the owner wants no more, or the other side takes no answers and so may not ask."""
        if self._read_paused or self._again is not None:
            return True
        return self._accepted and (self._write_paused or self._queued > WRITE_HIGH_BYTES)

    def _go_on(self) -> None:
        """Hand out frames that stayed, in the next turn, if they are wanted now."""
        if self._frames and self._again is None and not self._held_back:
            self._again = self._loop.call_soon(self._dispatch_again)
        else:
            self._read_or_not()

    def _dispatch_again(self) -> None:
        self._again = None
        try:
            self._dispatch()
        except ProtocolError as error:
            self.fail(error)
        self._read_or_not()

    def _take(self, frame: Frame) -> None:
        message = decode(frame.kind, frame.header, frame.payload)
        if not self.said_hello:
            if not isinstance(message, HelloRequest):
                raise ProtocolError(f"the first frame is {type(message).__name__}, not HelloRequest")
            self.said_hello = True
        if not self.closing:
            self._handlers.on_frame(self, frame.request_id, message, frame.payload)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._accepted:
            self._read_or_not()  # who does not take answers may not ask more

    def resume_writing(self) -> None:
        self._write_paused = False
        waiting, self._drained = self._drained, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._go_on()

    def eof_received(self) -> bool:
        if self._reader.in_frame and self._error is None:
            error = ProtocolError("the stream ended inside a frame")
            if self._accepted:
                self.fail(error)
            else:
                self._error = error
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._out.clear()
        self._frames.clear()
        self._queued = 0
        self.resume_writing()
        if not self._closed.done():
            self._closed.set_result(None)
        self._handlers.on_close(self, self._error or exc)

    # the owner's side

    @property
    def closing(self) -> bool:
        """Whether it is closed or about to be: nothing more can be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes handed to `send` that the kernel has not taken yet."""
        return self._queued + (self._transport.get_write_buffer_size() if self._transport else 0)

    def stalled_since(self, time_s: float) -> bool:
        """Whether half a frame is here, we read, and nothing has come since this loop time."""
        return self._reader.in_frame and self.received_at < time_s and not self._held_back

    def send(self, message: Message, request_id: int = 0, payload: Sequence[Buffer] = ()) -> None:
        """Send a frame at the end of this turn of the loop. Its buffers must not change until they are sent. Does
        nothing on a closed connection: its owner hears that from ``on_close``.

        Raises:
            ProtocolError: a field's value has no form on the wire.
        """
        self.send_frame(encode(message, request_id, payload))

    def send_frame(self, frame: Sequence[Buffer]) -> None:
        """`send` for a frame that is encoded already."""
        if self.closing:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out += frame
        self._queued += sum(map(len, frame)) if len(frame) > 1 else len(frame[0])

    def flush(self) -> None:
        """Hand to the kernel what `send` has collected, now instead of at the end of the turn."""
        out, size = self._out, self._queued
        if not out:
            return
        self._out, self._queued = [], 0
        if self.closing:
            return
        transport = cast(asyncio.Transport, self._transport)
        pieces: list[Buffer] = out if len(out) == 1 else [b"".join(out)] if size <= 4 * JOIN_BYTES else joined(out)
        if transport.get_write_buffer_size() == 0:
            pieces = self._write_now(pieces)
        if pieces:
            transport.writelines(pieces)
        if self._frames:
            self._go_on()  # frames stayed because too much was unsent, which the kernel may have taken at once

    def _write_now(self, pieces: list[Buffer]) -> list[Buffer]:
        """Give the kernel what it takes at once, and return the rest. The loop itself would write at the end of its
        turn: behind whatever else is to be done in it, a write to the disk for one."""
        if self._descriptor < 0:  # a transport without a socket, or under TLS
            return pieces
        try:
            sent = os.writev(self._descriptor, pieces[:MOST_PIECES])
        except OSError:
            return pieces  # it is full, or broken, which the transport finds out and tells
        for at, piece in enumerate(pieces):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[at + 1 :]]
            sent -= len(piece)
        return []

    async def drain(self) -> None:
        """Wait while more than about WRITE_HIGH_BYTES are unsent."""
        self.flush()
        if self._write_paused and not self.closing:
            future = self._loop.create_future()
            self._drained.append(future)
            await future

    def pause_reading(self) -> None:
        """Hand out no more frames and take no more from the socket until `resume_reading`."""
        self._read_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._read_paused = False
        self._go_on()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._frames or self._held_back:
            self._transport.pause_reading()  # a no-op when it is paused
        else:
            self._transport.resume_reading()

    def fail(self, error: Exception) -> None:
        """Close at once because the other side broke the protocol; one line in the log."""
        if self._error is None:
            self._error = error
            log.warning("connection from %s closed: %s", self.peer_name, error)
        self.abort()

    def close(self) -> None:
        """Send what is unsent, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and forget what is unsent."""
        self._out.clear()
        self._queued = 0
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: neighbours below JOIN_BYTES become one."""
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BYTES:
            small.append(buffer)
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(buffer)
    if small:
        pieces.append(b"".join(small))
    return pieces


def _name(peer: Any) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "?"


async def connect(
    address: str,
    handlers: Handlers,
    limits: Limits,
    timeout_s: float,
    unanswered_ms: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Open a connection; saying hello is the caller's.

    Raises:
        Unavailable: nobody answered at ``address`` in time.
        ConfigError: the address is not ``host:port``.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    how: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_shutdown_timeout": SHUTDOWN_S}
    try:
        async with asyncio.timeout(timeout_s):
            transport, connection = await loop.create_connection(
                lambda: Connection(handlers, limits, accepted=False), host, port, **how
            )
    except TimeoutError:
        raise Unavailable(f"{address}: no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise Unavailable(f"{address}: {error.strerror or error}") from None
    sock = transport.get_extra_info("socket")
    if sock is not None and unanswered_ms:
        tune(sock, unanswered_ms)
    return connection
