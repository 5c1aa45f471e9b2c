"""Reading a range of offsets from the replicas, blocking, one answer ahead of the reader while more
is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.client_state import ATTEMPT_MS
from dledger.client.protocol.reading.fetching import WAIT_MS, Fetcher
from dledger.client.protocol.reading.reading import Replicas, take
from dledger.errors import DLedgerError, ProtocolError, Unavailable
from dledger.net.connections.blocking import BlockingConnection, Lost
from dledger.protocol.messages.fetched import FetchResponse

if TYPE_CHECKING:
    from dledger.client.protocol.reading.fetched import FetchedBodies


class BlockingReader:
    """Fetches over one connection of a transport."""

    def __init__(
        self,
        transport: BlockingTransport,
        fetcher: Fetcher,
        *,
        replicas: Replicas,
    ) -> None:
        self._transport = transport
        self._fetcher = fetcher
        self._replicas = replicas
        self._connection: BlockingConnection | None = None
        self._asked = False

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
        finally:
            self._finish()

    def _next(self) -> FetchedBodies:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._transport.take(self._replicas.address)
            if not self._asked:
                connection.send(self._fetcher.request(), deadline=_soon())
            _, answer, payload = connection.receive(_soon())
            if not isinstance(answer, FetchResponse):
                raise ProtocolError(f"{type(answer).__name__} where FetchResponse belongs")
        except (Lost, ProtocolError) as error:
            raise Unavailable(f"{self._replicas.address}: {error}") from None
        self._asked = False
        bodies = take(self._fetcher, answer, payload)
        # at the end of the log the caller has the records first, and the node its rest
        if not self._fetcher.done and self._fetcher.position < answer.end_offset:
            try:
                connection.send(self._fetcher.request(), deadline=_soon())
                self._asked = True
            except Lost:
                self._drop()  # the received bodies are good; the next turn connects again
        return bodies

    def _drop(self) -> None:
        self._asked = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish(self) -> None:
        if self._connection is not None and not self._asked:
            self._transport.keep(self._connection)
            self._connection = None
        self._drop()


def _soon() -> float:
    return time.monotonic() + (ATTEMPT_MS + WAIT_MS) / 1000
