"""The port of a node: accepts connections, and ends those that are too many, silent or stalled."""

from __future__ import annotations

import asyncio
import errno
import ssl
from dataclasses import dataclass
from typing import Any

from dledger.errors import ConfigError, PortInUse, ProtocolError
from dledger.net.connection import SHUTDOWN_S, Connection, Handlers, OnClose, OnConnection, OnFrame, _ignore
from dledger.wire import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much a listener bears."""

    max_connections: int = 4096
    hello_s: float = 5.0
    """For the first frame."""
    stall_s: float = 30.0
    """For the next byte of a frame that has begun, unless we ourselves do not read."""
    sweep_s: float = 1.0
    """Time between two looks at all connections."""


class Listener:
    """An open port. Made by `listen`."""

    def __init__(self, handlers: Handlers, limits: Limits, patience: Patience) -> None:
        self.connections: dict[Connection, None] = {}
        self.host = ""
        self.port = 0
        self._owner = handlers
        self._handlers = Handlers(
            on_open=self._opened,
            on_frame=handlers.on_frame,
            on_batch_end=handlers.on_batch_end,
            on_close=self._closed,
        )
        self._limits = limits
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen.

        Raises:
            PortInUse: another process listens there.
            ConfigError: the host is not an address of this machine, or the port is not allowed.
        """
        how: dict[str, Any] = {}
        if tls is not None:
            hello_s = self._patience.hello_s
            how = {"ssl": tls, "ssl_handshake_timeout": hello_s, "ssl_shutdown_timeout": SHUTDOWN_S}
        try:
            self._server = await self._loop.create_server(self._accept, host, port, backlog=512, **how)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"{host}:{port}: another process listens there; choose another port, or 0 for any free one"
                raise PortInUse(text) from None
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        self._timer = self._loop.call_later(self._patience.sweep_s, self._sweep)

    async def close(self) -> None:
        """Accept no more, send what is unsent on each connection, close them."""
        if self._timer:
            self._timer.cancel()
        if self._server:
            self._server.close()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([asyncio.ensure_future(c.wait_closed()) for c in connections], timeout=1)
        for connection in list(self.connections):
            connection.abort()

    def _accept(self) -> Connection:
        return Connection(self._handlers, self._limits, accepted=True)

    def _opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        self._owner.on_open(connection)
        if len(self.connections) > self._patience.max_connections:
            connection.fail(ProtocolError(f"over {self._patience.max_connections} connections"))

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self.connections.pop(connection, None)
        self._owner.on_close(connection, error)

    def _sweep(self) -> None:
        now, patience = self._loop.time(), self._patience
        for connection in list(self.connections):
            if not connection.said_hello and now - connection.opened_at > patience.hello_s:
                connection.fail(ProtocolError(f"no hello within {patience.hello_s:g} s"))
            elif connection.stalled_since(now - patience.stall_s):
                connection.fail(ProtocolError(f"a frame stalled for {patience.stall_s:g} s"))
        self._timer = self._loop.call_later(patience.sweep_s, self._sweep)


async def listen(
    host: str,
    port: int,
    on_open: OnConnection,
    on_frame: OnFrame,
    on_close: OnClose,
    limits: Limits,
    *,
    on_batch_end: OnConnection = _ignore,
    patience: Patience = Patience(),
    tls: ssl.SSLContext | None = None,
) -> Listener:
    """Open a port (0: any free one; see ``.port``) and call back for what comes in.

    Every connection's first frame must be a HelloRequest of at most 64 KiB; the owner answers it. Whatever is no
    proper frame ends its connection with one line in the log.

    Raises:
        PortInUse, ConfigError: see `Listener.open`.
    """
    handlers = Handlers(on_open=on_open, on_frame=on_frame, on_close=on_close, on_batch_end=on_batch_end)
    listener = Listener(handlers, limits, patience)
    await listener.open(host, port, tls)
    return listener
