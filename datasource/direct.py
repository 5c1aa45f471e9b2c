"""Writes at least once: records are appended as they come, and stay whatever becomes of the rest of the write."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress

import pyarrow as pa

from dledger.client import Appended, Client, Producer
from dledger.errors import DLedgerError


class Appends:
    """Appends of one task to any topics, many at a time and in order in each partition; a retry of an append by the
    client doubles nothing, a repeat of the task does. To be used as a `dledger.client.staging.Stage`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._producers: dict[str, Producer] = {}
        self._failures: list[BaseException] = []
        self._lock = threading.Lock()

    def append_batch(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        """Append a batch; waits only while too much is in flight.

        Raises:
            DLedgerError: this batch or one before it was not appended, or (OutcomeUnknown) perhaps not.
        """
        self._check()
        producer = self._producers.get(topic)
        if producer is None:
            producer = self._producers[topic] = self._client.producer(topic)
        producer.append_batch(partition, batch).add_done_callback(self._done)

    def _done(self, future: Future[Appended]) -> None:
        error = future.exception()
        if error is not None:
            with self._lock:
                self._failures.append(error)

    def _check(self) -> None:
        with self._lock:
            if self._failures:
                raise self._failures[0]

    def close(self) -> None:
        """Wait until everything is appended.

        Raises:
            DLedgerError: not everything is.
        """
        for producer in self._producers.values():
            producer.close()
        self._check()

    def cancel(self) -> None:
        """End after a failure; what was appended stays."""
        for producer in self._producers.values():
            with suppress(DLedgerError):
                producer.close()


__all__ = ["Appends"]
