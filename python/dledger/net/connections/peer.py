"""The outgoing connection to one other node: opened again and again, and never more behind it than
a bound.

Peers talk one way on each connection. A message that cannot be sent is dropped: raft sends again
those that still matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final

from dledger.config import MIB
from dledger.errors import ConfigError, DLedgerError, Unavailable
from dledger.net.connections.connection import Connection, connect, log
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.handshake import Greeting, unanswered
from dledger.net.connections.tls import CertificateRefused, certificate_refused
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.peer import PeerMessage
from dledger.protocol.messages.repair import RepairMessage
from dledger.protocol.messages.snapshot import InstallMessage
from dledger.protocol.wire import FrameLimits, encode
from dledger.types import Buffer

PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 0.2
"""Short against an election: a restarted peer hears its leader before it loses patience."""
CONNECT_S: Final = 1.0
ENDED: Final = 3
"""Connections in a row that a peer ends without a word before it is said; one or two are those of a
node that stops."""
UNANSWERED_MS: Final = 3000
"""A connection whose packets are not acknowledged for this long is given up and opened anew."""


class PeerLink:
    """Sends messages to one peer, in order, each at most once.

    Args:
        address: asked at every attempt, so that a peer may move.
        greet: how each connection begins.
        limits: of frames that come back, which is only the answer to hello.
        max_bytes: unsent bytes from which messages are dropped.
        on_change: told True when the peer takes a connection and False after it is lost.
        tls: the context of connections to it, None for plain ones; asked at every attempt.
    """

    def __init__(
        self,
        address: Callable[[], str],
        greet: Callable[[], Greeting],
        *,
        limits: FrameLimits = FrameLimits(),
        max_bytes: int = 64 * MIB,
        on_change: Callable[[bool], None] | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self.dropped = 0
        self._tls = tls
        self._address = address
        self._greet = greet
        self._max_bytes = max_bytes
        self._limits = limits
        self._on_change = on_change
        self.on_refusal: Callable[[DLedgerError], object] = lambda error: None
        """Told why a peer that has answered is not taken, or does not take us."""
        self._connection: Connection | None = None
        """The one on which the peer has taken us."""
        self._newest: Connection | None = None
        self._greeting: Greeting | None = None
        self._settled = asyncio.Event()
        """The newest connection is taken, or lost."""
        self._waiting: list[list[Buffer]] = []
        self._waiting_bytes = 0
        self._lost = asyncio.Event()
        self._refusal = ""
        self._ended = 0
        """Connections in a row that the peer has ended in place of an answer."""
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def refusal(self) -> str:
        """Why there is no link, where the peer answers and one of the two does not take the other;
        empty from the next link on."""
        return self._refusal

    @property
    def proved(self) -> bool:
        """Whether the peer has taken a connection, and proved the group's secret on it."""
        return self._connection is not None and self._greeting is not None and self._greeting.proved

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes if self._connection else self._waiting_bytes

    def start(self) -> None:
        """Begin to connect; needs a running loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_no_end)

    def send(self, message: PeerMessage | RepairMessage | InstallMessage | AuditLines) -> None:
        """Send, or keep until the attempt to connect that is under way has ended, or drop. Never
        waits."""
        connection = self._connection
        if (
            self._waiting_bytes if connection is None else connection.unsent_bytes
        ) > self._max_bytes:
            self.dropped += 1
            return
        frame = encode(message)
        if connection is not None:
            connection.send_frame(frame)
            return
        self._waiting.append(frame)
        self._waiting_bytes += sum(map(len, frame))

    def reconnect(self) -> None:
        """Give the connection up and open another one: the peer has moved, or may not be one any
        more to which this side talks."""
        if self._newest is not None:
            self._newest.abort()

    def flush(self) -> None:
        """Hand the sent messages to the kernel now."""
        if self._connection is not None:
            self._connection.flush()

    async def close(self) -> None:
        """Send the unsent messages, then close and connect no more."""
        if self._task is not None:
            self._task.cancel()
            # a defect that ended it is told by `_no_end`, and must not stop this
            await asyncio.wait([self._task])
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.wait_closed(), 1)
            connection.abort()

    async def _run(self) -> None:
        pause = PAUSE_MIN_S
        handlers = Handlers(on_frame=self._answered, on_close=self._closed)
        while True:
            self._lost.clear()
            self._settled.clear()
            try:
                connection = await connect(
                    self._address(), handlers, self._limits, CONNECT_S, UNANSWERED_MS, self._tls()
                )
            except CertificateRefused as error:
                self._say(str(error))
                self._forget()
            except (Unavailable, ConfigError, LookupError) as error:
                self._ended = 0
                log.debug("peer not reached: %s", error)
                self._forget()
            else:
                if await self._begin(connection):
                    await self._lost.wait()
                    pause = PAUSE_MIN_S
                else:
                    self._forget()
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    async def _begin(self, connection: Connection) -> bool:
        """Say hello; whether the peer takes us."""
        if connection.closing:  # lost between its opening and now
            return False
        self._newest, self._greeting = connection, self._greet()
        connection.send(self._greeting.hello, 1)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._settled.wait()
        except TimeoutError:
            # else it has answered in the very turn in which its time was over
            if self._connection is not connection:
                self._newest = None  # that it ends now is this side's doing
                log.debug("the peer at %s does not answer our hello", connection.peer_name)
        finally:
            if self._connection is not connection:
                connection.abort()
        return self._connection is connection

    def _say(self, reason: str) -> None:
        if reason != self._refusal:
            self._refusal = reason
            log.warning("no link to the peer at %s", reason)

    def _open(self, connection: Connection) -> None:
        self._connection, self._refusal = connection, ""
        for frame in self._waiting:
            connection.send_frame(frame)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._on_change:
            self._on_change(True)

    def _forget(self) -> None:
        """Waiting messages are old by now; a peer that comes back needs today's."""
        self.dropped += len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _answered(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        greeting = self._greeting
        if greeting is None or greeting.welcome is not None or self._newest is not connection:
            return  # peers answer nothing but a hello
        self._ended = -1
        try:
            words = greeting.answered(message, connection.peer_nodes)
        except DLedgerError as error:
            self._say(f"{connection.peer_name}: {error}")
            connection.close()
            self.on_refusal(error)
            return
        if words is not None:
            connection.send(words, 1)
        else:
            self._open(connection)
            self._settled.set()

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        if self._newest is connection:
            tls = self._tls()
            if tls is not None and (
                denied := certificate_refused(connection.peer_name, error, tls)
            ):
                self._say(str(denied))
                self._ended = -1
            self._ended += 1
            if self._ended == ENDED:
                self._say(
                    f"{connection.peer_name}: it ends each connection {unanswered(tls is not None)}"
                )
            self._lost.set()
            self._settled.set()
        if self._connection is connection:
            self._connection = None
            if self._on_change:
                self._on_change(False)


def _no_end(task: asyncio.Task[None]) -> None:
    """A link goes on until it is closed: a defect that ended it must not stay unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "a link to a peer ended by itself", "exception": error}
        )
