"""A plain-socket connection of frames, for callers that wait: no loop, no thread, one call one
answer."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

from dledger.errors import DLedgerError, ProtocolError, Unavailable
from dledger.interrupts import is_interrupt, told_as
from dledger.net.address import split_address, tune
from dledger.net.connections.handshake import Greeting, unanswered
from dledger.net.connections.patience import ThrottlePause
from dledger.net.connections.payload_memory import answer_memory
from dledger.net.connections.tls import (
    CertificateRefused,
    certificate_refused,
    expired_certificate,
    nodes_of,
    not_opened,
)
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.messages.throttling import ThrottleNotice
from dledger.protocol.wire import Frame, FrameLimits, FrameReader, Message, decode, encode
from dledger.types import Buffer

RECEIVE_BYTES: Final = 128 << 10
WAKE_BYTES: Final = 512 << 10
"""Of a large payload, for which a waiting thread is woken: a turn of it for each packet or two cost
a reader a tenth of its rate."""
SEND_PIECES: Final = 64
"""Buffers handed to one sendmsg; below the system's IOV_MAX everywhere."""


class Lost(Exception):
    """The connection broke, or its answer did not come in time. ``sent``: the whole request had
    left; ``closed``: the node ended it; ``error``: the error of the system or of TLS."""

    def __init__(
        self, reason: str, sent: bool, *, error: BaseException | None = None, closed: bool = False
    ) -> None:
        super().__init__(reason)
        self.sent = sent
        self.error = error
        self.closed = closed


