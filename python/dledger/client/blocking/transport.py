"""One caller's way to the group over plain sockets: its connections and its producer session, used
by one thread at a time. No other thread has a hand in a call, so its latency is that of two system
calls and the node's work."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from dledger import forks
from dledger.client.protocol.client_state import LIMITS, PROBE, ClientState, Operation, Request, T
from dledger.client.protocol.routing import Call, Probe, Wait
from dledger.client.protocol.session import ProducerSession
from dledger.errors import DLedgerError, Unavailable, WrongGroup
from dledger.interrupts import is_interrupt
from dledger.net.connections.blocking import BlockingConnection, Lost
from dledger.net.connections.handshake import LoginRefused
from dledger.net.connections.tls import CertificateRefused


class IdleTransports(deque["BlockingTransport"]):
    """A client's transports that no call uses, the last one used at the end."""

    _is_over = False

    def put(self, transport: BlockingTransport) -> None:
        """A call has ended."""
        self.append(transport)
        if self._is_over:  # the client was closed meanwhile
            self.close()

    def close(self) -> None:
        """Close them, and those that calls under way still put here."""
        self._is_over = True
        while self:
            try:
                transport = self.pop()
            except IndexError as error:  # another thread was faster
                if is_interrupt(error):
                    raise
                return
            transport.close()


class BlockingTransport:
    """Connections by address, opened when needed. As a context it is one caller's: behind a call
    that came to its end it is idle again, for the next one."""

    def __init__(self, core: ClientState, idle: IdleTransports) -> None:
        """``idle``: where it goes behind a call."""
        self.session: ProducerSession | None = None
        self.asking = False
        """A question is on a connection, or was when an exception that is not the connection's
        ended the call."""
        self.born = forks.generation
        self._core = core
        self._idle = idle
        self._connections: dict[str, BlockingConnection] = {}
        self._was_refused = False
        """A node did not take this side's proof: from then on its word is waited for, which says
        why."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A transport of an interrupted call is not used again, also when its clearing away is
        interrupted several times: its session's number may be used, and an answer on its way."""
        # the latter where a reader's user has enough
        came_to_its_end = kind is None or issubclass(kind, DLedgerError | GeneratorExit)
        # a reader of the parent's had it at the fork
        if came_to_its_end and not self.asking and self.born == forks.generation:
            self._idle.put(self)
        else:
            self.close()

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation.

        Raises:
            DLedgerError: as the operation says.
        """
        try:
            request = next(operation)
            while True:
                try:
                    answer = self.ask(request)
                except DLedgerError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def ask(self, request: Request) -> tuple[Any, memoryview]:
        """Ask until it is answered for good or the time is over."""
        call = self._core.call(request)
        while True:
            try:
                step = call.step(self._core.environment.now_ms())
            except Unavailable as error:
                self._core.lost = type(error) is Unavailable
                raise
            if isinstance(step, Wait):
                time.sleep(step.ms / 1000)
                continue
            try:
                connection = self.connection(step.address)
            except Unavailable as error:
                call.unreachable(step.address, str(error).removeprefix(f"{step.address}: "))
                continue
            except DLedgerError as error:
                raise call.refused(error) from None
            answered = self._exchange(
                call, PROBE if isinstance(step, Probe) else request, connection
            )
            if answered is None:
                continue
            if isinstance(step, Probe):
                call.learned(step.address, answered[0])
                continue
            code, message, leader_id = request.outcome(answered[0])
            now_ms = self._core.environment.now_ms()
            if call.answered(step.address, code, message, leader_id, now_ms):
                return answered

    def _exchange(
        self, call: Call, request: Request, connection: BlockingConnection
    ) -> tuple[Any, memoryview] | None:
        """One request on one connection; None when its answer did not come."""
        address = connection.address
        attempt_ms = request.attempt_ms if request.terms.repeatable else call.deadline_ms
        left_ms = min(attempt_ms, call.deadline_ms - self._core.environment.now_ms())
        self.asking = True
        try:
            answer = connection.ask(
                request.message, request.payload, time.monotonic() + max(1.0, left_ms) / 1000
            )
            self.asking = False
        except Lost as error:
            self.asking = False
            self.drop(address)
            if error.sent and request is not PROBE:
                call.lost(address, str(error), closed=error.closed)
            else:
                call.unreachable(address, str(error))
            return None
        return answer

    def connection(self, address: str) -> BlockingConnection:
        """The connection to ``address``, opened if there is none that works.

        Raises:
            Unavailable: no node answers there, or by now one of another group.
            WrongGroup: another group's node is there, and at every other address too, or none of
                ours was ever seen.
            CertificateRefused: at this and every other address one side does not take the other's
                certificate.
            LoginRefused: this and every other node refuse the user.
        """
        connection = self._connections.get(address)
        if connection is not None:
            if connection.usable:
                return connection
            self.drop(address)
        connection = self._connections[address] = self.open(address)
        return connection

    def open(self, address: str) -> BlockingConnection:
        """A connection that the caller closes or gives to `keep`; errors as in `connection`."""
        timeout_s = self._core.config.connect_timeout_ms / 1000
        on_refusal = None if self._was_refused else self._refused
        try:
            connection = BlockingConnection(
                address,
                self._core.greeting(),
                limits=LIMITS,
                timeout_s=timeout_s,
                tls=self._core.tls,
                on_refusal=on_refusal,
            )
        except (WrongGroup, CertificateRefused, LoginRefused) as error:
            raise self._core.refusal(address, error) from None
        connection.pause.on_notice = self._core.throttled
        self._core.routes.welcomed(connection.welcome)
        self._core.topics.clear()  # they may have changed meanwhile
        return connection

    def _refused(self) -> None:
        self._was_refused = True

    def take(self, address: str) -> BlockingConnection:
        """The connection to ``address``, for the caller alone; errors as in `connection`."""
        connection = self.connection(address)
        del self._connections[address]
        return connection

    def keep(self, connection: BlockingConnection) -> None:
        """Give back the result of `take`, with no answer under way."""
        if self._connections.setdefault(connection.address, connection) is not connection:
            connection.close()

    def drop(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for address in list(self._connections):
            self.drop(address)
