"""The port of a node: accepts connections, and ends those that are too many, silent or stalled."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from dledger.errors import ConfigError, PortInUse
from dledger.net.connections.connection import Connection, SharedByPort, log
from dledger.net.connections.handlers import Handlers
from dledger.net.limits.accounts import Accounts
from dledger.net.limits.connection_slots import Places
from dledger.net.limits.frame_turns import FrameTurns
from dledger.net.limits.inflow import Inflow
from dledger.net.limits.outflow import Outflow
from dledger.net.limits.patience import Patience
from dledger.net.limits.rare_warnings import Seldom
from dledger.net.listener.tls_door import Arrival, Door
from dledger.protocol.wire import FrameLimits

CONNECTION_BYTES: Final = 16 << 10
"""What an open connection counts as: the 3 KiB that it takes, and room for the beginning of a
frame."""


class Listener:
    """A port that is open from `open` on: calls back for connections and frames.

    Every connection's first frame must be a HelloRequest of at most 64 KiB; the owner answers it,
    and gives the connection its place (`Listener.places`). A frame that is not proper ends its
    connection with a line in the log, one for each reason and address in a while.

    Args:
        held: bytes that the owner holds, within ``patience.max_bytes``.
        accounts: those that share it, by their connections.
    """

    def __init__(
        self,
        handlers: Handlers[Connection],
        limits: FrameLimits,
        *,
        patience: Patience = Patience(),
        held: Callable[[], int] = int,
        accounts: Accounts | None = None,
    ) -> None:
        self.connections: dict[Connection, None] = {}
        self.host = ""
        self.port = 0
        self._owner = handlers
        self._handlers = replace(handlers, on_open=self._opened, on_close=self._closed)
        self._limits = limits
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        accounts = accounts or Accounts()
        self.places = Places(patience)
        self.inflow = Inflow(
            self._left_by_connections,
            held,
            stall_s=patience.stall_s,
            pressed_s=patience.pressed_s,
            accounts=accounts,
        )
        self.outflow: Outflow[Connection] = Outflow(patience.max_bytes)
        self._turns = FrameTurns(accounts)
        self._seldom = Seldom(log, self._loop.time)
        self._server: asyncio.Server | None = None
        self._door: Door | None = None
        """Under TLS."""
        self._timer: asyncio.TimerHandle | None = None

    def _left_by_connections(self) -> int:
        most = self._patience.max_bytes  # a quarter is left, so that requests go on in any crowd
        return max(most - len(self.connections) * CONNECTION_BYTES, most // 4)

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen on that port; 0: any free one, see ``port``.

        Raises:
            PortInUse: another process listens there.
            ConfigError: the host is not an address of this machine, or the port is not allowed.
        """
        accept: Callable[[], asyncio.BaseProtocol] = self._accept
        if tls is not None:
            self._door = Door(tls, self._accept, places=self.places, seldom=self._seldom)
            accept = partial(Arrival, self._door)
        try:
            self._server = await self._loop.create_server(accept, host, port, backlog=512)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{host}:{port}: another process listens there; choose another port, or 0 "
                    "for any free one"
                ) from None
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}"
            ) from None
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        self._timer = self._loop.call_later(self._patience.sweep_s, self._sweep)

    def want_certificates(self, always: bool) -> None:
        """Under TLS: whether a connection without a certificate fails in its handshake, or the
        owner sees that it has none; of handshakes that begin from now on."""
        if self._door is not None:
            self._door.tls.verify_mode = ssl.CERT_REQUIRED if always else ssl.CERT_OPTIONAL

    def use(self, tls: ssl.SSLContext) -> None:
        """The context of the connections that come from now on, of a port that was opened with one;
        `want_certificates` holds for it too."""
        assert self._door is not None
        tls.verify_mode = self._door.tls.verify_mode
        self._door.tls = tls

    async def close(self) -> None:
        """Accept no more, send the unsent bytes of each connection, close them."""
        if self._timer:
            self._timer.cancel()
        if self._server:
            self._server.close()
        if self._door:
            await self._door.close()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait(
                [asyncio.ensure_future(c.wait_closed()) for c in connections], timeout=1
            )
        for connection in list(self.connections):
            connection.abort()

    def _accept(self) -> Connection:
        return Connection(
            self._handlers,
            self._limits,
            shared=SharedByPort(self.inflow, self.outflow, self._turns, self._seldom),
        )

    def refuse(self, connection: Connection, reason: str) -> None:
        """Send the unsent bytes, then close; with a line in the log, one for each reason and
        address in a while."""
        self._seldom.warn(connection.peer_name, reason)
        connection.close()

    def _opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        if self._door:
            self._door.enter(connection)
        self.places.open(connection)
        if self._owner.on_open is not None:
            self._owner.on_open(connection)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self.connections.pop(connection, None)
        self.places.close(connection)
        self._owner.on_close(connection, error)

    def _sweep(self) -> None:
        self.places.sweep(self._loop.time())
        self.inflow.sweep()
        self._seldom.sweep()
        self._timer = self._loop.call_later(self._patience.sweep_s, self._sweep)
