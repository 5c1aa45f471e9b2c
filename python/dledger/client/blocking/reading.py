"""Reading a range of offsets from the replicas, blocking, one answer ahead of the reader while more
is there: the next request leaves as soon as the head of an answer says where that ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.client_state import ATTEMPT_MS
from dledger.client.protocol.reading.fetching import WAIT_MS, Fetcher
from dledger.client.protocol.reading.reading import take, unanswered
from dledger.client.protocol.reading.replicas import Replicas
from dledger.client.protocol.reading.watching import ReplicaWatch
from dledger.errors import DLedgerError, ProtocolError
from dledger.net.connections.blocking import BlockingConnection, Lost
from dledger.protocol.messages.client import FetchRequest
from dledger.protocol.messages.fetched import FetchResponse

if TYPE_CHECKING:
    from dledger.client.protocol.reading.fetched import FetchedBodies

NOWHERE: Final = -1


class BlockingReader:
    """Fetches over one connection of a transport."""

    def __init__(
        self,
        transport: BlockingTransport,
        fetcher: Fetcher,
        *,
        replicas: Replicas,
        watch: ReplicaWatch | None = None,
    ) -> None:
        self._transport = transport
        self._fetcher = fetcher
        self._replicas = replicas
        self._watch = watch
        self._sent_ms = 0.0
        """When the last request left, where there is a watch."""
        self._connection: BlockingConnection | None = None
        self._asked: int | None = None
        """Where the request begins that is under way behind the answer that is being received, or
        was taken last; NOWHERE where it did not leave."""

    def __iter__(self) -> Iterator[FetchedBodies]:
        try:
            while not self._fetcher.done:
                try:
                    bodies = self._next()
                except DLedgerError as error:
                    self._drop()
                    time.sleep(self._replicas.failed(error))
                    continue
                if bodies:
                    yield bodies
                self._replicas.worked()
                if self._watch is not None:
                    self._look(self._watch)
        finally:
            self._finish()

    def _look(self, watch: ReplicaWatch) -> None:
        """Between two answers: the next question may be another replica's."""
        if (look := watch.due()) is not None:
            self._transport.run(look)
        if self._asked is None and watch.moves():
            self._finish()

    def _next(self) -> FetchedBodies:
        try:
            answer, payload, sent_ms = self._receive()
        except (Lost, ProtocolError) as error:
            raise unanswered(self._fetcher, self._replicas.address, error) from None
        bodies = take(self._fetcher, answer, payload)
        if self._watch is not None:
            self._watch.took(answer.end_offset, sent_ms)
        if self._asked not in (None, self._fetcher.position):
            self._drop()  # it did not leave, or the answer before it was not sound
        return bodies

    def _receive(self) -> tuple[FetchResponse, memoryview, float]:
        """An answer, and when it was asked for."""
        if self._connection is None:
            self._connection = self._transport.take(self._replicas.address)
        if self._asked is None:
            self._send(self._connection, self._fetcher.request())
        self._asked, sent_ms = None, self._sent_ms
        _, answer, payload = self._connection.receive(_soon(), self._ask_on)
        if not isinstance(answer, FetchResponse):
            raise ProtocolError(f"{type(answer).__name__} where FetchResponse belongs")
        if self._asked is None:
            self._ask_on(answer)
        return answer, payload, sent_ms

    def _send(self, connection: BlockingConnection, request: FetchRequest) -> None:
        connection.send(request, deadline=_soon())
        if self._watch is not None:
            self._sent_ms = self._watch.now_ms()

    def _ask_on(self, answer: object) -> None:
        """Ask for what is behind an answer, before all of it is here: the node reads that while
        this one is received, checked and used."""
        if isinstance(answer, FetchResponse) and self._connection is not None:
            request = self._fetcher.request_behind(answer)
            if request is None or (self._watch is not None and self._watch.wants_to_move()):
                return
            self._asked = NOWHERE
            with suppress(Lost):  # the answer may be whole all the same
                self._send(self._connection, request)
                self._asked = request.start_offset

    def _drop(self) -> None:
        self._asked = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish(self) -> None:
        if self._connection is not None and self._asked is None:
            self._transport.keep(self._connection)
            self._connection = None
        self._drop()


def _soon() -> float:
    return time.monotonic() + (ATTEMPT_MS + WAIT_MS) / 1000
