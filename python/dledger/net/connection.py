"""One connection of frames under asyncio, and how to open one.

Small frames are parsed out of one receive buffer, many per read; a large payload is received straight into a buffer of
its own. What is sent in one turn of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any, Final, cast

from dledger.errors import ProtocolError, Unavailable
from dledger.messages.hello import HelloRequest
from dledger.net.address import limit_unsent, split_address, tune
from dledger.net.handlers import Handlers, OnClose, OnConnection, OnFrame, ignore, receive_buffer
from dledger.net.inflow import PRESSED_READ_BYTES, Inflow
from dledger.net.outflow import Outflow
from dledger.net.outgoing import WRITE_HIGH_BYTES, Outgoing
from dledger.net.seldom import Seldom
from dledger.net.tls import nodes_of, not_opened
from dledger.wire import HELLO_LIMITS, Frame, FrameReader, Limits, decode

log = logging.getLogger("dledger.net")

TURN_FRAMES: Final = 128
"""Frames of one connection that are handed out in one turn of the loop: then it is the others' turn."""
TURN_BYTES: Final = 256 << 10
"""Bytes of one client that are taken before it is the others' turn. Where a read fills its buffer, libuv reads again at
once, up to 32 times: megabytes of one connection's commands would be carried out while all others wait."""
SHUTDOWN_S: Final = 1.0
"""How long a connection under TLS that is closed waits for the other side to close it too, which may be silent."""

