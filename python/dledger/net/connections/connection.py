"""One connection of frames under asyncio, and how to open one."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final, cast

from dledger.errors import ProtocolError, Unavailable
from dledger.net.address import limit_unsent, split_address, tune
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.incoming import Incoming
from dledger.net.connections.outgoing import WRITE_HIGH_BYTES
from dledger.net.connections.tls import Shown, not_opened, shown_on
from dledger.net.limits.frame_turns import FrameTurns
from dledger.net.limits.inflow import Inflow
from dledger.net.limits.outflow import Outflow
from dledger.net.limits.rare_warnings import Seldom
from dledger.protocol.wire import FrameLimits

log = logging.getLogger("dledger.net")

SHUTDOWN_S: Final = 1.0
"""How long a connection under TLS that is closed waits for the other side to close it too, which
may be silent."""


@dataclass(frozen=True, slots=True)
class SharedByPort:
    """The limits that all connections of a port share."""

    inflow: Inflow
    """The budget of frames under way."""
    outflow: Outflow[Connection]
    """The budget of answers."""
    turns: FrameTurns
    """The turns in which frames are handed out."""
    seldom: Seldom
    """Logs the faults of the other side."""


class Connection(Incoming, asyncio.BufferedProtocol):
    """Frames both ways. Made by `Listener`, with the limits of its port, and by `connect`.

    Attributes:
        context: the owner's data of this connection.
        host: the other side's, without its port.
        account: the one that its turns and memory are counted for; its address until `belong_to`.
        opened_at: loop time in seconds of its begin.
        idle_since: as `look_idle` found it.
    """

    __slots__ = (
        "__weakref__", "_closed", "_error", "_outflow", "_seen_asked", "_seldom", "context",
        "host", "idle_since", "opened_at", "peer_name",
    )  # fmt: skip

    def __init__(
        self,
        handlers: Handlers[Connection],
        limits: FrameLimits,
        *,
        shared: SharedByPort | None = None,
    ) -> None:
        super().__init__(
            handlers,
            limits,
            inflow=shared.inflow if shared else None,
            turns=shared.turns if shared else None,
        )
        self.context: Any = None
        self.peer_name = self.host = "?"
        self.opened_at = self.idle_since = 0.0
        self._outflow = shared.outflow if shared else None
        self._seldom = shared.seldom if shared else None
        self._seen_asked = 0
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
            # else only the transport may write to it
            if transport.get_extra_info("sslcontext") is None:
                self._descriptor = sock.fileno()
        self.peer_name = name_of(transport.get_extra_info("peername"))
        self.host = self.account = self.peer_name.rpartition(":")[0] or "?"
        self.opened_at = self.idle_since = self._loop.time()
        if self._handlers.on_open is not None:
            self._handlers.on_open(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._accepted:
            self._read_or_not()  # a client that takes no answers may not ask more

    def resume_writing(self) -> None:
        self._write_paused = False
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
        self._queued = 0
        self._end_reading()
        if self._outflow is not None:
            self._outflow.forget(self)
        self.resume_writing()
        if not self._closed.done():
            self._closed.set_result(None)
        if self._error is not None:  # its frames refer to this connection
            self._error.__traceback__ = None
        self._handlers.on_close(self, self._error or exc)

    # the owner's side

    @property
    def peer_nodes(self) -> frozenset[str] | None:
        """The nodes that the other side's certificate is for; None without TLS."""
        shown = self.shown
        return None if shown is None else shown.nodes

    @property
    def shown(self) -> Shown | None:
        """What the other side has shown of itself; None without TLS."""
        return None if self._transport is None else shown_on(self._transport)

    @property
    def outflow(self) -> Outflow[Connection]:
        """The budget of the answers of an accepted connection."""
        assert self._outflow is not None, "this side has opened the connection"
        return self._outflow

    @property
    def is_asked(self) -> bool:
        """Whether the other side waits for an answer."""
        return self._asked > self._answered

    def now_s(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def look_idle(self, now_s: float) -> None:
        """Move ``idle_since`` on, unless nothing was asked since the last look and everything is
        answered."""
        if self._asked != self._seen_asked or self.is_asked or self.unsent_bytes:
            self._seen_asked, self.idle_since = self._asked, now_s

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
        """Send the unsent bytes, then close."""
        self.release_answers()
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and forget the unsent bytes."""
        self._ended = True
        self._out.clear()
        self._queued = 0
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


def name_of(peer: Any) -> str:
    """``host:port`` of an address as sockets have it."""
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "?"


async def connect(
    address: str,
    handlers: Handlers[Connection],
    limits: FrameLimits,
    timeout_s: float,
    unanswered_ms: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Open a connection; saying hello is the caller's.

    Raises:
        Unavailable: no node answered at ``address`` in time.
        ConfigError: the address is not ``host:port``.
        CertificateRefused: the node's certificate is not taken.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    how: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_shutdown_timeout": SHUTDOWN_S}
    try:
        async with asyncio.timeout(timeout_s):
            transport, connection = await loop.create_connection(
                lambda: Connection(handlers, limits), host, port, **how
            )
    except TimeoutError:
        raise Unavailable(f"{address}: no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise not_opened(address, error, tls) from None
    sock = transport.get_extra_info("socket")
    if sock is not None and unanswered_ms:
        tune(sock, unanswered_ms)
    return connection
