"""Writes at least once: records are appended as they come, and stay also when the rest of the write
fails."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress

import pyarrow as pa

from dledger.client import Appended, Client, Producer
from dledger.errors import DLedgerError, TopicRecreated
from dledger.protocol.messages.client import TopicInfo


class Appends:
    """Appends of one task to any topics, many at a time and in order in each partition; a retry of
    an append by the client doubles nothing, a repeat of the task does. To be used as a
    `dledger.client.blocking.staging.Stage`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._producers: dict[str, Producer] = {}
        self._failures: list[BaseException] = []
        self._lock = threading.Lock()

    def append_batch(self, topic: str | TopicInfo, partition: int, batch: pa.RecordBatch) -> None:
        """Append a batch; waits only while too much is in flight.

        Raises:
            TopicRecreated: the topic that was described is another one by now.
            DLedgerError: this batch or one before it was not appended, or (OutcomeUnknown) perhaps
                not.
        """
        self._check()
        name = topic if isinstance(topic, str) else topic.name
        producer = self._producers.get(name)
        if producer is None:
            producer = self._producers[name] = self._client.producer(name)
            if not isinstance(topic, str) and self._client.known_topic(name).log_id != topic.log_id:
                raise TopicRecreated(
                    f"topic {name!r} was deleted and created again while it was written: write "
                    f"again"
                )
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
        """End after a failure; appended records stay."""
        for producer in self._producers.values():
            with suppress(DLedgerError):
                producer.close()
