"""The door of a port under TLS: a connection in the handshake has a place like one that has not
said hello. A handshake that fails is logged, and told to the other side.

The servers of both loops count no connection before its handshake is done, log none that fails, and
end it without the alert that says why. So they only accept here; the handshake is that of a second
transport.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from dledger.net.connections.connection import SHUTDOWN_S, Connection
from dledger.net.connections.tls import handshake_failure
from dledger.net.limits.connection_slots import Places
from dledger.net.limits.rare_warnings import Seldom


class Door:
    """Where connections of one listener come in.

    Args:
        accept: makes a connection.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        accept: Callable[[], Connection],
        *,
        places: Places,
        seldom: Seldom,
    ) -> None:
        self.tls = tls
        self.accept = accept
        self.places = places
        self.seldom = seldom
        self.is_closed = False
        self.arrivals: dict[Connection, Arrival] = {}
        """By what each becomes."""

    def enter(self, connection: Connection) -> None:
        """Its handshake is done: it needs a place of its own, and its hello is due as if there had
        been none."""
        arrival = self.arrivals[connection]
        self.places.close(arrival)
        connection.opened_at = arrival.opened_at

    async def close(self) -> None:
        """End the handshakes that are under way."""
        self.is_closed = True
        arrivals = list(self.arrivals.values())
        for arrival in arrivals:
            arrival.end()
        if arrivals:
            await asyncio.wait([arrival.task for arrival in arrivals], timeout=SHUTDOWN_S)


class Arrival(asyncio.Protocol):
    """One whose handshake is under way; to `Places`, a connection that has not said hello."""

    task: asyncio.Task[None]

    def __init__(self, door: Door) -> None:
        self.host = self._name = "?"
        self.opened_at = 0.0
        self._door = door
        self._ended = False
        self._socket: socket.socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        door, loop = self._door, asyncio.get_running_loop()
        if peer := transport.get_extra_info("peername"):
            self.host, self._name = str(peer[0]), f"{peer[0]}:{peer[1]}"
        self.opened_at = loop.time()
        try:
            self._socket = transport.get_extra_info("socket").dup()
        except OSError as error:
            door.seldom.warn(self._name, f"TLS handshake failed: {error.strerror}")
        else:
            connection = door.accept()
            door.arrivals[connection] = self
            self.task = loop.create_task(self._shake_hands(connection))
            door.places.open(self)
            if door.is_closed:  # accepted by the kernel before
                self.end()
        # It would read bytes of the handshake; under uvloop even where it is paused here.
        cast(asyncio.Transport, transport).abort()

    async def _shake_hands(self, connection: Connection) -> None:
        door, loop = self._door, asyncio.get_running_loop()
        try:
            # Ended by `Places`, in the time of a hello, before the loop's own patience of a minute
            # is over.
            await loop.connect_accepted_socket(
                lambda: connection,
                self._socket.dup(),
                ssl=door.tls,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:
            if not self._ended:
                reason, alert = handshake_failure(error)
                door.seldom.warn(self._name, f"TLS handshake failed: {reason}")
                await self._tell(alert)
        finally:
            self._socket.close()
            del door.arrivals[connection]
            door.places.close(self)

    async def _tell(self, alert: bytes) -> None:
        """Send it, and wait for the other side's end: to close before would reset the connection,
        by the bytes sent meanwhile, and might lose the alert."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            async with asyncio.timeout(SHUTDOWN_S):
                await loop.sock_sendall(self._socket, alert)
                self._socket.shutdown(socket.SHUT_WR)
                while await loop.sock_recv(self._socket, 4096):
                    pass

    def fail(self, error: Exception) -> None:
        """Give it up; one line in the log."""
        if not self._ended:
            self._door.seldom.warn(self._name, f"TLS handshake not finished: {error}")
            self.end()

    def end(self) -> None:
        """Its transport, and so its task, ends by this in one turn."""
        self._ended = True
        with suppress(OSError):  # the other side was quicker
            self._socket.shutdown(socket.SHUT_RDWR)
