"""A small HTTP server for scrapes and probes, on a loop in a thread of its own: it answers while
the node's loop is busy, as during recovery, and a slow client is never the node's business.

One request a connection, GET or HEAD; nothing is read but its head. When all places are taken, a
newcomer takes that of the connection that has been silent longest.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from io import BytesIO
from typing import Final
from urllib.parse import urlsplit

from dledger.errors import ConfigError, PortInUse
from dledger.net.connections.connection import name_of
from dledger.net.connections.tls import Shown, shown_on

logger = logging.getLogger(__name__)

PLACES: Final = 64
"""Connections at a time."""
HEAD_BYTES: Final = 8 << 10
REQUEST_S: Final = 5.0
"""For the handshake and the head of a request."""
ANSWER_S: Final = 10.0
"""For the answer to be taken."""
PIECE_BYTES: Final = 64 << 10
"""Handed over at a time, so that a slow client holds no more than that of a page."""
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request."""

    path: str
    headers: HTTPMessage
    address: str
    """``host:port`` of the other side."""
    shown: Shown | None
    """What that has shown of itself; None without TLS."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT

    @classmethod
    def of(cls, status: HTTPStatus, text: str) -> HttpAnswer:
        """A line of text."""
        return cls(status, f"{text}\n".encode())

    def head(self) -> bytes:
        """The lines before the body."""
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode()


class HttpServer:
    """Answers requests at one port from `open` on.

    Args:
        answer: called on the server's thread, for one request at a time.
        tls: gives the context of the next connection, in which clients show a certificate; None:
            it is plain.
    """

    def __init__(
        self,
        answer: Callable[[HttpRequest], HttpAnswer],
        *,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._socket: socket.socket | None = None
        self.port = 0
        """Where it listens, once it does."""
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="dledger-monitoring", daemon=True)
        self._ending = asyncio.Event()
        self._open: dict[asyncio.Task[None], None] = {}
        """A task for each connection, the oldest first."""
        self._silent: dict[asyncio.Task[None], None] = {}
        """Those of them that have not sent their request."""

    def open(self, host: str, port: int) -> None:
        """Listen, and answer from now on. ``port`` 0: any free one.

        Raises:
            PortInUse: another process listens there.
            ConfigError: the host is not an address of this machine, or the port is not allowed.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{host}:{port}: another process listens there; choose another metrics_port, "
                    "or 0 for any free one"
                ) from None
            raise ConfigError(
                f"metrics: cannot listen on {host}:{port}: {error.strerror or error}"
            ) from None
        self.port = self._socket.getsockname()[1]
        self._socket.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def close(self) -> None:
        """HttpAnswer no more; waits for the end of the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
        if self._socket is not None:
            self._socket.close()

    # --- on the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._ending.wait()
        for task in (accepting, *self._open):
            task.cancel()
        await asyncio.wait([accepting, *self._open])

    async def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._socket)
            except OSError as error:  # no descriptor is left
                logger.warning("metrics: no connection is accepted now: %s", error)
                await asyncio.sleep(1)
                continue
            if len(self._open) >= PLACES:
                oldest = next(iter(self._silent or self._open))
                self._forget(oldest)
                oldest.cancel()
            task = asyncio.create_task(self._talk(accepted))
            self._open[task] = self._silent[task] = None
            task.add_done_callback(partial(self._ended, accepted))

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._silent.pop(task, None)

    def _ended(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """Also of one that was given up before it began."""
        accepted.close()
        self._forget(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("metrics: a connection ended by a defect", exc_info=error)

    async def _talk(self, accepted: socket.socket) -> None:
        """One connection."""
        reader = asyncio.StreamReader(limit=HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        writer: asyncio.StreamWriter | None = None
        # of the other side, which is slow, gone, speaks no TLS, or has no certificate
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            try:
                async with asyncio.timeout(REQUEST_S):
                    transport, _ = await self._loop.connect_accepted_socket(
                        lambda: protocol, accepted, ssl=self._tls()
                    )
                    writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
                    method, answer = await self._heard(reader, transport)
                task = asyncio.current_task()
                assert task is not None
                self._silent.pop(task, None)
                async with asyncio.timeout(ANSWER_S):
                    await self._send(writer, answer, with_body=method != "HEAD")
            finally:
                if writer is not None:
                    writer.transport.abort()

    async def _heard(
        self, reader: asyncio.StreamReader, transport: asyncio.BaseTransport
    ) -> tuple[str, HttpAnswer]:
        """The method of a request, and the answer."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            return "", HttpAnswer.of(status, f"a head of more than {HEAD_BYTES} bytes")
        line, _, rest = head.partition(b"\r\n")
        try:
            method, target, version = line.decode("ascii").split(" ")
            headers = parse_headers(BytesIO(rest))
            request = HttpRequest(
                urlsplit(target).path,
                headers,
                name_of(transport.get_extra_info("peername")),
                shown_on(transport),
            )
        except (ValueError, HTTPException):
            return "", HttpAnswer.of(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
        if not version.startswith("HTTP/1."):
            return "", HttpAnswer.of(
                HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here"
            )
        if method not in {"GET", "HEAD"}:
            return method, HttpAnswer.of(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD are all")
        try:
            return method, self._answer(request)
        except Exception:
            logger.exception("metrics: %s cannot be answered", request.path)
            return method, HttpAnswer.of(
                HTTPStatus.INTERNAL_SERVER_ERROR, "a defect; the node's log says more"
            )

    async def _send(
        self, writer: asyncio.StreamWriter, answer: HttpAnswer, *, with_body: bool
    ) -> None:
        writer.write(answer.head())
        body = memoryview(answer.body) if with_body else memoryview(b"")
        for at in range(0, len(body), PIECE_BYTES):
            writer.write(body[at : at + PIECE_BYTES])
            await writer.drain()
        await writer.drain()
        writer.close()
        await writer.wait_closed()
