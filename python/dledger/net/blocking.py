"""A plain-socket connection of frames, for callers that wait: no loop, no thread, one call one answer."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from dledger.errors import DLedgerError, ProtocolError, Unavailable
from dledger.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.net.address import split_address, tune
from dledger.net.handshake import Greeting
from dledger.net.tls import nodes_of
from dledger.types import Buffer
from dledger.wire import Frame, FrameReader, Limits, Message, decode, encode

RECEIVE_BYTES: Final = 128 << 10
SEND_PIECES: Final = 64
"""Buffers handed to one sendmsg; below the system's IOV_MAX everywhere."""


class Lost(Exception):
    """The connection broke, or its answer did not come in time. ``sent``: the whole request had left."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class BlockingConnection:
    """Frames over one socket, for one thread at a time.

    Raises on opening:
        Unavailable: nobody answered in time.
        WrongGroup: somebody else's node is there.
        ConfigError: the node is of a release that does not understand this one.
    """

    def __init__(
        self, address: str, greeting: Greeting, limits: Limits, timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self._reader = FrameReader(limits)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._frames: deque[Frame] = deque()
        self._request_id = 0
        self._timeout_s = -1.0
        self._under_tls = tls is not None
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = _open(address, timeout_s, tls)
        except OSError as error:
            raise Unavailable(f"{address}: {error.strerror or error}") from None
        try:
            self.welcome = self._greet(greeting, deadline)
            """What the node said of itself."""
        except Lost as error:
            self.close()
            raise Unavailable(no_welcome(address, str(error), tls)) from None
        except ProtocolError as error:
            self.close()
            raise Unavailable(f"{address}: {error}") from None
        except DLedgerError as error:
            self.close()
            raise type(error)(f"{address}: {error}") from None
        except BaseException:
            self.close()
            raise

    def _greet(self, greeting: Greeting, deadline: float) -> HelloResponse:
        sock = self._socket
        certified = nodes_of(sock.getpeercert()) if isinstance(sock, ssl.SSLSocket) else None
        words: HelloRequest | HelloProof | None = greeting.hello
        while words is not None:
            self.send(words, deadline=deadline)
            words = greeting.answered(self.receive(deadline)[1], certified)
        assert greeting.welcome is not None
        return greeting.welcome

    @property
    def usable(self) -> bool:
        """Whether the other side has not closed it meanwhile, as far as this host knows. Nothing may be under way."""
        if self._frames or self._reader.in_frame:
            return False
        return not readable(self._socket)  # closed, or an answer nobody asked for

    def send(self, message: Message, payload: Sequence[Buffer] = (), deadline: float | None = None) -> int:
        """Send a request; its id.

        Raises:
            Lost: not all of it left.
        """
        self._request_id = self._request_id % 0xFFFFFFFF + 1
        frame = encode(message, self._request_id, payload)
        try:
            self._wait_at_most(deadline)
            if len(frame) == 1:
                self._socket.sendall(frame[0])
            elif sum(map(len, frame)) < RECEIVE_BYTES // 2:
                self._socket.sendall(b"".join(frame))
            elif self._under_tls:  # which has no sendmsg
                for piece in frame:
                    self._socket.sendall(piece)
            else:
                self._send_pieces(frame)
        except OSError as error:
            raise Lost(f"sending failed: {error.strerror or error}", sent=False) from None
        return self._request_id

    def _send_pieces(self, frame: Sequence[Buffer]) -> None:
        pieces = [memoryview(piece).cast("B") for piece in frame if len(piece)]
        at = 0
        while at < len(pieces):
            sent = self._socket.sendmsg(pieces[at : at + SEND_PIECES])
            while at < len(pieces) and sent >= len(pieces[at]):
                sent -= len(pieces[at])
                at += 1
            if sent:
                pieces[at] = pieces[at][sent:]

    def receive(self, deadline: float | None = None) -> tuple[int, Any, memoryview]:
        """The next answer: request id, message, payload.

        Raises:
            Lost: the connection ended, or ``deadline`` (time.monotonic) passed.
            ProtocolError: what came is no answer.
        """
        while not self._frames:
            self._receive_some(deadline)
        frame = self._frames.popleft()
        return frame.request_id, decode(frame.kind, frame.header, frame.payload), frame.payload

    def ask(self, message: Message, payload: Sequence[Buffer], deadline: float) -> tuple[Any, memoryview]:
        """Send a request and wait for its answer.

        Raises:
            Lost: with ``sent``. Nothing more may be asked on this connection.
        """
        request_id = self.send(message, payload, deadline)
        try:
            answered_id, answer, answered = self.receive(deadline)
            if answered_id != request_id:
                raise ProtocolError(f"answer {answered_id} where {request_id} was asked")
        except ProtocolError as error:
            raise Lost(str(error), sent=True) from None
        return answer, answered

    def _receive_some(self, deadline: float | None) -> None:
        reader = self._reader
        try:
            self._wait_at_most(deadline)
            wanted = reader.wanted
            size = self._socket.recv_into(self._buffer if wanted is None else wanted)
        except TimeoutError:
            raise Lost("no answer in time", sent=True) from None
        except OSError as error:
            raise Lost(error.strerror or str(error), sent=True) from None
        if not size:
            raise Lost("the node closed the connection", sent=True)
        if wanted is None:
            self._frames.extend(reader.feed(self._buffer[:size]))
        elif frame := reader.received(size):
            self._frames.append(frame)

    def _wait_at_most(self, deadline: float | None) -> None:
        timeout = 3600.0 if deadline is None else max(0.001, deadline - time.monotonic())
        if not timeout <= self._timeout_s <= timeout + 0.5:  # a close one will do: setting it is a system call
            self._timeout_s = timeout + 0.25
            self._socket.settimeout(self._timeout_s)

    def close(self) -> None:
        self._socket.close()


def _open(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    host, port = split_address(address)
    sock = socket.create_connection((host, port), timeout_s)
    try:
        tune(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def no_welcome(address: str, reason: str, tls: ssl.SSLContext | None) -> str:
    """What to say of a node that ended a connection instead of answering its first frame."""
    if tls is None:
        return f"{address}: {reason} (before its first answer: if it wants TLS, give tls_ca, tls_certificate, tls_key)"
    return f"{address}: {reason} (before its first answer: does its tls_ca know this side's certificate?)"


def readable(sock: socket.socket) -> bool:
    """Whether there is something to read right now, the end of the stream included."""
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(0))
    return bool(select.select([sock], [], [], 0)[0])
