"""Follow: a slave of a RocketMQ master. Socket, clock and disk for
`dledger.rocketmq.ha_protocol.ha_client.HAClient`.

The master's bytes go into the commit log as they are. Only durable and sound bytes are
reported: a real slave acknowledges from memory, this one loses nothing that a sync master has
answered with SEND_OK.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger.errors import DLedgerError, Unavailable
from dledger.net.address import split_address, tune
from dledger.rocketmq.ha.checked_log import CheckedLog
from dledger.rocketmq.ha.first_ended import first_ended
from dledger.rocketmq.ha.ha_service import milliseconds
from dledger.rocketmq.ha_protocol.ha_client import HAClient
from dledger.rocketmq.ha_protocol.messages import DEFAULTS, HASettings

logger = logging.getLogger(__name__)

BUFFER: Final = 4 << 20
"""Bytes that are taken from the socket together, as in a real slave."""
BULK: Final = 512 << 10
BULK_MS: Final = 200
"""So long after so many bytes were there at once, the slave is still catching up."""
CONNECT_S: Final = 5.0
FIRST_WAIT_MS: Final = 100
LONGEST_WAIT_MS: Final = 5_000
"""Between two attempts to connect, as a real slave's."""


class BrokerFollower:
    """A slave of the master at ``address``. Belongs to the running loop.

    Args:
        log: where the bytes go; appended to on the loop, flushed in a thread, also while it is
            appended to.
        on_appended: called on the loop after each append.
        on_connected: called on the loop with True when the master has answered, with False when it
            is gone.
        clock: milliseconds.
    """

    def __init__(
        self,
        log: CheckedLog,
        address: str,
        *,
        settings: HASettings = DEFAULTS,
        on_appended: Callable[[], None] = lambda: None,
        on_connected: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], int] = milliseconds,
    ) -> None:
        self.host, self.port = split_address(address)
        self.client: HAClient | None = None
        """Of the connection that there is."""
        self._log = log
        self._settings = settings
        self._on_appended = on_appended
        self._on_connected = on_connected
        self._clock = clock
        self._disk = ThreadPoolExecutor(1, "ha-flush")
        self._buffer = memoryview(bytearray(BUFFER))
        self._unflushed = asyncio.Event()
        self._reportable = asyncio.Event()
        self._bulk_until = 0
        self._failed: Exception | None = None

    @property
    def in_bulk(self) -> bool:
        """Whether more comes than can be taken at leisure: the slave is catching up. May be asked
        by any thread."""
        return self._clock() < self._bulk_until

    async def run(self) -> None:
        """Follow until cancelled; a connection that ends is made again.

        Raises:
            ProtocolError: the master sends bytes that are not this log's, now or ever.
            FormatError: it sends a damaged message.
            DiskFull, StorageError: the log cannot be written.
        """
        wait_ms = FIRST_WAIT_MS
        try:
            while True:
                try:
                    await self._follow_once()
                except (Unavailable, OSError) as error:
                    if isinstance(error, DLedgerError) and not isinstance(error, Unavailable):
                        raise
                    why = str(error) or type(error).__name__
                    logger.warning("master %s:%d: %s", self.host, self.port, why)
                if self.client is not None and self.client.frames:
                    wait_ms = FIRST_WAIT_MS
                self.client = None
                await asyncio.sleep(wait_ms / 1000)  # also where the master closes at once
                wait_ms = min(2 * wait_ms, LONGEST_WAIT_MS)
        finally:
            self._disk.shutdown()

    async def _follow_once(self) -> None:
        """One connection, from its begin to its end.

        Raises:
            OSError, Unavailable: it ended, or could not be made.
        """
        await self._flush()  # the first report says what is durable
        sock = await self._connect()
        with sock:
            self.client = client = HAClient(
                self._log.max_offset, self._clock(), settings=self._settings
            )
            self._reportable.set()
            parts = self._receive(sock, client), self._flush_on(client), self._report(sock, client)
            try:
                for task in await first_ended(*parts):
                    task.result()
            finally:
                if client.frames:
                    self._on_connected(False)

    async def _connect(self) -> socket.socket:
        """Raises:
        OSError: no process listens, or none answers in time.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(sock, address)
        except TimeoutError:
            sock.close()
            raise Unavailable(f"no connection within {CONNECT_S:g} s") from None
        except BaseException:
            sock.close()
            raise
        tune(sock)
        return sock

    async def _receive(self, sock: socket.socket, client: HAClient) -> None:
        """Put the received bytes into the log.

        Raises:
            Unavailable: the master has closed the connection.
            ProtocolError: it lies.
        """
        loop, log, buffer = asyncio.get_running_loop(), self._log, self._buffer
        connected = False
        while True:
            count = await loop.sock_recv_into(sock, buffer)
            if not count:
                raise Unavailable(why_closed(client))
            pieces = client.receive(buffer[:count], self._clock())
            if count >= BULK:
                self._bulk_until = self._clock() + BULK_MS
            if not connected and client.frames:
                connected = True
                self._on_connected(True)
            for piece in pieces:
                log.append_raw(piece.offset, piece.data())
            if pieces:
                self._unflushed.set()
                self._on_appended()

    async def _flush_on(self, client: HAClient) -> None:
        """Flush the appended bytes, again and again; each time takes in all that came during the
        last."""
        while True:
            await self._unflushed.wait()
            client.flushed(await self._flush())
            self._reportable.set()

    async def _flush(self) -> int:
        """Flush, in the thread for it; up to where the log was sound before."""
        self._unflushed.clear()
        end = self._log.sound_offset
        await asyncio.get_running_loop().run_in_executor(self._disk, self._flush_log)
        return end

    def _flush_log(self) -> None:
        """Runs in the thread. A flush that has failed is never tried again, even when no caller
        waits for its end any more: the next one would succeed and tell nothing."""
        if self._failed is not None:
            raise self._failed
        try:
            self._log.flush()
        except Exception as error:
            self._failed = error
            raise

    async def _report(self, sock: socket.socket, client: HAClient) -> None:
        """Tell the master the durable offset.

        Raises:
            Unavailable: the master is silent.
        """
        loop = asyncio.get_running_loop()
        while True:
            self._reportable.clear()
            client.check(self._clock())
            report = client.report(self._clock())
            if report:
                await loop.sock_sendall(sock, report)
            patience = (client.deadline() - self._clock()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(patience, 0)):
                    await self._reportable.wait()


def why_closed(client: HAClient) -> str:
    """The likely reason of a master that closes without a message."""
    if client.within_header:
        return "it closed the connection within a header"
    if client.frames:
        return "it closed the connection"
    return (
        f"it closed the connection unanswered: perhaps its log ends before "
        f"{client.max_offset}, where this one does"
    )
