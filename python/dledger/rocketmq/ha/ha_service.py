"""HAService: a master's slaves. Sockets and clock for the state machines of
``dledger.rocketmq``."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger.errors import ConfigError, PortInUse
from dledger.rocketmq.ha.first_ended import first_ended
from dledger.rocketmq.ha_protocol.group_transfer_service import (
    BrokerRole,
    GroupCommitRequest,
    GroupTransferService,
    HAStatus,
)
from dledger.rocketmq.ha_protocol.ha_connection import HAConnection, TransferFrame
from dledger.rocketmq.ha_protocol.messages import DEFAULTS, HASettings
from dledger.rocketmq.store.commit_log import CommitLog

logger = logging.getLogger(__name__)

MOST_SLAVES: Final = 64
CHUNK: Final = 1 << 20
"""Log bytes that are sent together, as many frames."""
SMALL: Final = 1 << 16
"""Log bytes that are read on the loop: appended just now, and still in memory."""
REPORTS: Final = 1 << 16
HOUR: Final = 3_600_000


def milliseconds() -> int:
    """Of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class HAService:
    """All slaves of one master, and the puts that wait for them. Belongs to the running loop.

    Args:
        log: the log that slaves get; its writer calls `notify_appended`.
        role: only a sync master's puts wait.
        clock: milliseconds.
    """

    def __init__(
        self,
        log: CommitLog,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        *,
        settings: HASettings = DEFAULTS,
        clock: Callable[[], int] = milliseconds,
        most_slaves: int = MOST_SLAVES,
    ) -> None:
        self.log = log
        self.settings = settings
        self.clock = clock
        self.accept_socket_service = AcceptSocketService(self, most_slaves)
        self.group_transfer_service = GroupTransferService(role, settings)
        self.connections: dict[SlaveLink, None] = {}
        self.disk = ThreadPoolExecutor(1, "ha-read")
        self._waiting: dict[GroupCommitRequest, asyncio.Future[HAStatus]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen for slaves; a real slave looks for its master's at the port behind the broker's.

        Raises:
            PortInUse: another process listens there.
            ConfigError: that is no address of this machine, or not allowed.
        """
        self.accept_socket_service.begin_accept(host, port)

    async def stop(self) -> None:
        """Accept no more, end all connections; puts that wait end as when no slave answers."""
        await self.accept_socket_service.shutdown()
        await asyncio.gather(*(link.shutdown() for link in list(self.connections)))
        if self._timer:
            self._timer.cancel()
        self._decided(list(self._waiting))
        self.disk.shutdown()

    def notify_appended(self) -> None:
        """The log has grown: send it."""
        for link in self.connections:
            link.wake.set()

    async def handle_ha(self, next_offset: int, *, wait_store_msg_ok: bool = True) -> HAStatus:
        """A message that ends at ``next_offset`` is in the log: how its put ends, as far as slaves
        go."""
        self.notify_appended()
        reported = [link.connection.slave_ack_offset for link in self.connections]
        request = self.group_transfer_service.put_request(
            next_offset, reported, self.clock(), wait_store_msg_ok=wait_store_msg_ok
        )
        if request.status is not None:
            return request.status
        future: asyncio.Future[HAStatus] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        self._set_timer()
        return await future

    def notify_transfer_some(self, offset: int, begin: int) -> None:
        """A slave has acknowledged the bytes sent to it from ``begin`` up to there."""
        self._decided(self.group_transfer_service.notify_transfer_some(offset, begin))

    def _decided(self, requests: list[GroupCommitRequest]) -> None:
        for request in requests:
            future = self._waiting.pop(request)
            if not future.done():  # the caller may have been cancelled
                future.set_result(request.status or HAStatus.FLUSH_SLAVE_TIMEOUT)

    def _set_timer(self) -> None:
        deadline = self.group_transfer_service.deadline()
        if self._timer is None and deadline is not None:
            delay = max(deadline - self.clock(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        self._decided(self.group_transfer_service.expire(self.clock()))
        self._set_timer()


class AcceptSocketService:
    """The port. Made by `HAService`.

    A real slave whose connection is accepted and then closed comes back at once, thousands of times
    a second; so one for which there is no place is not accepted.
    """

    def __init__(self, service: HAService, most_slaves: int) -> None:
        self.host, self.port = "", 0
        self._service = service
        self._places = asyncio.Semaphore(most_slaves)
        self._task: asyncio.Task[None] | None = None

    def begin_accept(self, host: str, port: int) -> None:
        """Listen; as for `HAService.start`."""
        listening: socket.socket | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            listening = socket.socket(family, kind, protocol)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(MOST_SLAVES)
        except OSError as error:
            if listening is not None:
                listening.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{host}:{port}: another process listens there; choose another port"
                ) from None
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}"
            ) from None
        self.host, self.port = listening.getsockname()[:2]
        self._task = asyncio.get_running_loop().create_task(self._run(listening))

    async def _run(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                await self._places.acquire()
                try:
                    accepted, address = await loop.sock_accept(listening)
                # it ended before it was accepted, or there are no descriptors left
                except OSError as error:
                    logger.warning("a slave could not be accepted: %s", error)
                    self._places.release()
                    await asyncio.sleep(1)
                    continue
                link = SlaveLink(self._service, accepted, peer=f"{address[0]}:{address[1]}")
                self._service.connections[link] = None
                link.start(self._places.release)

    async def shutdown(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class SlaveLink:
    """The socket of one `HAConnection`."""

    def __init__(self, service: HAService, sock: socket.socket, *, peer: str) -> None:
        self.connection = HAConnection(service.clock(), service.settings)
        self.wake = asyncio.Event()
        """There may be bytes to send."""
        self._service = service
        self._socket = sock
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self, ended: Callable[[], None]) -> None:
        """Serve the slave; ``ended`` is called when that is over."""
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(lambda _: self._ended(ended))

    def _ended(self, ended: Callable[[], None]) -> None:
        del self._service.connections[self]
        self._socket.close()
        ended()

    async def shutdown(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        logger.info("slave %s has connected", self._peer)
        side, *_ = await first_ended(self._read(), self._write())
        error = side.exception() or "it closed the connection"
        logger.warning("slave %s is gone: %s", self._peer, error)

    async def _read(self) -> None:
        """ReadSocketService: returns when the slave closes.

        Raises:
            ProtocolError, Unavailable: it lies, or says nothing.
            OSError: the connection is lost.
        """
        service, side = self._service, self.connection.read_side
        while True:
            patience = min(side.deadline() - service.clock(), HOUR) / 1000
            try:
                async with asyncio.timeout(max(patience, 0)):
                    data = await self._loop.sock_recv(self._socket, REPORTS)
            except TimeoutError:
                side.check(service.clock())
                continue
            if not data:
                return
            acknowledged = side.receive(data, service.log.max_offset, service.clock())
            if acknowledged >= 0:
                service.notify_transfer_some(acknowledged, self.connection.write_side.begin)
            self.wake.set()

    async def _write(self) -> None:
        """WriteSocketService: never returns.

        Raises:
            DLedgerError: the log cannot be read.
            OSError: the connection is lost.
        """
        service, side = self._service, self.connection.write_side
        log = service.log
        while True:
            self.wake.clear()
            frames = side.transfer(log.min_offset, log.max_offset, CHUNK, service.clock())
            if frames:
                await self._loop.sock_sendall(self._socket, await self._bytes_of(frames))
                continue
            patience = min(side.deadline() - service.clock(), HOUR) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(patience, 0)):
                    await self.wake.wait()

    async def _bytes_of(self, frames: list[TransferFrame]) -> bytes:
        """Headers and log bytes, as they go over the wire."""
        begin, log = frames[0].offset, self._service.log
        size = frames[-1].offset + frames[-1].size - begin
        if size <= SMALL:
            data = log.read(begin, size) if size else b""
        else:
            data = await self._loop.run_in_executor(self._service.disk, log.read, begin, size)
        view, parts = memoryview(data), list[bytes | memoryview]()
        for frame in frames:
            at = frame.offset - begin
            parts += frame.header(), view[at : at + frame.size]
        return b"".join(parts)