class Connection(Outgoing, asyncio.BufferedProtocol):
    """Frames both ways. Made by `dledger.net.listen` and `connect`.

    Attributes:
        context: whatever the owner wants to remember of this connection.
        host: the other side's, without its port.
        opened_at: loop time in seconds of its begin.
        idle_since: as `look_idle` found it.
        received: bytes so far.
        said_hello: whether an accepted connection has sent its first frame.
        is_member: it is another member's, so no budget of clients applies to it.
    """

    def __init__(
        self,
        handlers: Handlers,
        limits: Limits,
        accepted: bool,
        inflow: Inflow | None = None,
        outflow: Outflow[Connection] | None = None,
        seldom: Seldom | None = None,
    ) -> None:
        """``inflow``: what frames under way count against; ``outflow``: what answers do; ``seldom``: who logs what the
        other side does wrong."""
        super().__init__()
        self.context: Any = None
        self.peer_name = self.host = "?"
        self.opened_at = self.idle_since = 0.0
        self.received = 0
        self.said_hello = not accepted
        self.is_member = False
        self._handlers = handlers
        self._accepted = accepted
        self._inflow = inflow
        self._outflow = outflow
        self._seldom = seldom
        self._reader = FrameReader(limits, HELLO_LIMITS if accepted else None, self._admits if inflow else None)
        self._buffer = receive_buffer()
        self._shared: memoryview | None = None
        """The thread's receive buffer, while this connection reads into it; None: into a large payload's own."""
        self._holds = 0
        """What `Inflow` has noted."""
        self._asked = self._seen_asked = 0
        self._turn_bytes = 0
        self._read_paused = False
        self._frames: list[Frame] = []
        self._again: asyncio.Handle | None = None
        self._closed = self._loop.create_future()
        self._error: Exception | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            tune(sock)
            if self._accepted:
                limit_unsent(sock)
            if transport.get_extra_info("sslcontext") is None:  # else only the transport may write to it
                self._descriptor = sock.fileno()
        self.peer_name = _name(transport.get_extra_info("peername"))
        self.host = self.peer_name.rpartition(":")[0] or "?"
        self.opened_at = self.idle_since = self._loop.time()
        self._handlers.on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        reader = self._reader
        if reader.large is not None:
            self._shared, wanted = None, cast(memoryview, reader.wanted)
            # Of a client no more at once than is its turn: fifty may have megabytes ready.
            return wanted[:TURN_BYTES] if self._accepted and not self.is_member else wanted
        self._shared = buffer = self._buffer.view
        rest = reader.rest
        if not rest:
            return buffer[:PRESSED_READ_BYTES] if self._inflow is not None and self._inflow.is_pressed else buffer
        if len(rest) >= len(buffer) // 2:  # a header near its limit
            self._shared = buffer = self._buffer.grow(2 * len(rest))
        buffer[: len(rest)] = rest
        return buffer[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        self._turn_bytes += nbytes
        reader = self._reader
        try:
            buffer = self._shared
            if buffer is None:
                if (frame := reader.received(nbytes)) is not None:
                    self._frames.append(frame)
            else:
                reader.parse(buffer[: len(reader.rest) + nbytes], self._frames)
            self._dispatch()
        except ProtocolError as error:
            self.fail(error)
        if self._inflow is not None and not self.is_member and (self._holds or reader.in_frame):
            self._note(self._inflow)
        if self._turn_bytes >= TURN_BYTES:
            self._end_turn()

    def _end_turn(self) -> None:
        """Read on in the loop's next turn."""
        self._turn_bytes = 0
        if self._accepted and not self.is_member and self._again is None and not self.closing:
            self._again = self._loop.call_soon(self._dispatch_again)
            self._read_or_not()

    def _note(self, inflow: Inflow) -> None:
        """Let the budget know what is here and not taken."""
        holds = 0 if self.is_member or self.closing else self._reader.held
        if self._frames and not self.is_member:
            holds += sum(len(frame.header) + len(frame.payload) for frame in self._frames)
        if holds != self._holds:
            self._holds = holds
            inflow.note(self, holds)
        if self._reader.refused:
            self._read_or_not()

    def _admits(self, size: int) -> bool:
        return self.is_member or self._inflow is None or self._inflow.admits(self, size)

    def become_member(self) -> None:
        """It is a member's: no budget of clients applies to what it sends, from what came right behind its hello on."""
        self.is_member = True
        if self._inflow is not None:
            self._inflow.forget(self)
            self._holds = 0
        if self._reader.refused:
            self._loop.call_soon(self.proceed)

    def proceed(self) -> None:
        """The budget may have room for the frame that it had none for."""
        if self.closing:
            return
        rest, self._reader.refused = self._reader.rest, False
        try:
            self._reader.parse(memoryview(rest), self._frames)
        except ProtocolError as error:
            self.fail(error)
        if self._inflow is not None:
            self._note(self._inflow)
        self._go_on()

    def _dispatch(self) -> None:
        """Hand out what was received. Frames that are not wanted yet stay, and nothing more is read."""
        frames, self._frames = self._frames, []
        taken = 0
        for frame in frames:
            if taken == TURN_FRAMES or self._held_back:
                break
            self._take(frame)
            taken += 1
        if taken:
            self._handlers.on_batch_end(self)
        if taken < len(frames) and not self.closing:
            self._frames = frames[taken:]
            if taken == TURN_FRAMES and not self._held_back:
                self._again = self._loop.call_soon(self._dispatch_again)
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

    def _was_sent(self) -> None:
        self._go_on()  # nothing more was taken or read because too much was unsent, which the kernel may have at once

    def _dispatch_again(self) -> None:
        self._again = None
        try:
            self._dispatch()
        except ProtocolError as error:
            self.fail(error)
        if self._inflow is not None and self._holds:
            self._note(self._inflow)
        self._read_or_not()

    def _take(self, frame: Frame) -> None:
        message = decode(frame.kind, frame.header, frame.payload)
        if not self.said_hello:
            if not isinstance(message, HelloRequest):
                raise ProtocolError(f"the first frame is {type(message).__name__}, not HelloRequest")
            self.said_hello = True
        self._asked += 1
        if not self._ended:
            self._handlers.on_frame(self, frame.request_id, message, frame.payload)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._accepted:
            self._read_or_not()  # who does not take answers may not ask more

    def resume_writing(self) -> None:
        self._let_drain()
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
        self._ended = True
        self._out.clear()
        self._frames.clear()
        self._queued = 0
        self._reader.forget()  # at once, and not when this object is collected: it may be large
        if self._inflow is not None:
            self._inflow.forget(self)
        if self._outflow is not None:
            self._outflow.forget(self)
        self.resume_writing()
        if not self._closed.done():
            self._closed.set_result(None)
        self._handlers.on_close(self, self._error or exc)

    # the owner's side

    @property
    def peer_nodes(self) -> set[str] | None:
        """The nodes that the other side's certificate is for; None without TLS."""
        if self._transport is None or self._transport.get_extra_info("sslcontext") is None:
            return None
        return nodes_of(self._transport.get_extra_info("peercert"))

    @property
    def is_kept_waiting(self) -> bool:
        """Whether it is this side that reads no further."""
        return self._read_paused or self._again is not None or self._reader.refused

    @property
    def outflow(self) -> Outflow[Connection]:
        """What the answers of an accepted connection count against."""
        assert self._outflow is not None, "this side has opened the connection"
        return self._outflow

    def now_s(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def look_idle(self, now_s: float) -> None:
        """Move ``idle_since`` on, unless nothing was asked since the last look and everything is answered."""
        if self._asked != self._seen_asked or self._asked > self._answered or self.unsent_bytes:
            self._seen_asked, self.idle_since = self._asked, now_s

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
        if self._frames or self._reader.refused or self._held_back:
            self._transport.pause_reading()  # a no-op when it is paused
        else:
            self._transport.resume_reading()

    def fail(self, error: Exception) -> None:
        """Close at once because the other side broke the protocol; one line in the log."""
        if self._error is None:
            self._error = error
            if self._seldom is not None:
                self._seldom.warn(self.peer_name, str(error))
            else:
                log.warning("connection from %s closed: %s", self.peer_name, error)
        self.abort()

    def give_way(self, reason: Exception) -> None:
        """Close it, idle as it is, to make room."""
        self._error = self._error or reason
        log.debug("connection from %s closed: %s", self.peer_name, reason)
        self.close()

    def close(self) -> None:
        """Send what is unsent, then close."""
        self.flush()
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and forget what is unsent."""
        self._ended = True
        self._out.clear()
        self._queued = 0
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


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
        CertificateRefused: the node's certificate is not taken.
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
        raise not_opened(address, error, tls) from None
    sock = transport.get_extra_info("socket")
    if sock is not None and unanswered_ms:
        tune(sock, unanswered_ms)
    return connection


__all__ = ["SHUTDOWN_S", "Connection", "Handlers", "OnClose", "OnConnection", "OnFrame", "connect", "ignore", "log"]
