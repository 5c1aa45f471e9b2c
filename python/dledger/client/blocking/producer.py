"""Pipelined appends for callers that wait: a thread-safe shell around a `Pipeline` on the
background loop."""

from __future__ import annotations

import sys
from _thread import RLock
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Self, overload

import pyarrow as pa

from dledger import forks
from dledger.client.aio.pipeline import producer_pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.outflow import Flow
from dledger.client.blocking.waiting import Answer, RecordFuture
from dledger.client.protocol.appending import one_with_key
from dledger.client.protocol.client_state import ClientState, OperationRunner
from dledger.client.protocol.operations.transaction_requests import OpenedProducer
from dledger.client.protocol.results import Appended, OnDelivery
from dledger.client.protocol.writing.pieces import check_alone, pieces_of
from dledger.client.protocol.writing.record_accumulator import (
    CLOSED,
    RECORD,
    Addition,
    RecordAccumulator,
)
from dledger.errors import ConfigError
from dledger.records.body.build import Headers, Times, Values
from dledger.records.frames.frames import Rows, is_frame
from dledger.tracing import API, begin_append


class Producer:
    """Appends many batches at a time to one topic, each once and in order in its partition, over
    changes of leader.

    Small appends are grouped: a batch goes out when it has ``batch_bytes`` or is ``linger_ms`` old.
    When ``max_in_flight`` batches or ``max_in_flight_bytes`` wait for their answers, appending
    waits. Threads may share it.

    Made by `Client.producer`.
    """

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        run: OperationRunner,
        opened: OpenedProducer,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> None:
        self.name = opened.name
        self._core = core
        self._run = run
        self._info = opened.info
        self._linger_s = core.config.linger_ms / 1000
        self._accumulator = RecordAccumulator(
            core, opened.info, partition=partition, on_delivery=on_delivery
        )
        self._lock = RLock()
        self._born = forks.generation
        self._lingering = False
        self._closed = False
        make = partial(producer_pipeline, core, transport, opened)
        self._flow = Flow(
            core,
            f"the producer of topic {opened.info.name!r}",
            make=make,
            ready=self._accumulator.ready,
        )

    @overload
    def append(  # type: ignore[overload-overlap]  # a buffer of another type gives a future
        self,
        values: bytes,
        *,
        key: bytes | None = None,
        keys: bytes | None = None,
        partition: int | None = None,
    ) -> RecordFuture: ...

    @overload
    def append(
        self,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> Future[Appended]: ...

    def append(
        self,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> RecordFuture | Future[Appended]:
        """Append records, as `Client.append`; the future has their place when a quorum has them on
        disk. For a single value it is a handle with the same methods, which costs far less.

        An exception of a signal handler that ends this call leaves it open whether its records were
        taken; the records of earlier calls go out all the same.

        Raises:
            RecordTooLarge, ConfigError, SchemaMismatch: no record was taken. All other errors come
                through the future.
        """
        accumulator = self._accumulator
        if (
            accumulator.joined is not None
            and type(values) is bytes
            and key is keys is partition is headers is timestamps is None
            and API not in sys.modules
            and self._born == forks.generation
        ):
            with self._lock:  # what is done for each record is written out
                joined = accumulator.joined
                if joined is not None:
                    accumulator.joined = None  # a signal handler does not come in between
                    queue, batch = joined
                    size = queue.size + len(values) + RECORD
                    if size <= accumulator.joins_to:
                        queue.size = size
                        records = batch.records
                        record = RecordFuture.__new__(RecordFuture)
                        record._batch, record._at = batch, len(records)
                        records.append(values)
                        accumulator.joined = joined
                        return record
        if key is not None:
            values, keys = one_with_key(values, key, keys)
        return self._append(values, keys, partition, headers, timestamps, evolve)

    def _append(
        self,
        values: Values | Rows,
        keys: Values | None,
        partition: int | None,
        headers: Headers | None,
        timestamps: Times | None,
        evolve: bool,
    ) -> RecordFuture | Future[Appended]:
        span = None
        if API in sys.modules and not is_frame(values):
            span = begin_append(self._info.name, headers)
            headers = headers if span is None else span.headers
        if (
            isinstance(values, bytes)
            and (keys is None or isinstance(keys, bytes))
            and headers is None
            and timestamps is None
        ):
            return self._append_value(values, keys, partition)
        if is_frame(values):
            check_alone(keys=keys, headers=headers, timestamps=timestamps)
            return self._append_table(values, partition, evolve)
        answer: Answer[Appended] = Answer()
        additions = self._accumulator.values(
            answer,
            values,
            keys=keys,
            partition=partition,
            headers=headers,
            timestamps=timestamps,
        )
        self._take(additions)
        if span is not None:
            span.follow(answer)
        return answer

    def append_batch(self, partition: int | None, batch: pa.RecordBatch) -> Future[Appended]:
        """Append a batch of record columns now, behind the records appended before it; see
        `append`."""
        answer: Answer[Appended] = Answer()
        self._take(self._accumulator.batch(answer, partition, batch))
        return answer

    def _append_table(self, data: Rows, partition: int | None, evolve: bool) -> Future[Appended]:
        at = self._accumulator.partition(partition)
        found = self._run(pieces_of(self._core, self._info, data, at, evolve))
        answer: Answer[Appended] = Answer()
        # all of it is looked at first: what does not fit leaves nothing behind
        self._take(self._accumulator.pieces(answer, list(found.pieces)))
        return answer

    def _append_value(self, value: bytes, key: bytes | None, partition: int | None) -> RecordFuture:
        accumulator = self._accumulator
        at = accumulator.place(partition, key)
        if accumulator.has_open(at):  # it joins records that had room
            self._check_usable()
        else:
            self._ready()
        with self._lock:
            if self._closed:
                raise ConfigError(CLOSED)
            batch, number, size = accumulator.add_value(at, value, key)
            self._linger()
            accumulator.join(at, batch)  # only now: those that join see to no timer
        if size:
            self._flow.wake(size)
        return RecordFuture(batch, number)

    def _take(self, additions: Sequence[Addition]) -> None:
        for add in additions:
            self._ready()
            with self._lock:
                if self._closed:
                    raise ConfigError(CLOSED)
                size = add()
                self._linger()
            if size:
                self._flow.wake(size)

    def _ready(self) -> None:
        """Before the lock is taken: wait for room, with nothing held."""
        self._flow.wait_for_room()
        self._check_usable()

    def _check_usable(self) -> None:
        """Before the lock is taken: this process and this thread may take it."""
        if self._flow.forked:
            self._flow.check()
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise ConfigError(
                "a signal handler interrupted a call of this producer, and cannot use it: let the "
                "handler raise an exception or set a flag, and go on behind the call"
            )

    def _linger(self) -> None:
        """See to it that waiting records go out in time."""
        if not self._lingering and not self._accumulator.empty:
            self._flow.background.loop.call_soon_threadsafe(self._start_lingering)
            # only now: an interrupt before it costs a second timer, which finds no record
            self._lingering = True

    def _start_lingering(self) -> None:
        self._flow.background.loop.call_later(self._linger_s, self._lingered)

    def _lingered(self) -> None:
        if not self._lock.acquire(blocking=False):  # the loop waits for no thread of an append
            self._flow.background.loop.call_later(self._linger_s, self._lingered)
            return
        try:
            self._lingering = False
            self._accumulator.hand_over()
        finally:
            self._lock.release()
        self._flow.take()

    def flush(self) -> None:
        """Send the waiting records, and return when all are answered. Failures are in the
        futures."""
        self._flow.background.check_elsewhere()
        self._ready()
        with self._lock:
            self._accumulator.hand_over()
        self._flow.wait_empty()

    def close(self) -> None:
        """Flush, then end. Appending afterwards is an error. Each call returns only when all
        records are answered.

        In a forked child it only gives up the child's copy: the parent sends its records.
        """
        if self._flow.forked:
            return
        self._closed = True
        self.flush()
        self._flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