class BlockingConnection:
    """Frames over one socket, for one thread at a time.

    Args:
        greeting: how it begins.
        on_refusal: where it is given, the first request follows this side's proof of the secret at
            once, which saves a round trip: the node has proved the secret by then. Should the node
            refuse the proof, it has taken nothing; this is called, `receive` raises `Lost`, and the
            next connection, without this, is told why.

    Raises on opening:
        Unavailable: no node answered in time.
        WrongGroup: a node of another group is there.
        ConfigError: the node is of a release that does not understand this one.
        CertificateRefused: one side does not take the other's certificate.
    """

    def __init__(
        self,
        address: str,
        greeting: Greeting,
        *,
        limits: FrameLimits,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self._on_refusal = on_refusal
        self._unheard: Callable[[Message], object] | None = None
        """Takes the node's last answer to the proof, while that is under way."""
        self._proof: list[Buffer] = []
        """The proof that leaves with the first request: the node takes both in one turn."""
        self._reader = FrameReader(limits, memory=answer_memory.take)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._frames: deque[Frame] = deque()
        self._request_id = 0
        self.pause = ThrottlePause()
        self._timeout_s = -1.0
        self._wakes_at = 1
        self._under_tls = tls is not None
        deadline = time.monotonic() + timeout_s
        with told_as(lambda error: not_opened(address, error, tls), OSError):
            self._socket = _open(address, timeout_s, tls)
        with greeted(address, tls, self.close):
            self.welcome = self._greet(greeting, deadline)
            """The node's description of itself."""

    def _greet(self, greeting: Greeting, deadline: float) -> HelloResponse:
        sock = self._socket
        certified = nodes_of(sock.getpeercert()) if isinstance(sock, ssl.SSLSocket) else None
        words: HelloRequest | HelloProof | None = greeting.hello
        while words is not None:
            if greeting.proved and self._on_refusal is not None:
                self._proof = encode(words, 1)
                self._unheard = partial(greeting.answered, certified=certified)
                break
            self.send(words, deadline=deadline)
            answer = self.receive(deadline)[1]
            words = greeting.answered(answer, certified)
        return greeting.welcome or cast(HelloResponse, answer)

    @property
    def usable(self) -> bool:
        """Whether the other side has not closed it meanwhile, as far as this host knows. No request
        may be under way."""
        reader = self._reader
        if self._socket.fileno() < 0:  # closed as garbage, with a reader that nobody has any more
            return False
        if self._frames or reader.rest or reader.large is not None or self._unheard is not None:
            return False
        # closed, or an unasked answer
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(self._socket, select.POLLIN)
            return not poller.poll(0)
        return not select.select([self._socket], [], [], 0)[0]

    def send(
        self, message: Message, payload: Sequence[Buffer] = (), deadline: float | None = None
    ) -> int:
        """Send a request; its id.

        Raises:
            Lost: not all of it left.
        """
        self._request_id = self._request_id % 0xFFFFFFFF + 1
        self._send_frame(encode(message, self._request_id, payload), deadline)
        return self._request_id

    def _send_frame(self, frame: list[Buffer], deadline: float | None) -> None:
        if self._proof:
            frame, self._proof = [*self._proof, *frame], []
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
            if is_interrupt(error):  # and the whole may have left
                raise
            raise Lost(f"sending failed: {error.strerror or error}", sent=False) from None

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

    def receive(
        self, deadline: float | None = None, on_begin: Callable[[Any], None] | None = None
    ) -> tuple[int, Any, memoryview]:
        """The next answer: request id, message, payload. What is left of a pause that the node has
        announced does not count.

        Args:
            on_begin: called with the message of a large answer while its payload is on its way.

        Raises:
            Lost: the connection ended, or ``deadline`` (time.monotonic) passed.
            ProtocolError: the frame is no answer.
        """
        until = deadline
        if self._proof:
            self._send_frame([], deadline)
        if deadline is not None:
            deadline += self.pause.left_s()
        while not self._frames:
            self._receive_some(deadline)
            if on_begin is not None and (begun := self._reader.begun) is not None:
                on_begin(decode(begun.kind, begun.header, begun.payload))
                on_begin = None
        frame = self._frames.popleft()
        message = decode(frame.kind, frame.header, frame.payload)
        if isinstance(message, ThrottleNotice):
            self.pause.begin(message)
        elif self._unheard is None:
            return frame.request_id, message, frame.payload
        else:
            self._hear(message)
        return self.receive(until, on_begin)

    def _hear(self, last_word: Message) -> None:
        assert self._unheard is not None
        assert self._on_refusal is not None
        hear, self._unheard = self._unheard, None
        try:
            hear(last_word)
        except DLedgerError as error:
            self._on_refusal()
            raise Lost(str(error), sent=False) from None

    def ask(
        self, message: Message, payload: Sequence[Buffer], deadline: float
    ) -> tuple[Any, memoryview]:
        """Send a request and wait for its answer.

        Raises:
            Lost: with ``sent``. The connection may not be used any more.
        """
        self._request_id = request_id = self._request_id % 0xFFFFFFFF + 1
        self._send_frame(encode(message, request_id, payload), deadline)
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
            wanted = None if reader.large is None else reader.wanted
            self._wake_for(0 if wanted is None else len(wanted))
            size = self._socket.recv_into(self._buffer if wanted is None else wanted)
        except OSError as error:
            if is_interrupt(error):
                raise
            if isinstance(error, TimeoutError):
                raise Lost("no answer in time", sent=True) from None
            raise Lost(error.strerror or str(error), sent=True, error=error) from None
        if not size:
            raise Lost("the node closed the connection", sent=True, closed=True)
        if wanted is None:
            self._frames.extend(reader.feed(self._buffer[:size]))
        elif frame := reader.received(size):
            self._frames.append(frame)

    def _wake_for(self, wanted: int) -> None:
        """Sleep until the system has a good part of the ``wanted`` bytes of a payload. OpenSSL
        keeps bytes that the system does not count."""
        wakes_at = WAKE_BYTES if wanted >= WAKE_BYTES and not self._under_tls else 1
        if wakes_at != self._wakes_at:
            self._wakes_at = wakes_at
            with suppress(OSError):  # a system that always wakes at the first byte
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wakes_at)

    def _wait_at_most(self, deadline: float | None) -> None:
        timeout = 3600.0 if deadline is None else max(0.001, deadline - time.monotonic())
        # a close one will do: setting it is a system call
        if not timeout <= self._timeout_s <= timeout + 0.5:
            self._timeout_s = timeout + 0.25
            self._socket.settimeout(self._timeout_s)

    def close(self) -> None:
        self._socket.close()


def _open(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    host, port = split_address(address)
    sock = _connected(host, port, timeout_s)
    try:
        tune(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """As `socket.create_connection`, which would take a signal handler's error for that of one of
    the host's addresses, and try the next one."""
    failed: OSError | None = None
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout_s)
            sock.connect(where)
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError) or is_interrupt(error):
                raise
            failed = failed or error
    raise failed or OSError("the host has no address")


@contextmanager
def greeted(address: str, tls: ssl.SSLContext | None, close: Callable[[], None]) -> Iterator[None]:
    """The beginning of a connection: an error closes it, and says where that was."""
    try:
        yield
    except BaseException as error:
        close()
        if isinstance(error, Lost):
            raise no_welcome(address, error, tls) from None
        if isinstance(error, ProtocolError):
            raise Unavailable(f"{address}: {error}") from None
        if isinstance(error, DLedgerError):
            raise type(error)(f"{address}: {error}") from None
        raise


def no_welcome(
    address: str, lost: Lost, tls: ssl.SSLContext | None
) -> CertificateRefused | Unavailable:
    """The error for a node that ended a connection instead of answering its first frame."""
    if tls is not None and (
        denied := certificate_refused(address, lost.error, tls) or expired_certificate(address, tls)
    ):
        return denied
    return Unavailable(f"{address}: {lost} ({unanswered(tls is not None)})")
