"""Pipelined appends under asyncio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Self, overload

import pyarrow as pa

from dledger.client.aio.outflow import AsyncFlow
from dledger.client.aio.pipeline import producer_pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.appending import one_with_key
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.operations.transaction_requests import OpenedProducer
from dledger.client.protocol.results import Appended, OnDelivery
from dledger.client.protocol.writing.pieces import check_alone, pieces_of
from dledger.client.protocol.writing.record_accumulator import CLOSED, Addition, RecordAccumulator
from dledger.client.protocol.writing.record_future import RecordHandle, hand_on
from dledger.errors import ConfigError, DLedgerError
from dledger.records.body.build import Headers, Times, Values
from dledger.records.frames.frames import Rows, is_frame
from dledger.tracing import API, begin_append


class AsyncProducer:
    """`dledger.client.Producer` under asyncio: ``await append(...)`` waits for room and gives a
    future."""

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        opened: OpenedProducer,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> None:
        self.name = opened.name
        self._core = core
        self._run = transport.run
        self._info = opened.info
        self._linger_s = core.config.linger_ms / 1000
        self._accumulator = RecordAccumulator(
            core, opened.info, partition=partition, on_delivery=on_delivery
        )
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        pipeline = producer_pipeline(core, transport, opened)
        what = f"the producer of topic {opened.info.name!r}"
        self._flow = AsyncFlow(core, what, pipeline=pipeline, ready=self._accumulator.ready)

    @overload
    async def append(  # type: ignore[overload-overlap]  # a buffer of another type gives a future
        self,
        values: bytes,
        *,
        key: bytes | None = None,
        keys: bytes | None = None,
        partition: int | None = None,
    ) -> AsyncRecordFuture: ...

    @overload
    async def append(
        self,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> asyncio.Future[Appended]: ...

    async def append(
        self,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> AsyncRecordFuture | asyncio.Future[Appended]:
        """Append records, as `AsyncClient.append`; the future has their place when a quorum has
        them on disk. For a single value it is a handle, which is awaited like one and costs far
        less.

        Raises:
            RecordTooLarge, ConfigError, SchemaMismatch: nothing was taken. Everything else comes
                through the future.
        """
        if key is not None:
            values, keys = one_with_key(values, key, keys)
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
            return await self._append_value(values, keys, partition)
        if is_frame(values):
            check_alone(keys=keys, headers=headers, timestamps=timestamps)
            return await self._append_table(values, partition, evolve)
        answer = _Answer()
        additions = self._accumulator.values(
            answer,
            values,
            keys=keys,
            partition=partition,
            headers=headers,
            timestamps=timestamps,
        )
        await self._take(additions)
        if span is not None:
            span.follow(answer)
        return answer

    async def append_batch(
        self, partition: int | None, batch: pa.RecordBatch
    ) -> asyncio.Future[Appended]:
        """Append a batch of record columns now, behind the records appended before it; see
        `append`."""
        answer = _Answer()
        await self._take(self._accumulator.batch(answer, partition, batch))
        return answer

    async def _append_table(
        self, data: Rows, partition: int | None, evolve: bool
    ) -> asyncio.Future[Appended]:
        at = self._accumulator.partition(partition)
        found = await self._run(pieces_of(self._core, self._info, data, at, evolve))
        answer = _Answer()
        # all of it is looked at first: what does not fit leaves nothing behind
        await self._take(self._accumulator.pieces(answer, list(found.pieces)))
        return answer

    async def _append_value(
        self, value: bytes, key: bytes | None, partition: int | None
    ) -> AsyncRecordFuture:
        accumulator = self._accumulator
        at = accumulator.place(partition, key)
        if accumulator.has_open(at):  # it joins records that had room
            self._flow.check()
            self._check()
        else:
            await self._room()
        batch, number, size = accumulator.add_value(at, value, key)
        if size:
            self._flow.take()
        self._linger()
        return AsyncRecordFuture(batch, number)

    async def _take(self, additions: Sequence[Addition]) -> None:
        for add in additions:
            await self._room()
            add()
            self._flow.take()
            self._linger()

    async def _room(self) -> None:
        self._check()
        await self._flow.room()
        self._check()  # it may have been closed meanwhile

    def _linger(self) -> None:
        """See to it that waiting records go out in time."""
        if self._timer is None and not self._accumulator.empty:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._lingered)

    def _check(self) -> None:
        if self._closed:
            raise ConfigError(CLOSED)

    def _lingered(self) -> None:
        self._timer = None
        self._hand_over()

    def _hand_over(self) -> None:
        self._accumulator.hand_over()
        self._flow.take()

    async def flush(self) -> None:
        """Send the waiting records, and return when all are answered. Failures are in the
        futures."""
        self._flow.check()
        self._hand_over()
        await self._flow.empty()

    async def close(self) -> None:
        """Flush, then end. Appending afterwards is an error. Each call returns only when all
        records are answered.

        In a forked child it only gives up the child's copy: the parent sends its records.
        """
        if self._flow.forked:
            return
        self._closed = True
        await self.flush()
        await self._flow.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncRecordFuture(RecordHandle):
    """`dledger.client.RecordFuture` under asyncio: it is awaited, any number of times."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Appended]:
        if not self.done():
            yield from self.future()
        return self._known_result()

    def result(self) -> Appended:
        """The place.

        Raises:
            DLedgerError: the append failed.
            asyncio.InvalidStateError: the outcome is not known yet.
        """
        self._check()
        return self._known_result()

    def exception(self) -> DLedgerError | None:
        """The error of the append, or None; raises as `result` where that is not known yet."""
        self._check()
        return self._known_exception()

    def _check(self) -> None:
        if not self.done():
            raise asyncio.InvalidStateError("the append is not answered yet: await this")

    def future(self) -> asyncio.Future[Appended]:
        """The same as an `asyncio.Future`."""
        answer = _Answer()
        self.add_done_callback(partial(hand_on, answer))
        return answer


class _Answer(asyncio.Future[Appended]):
    """A caller may stop waiting; the records are on their way all the same."""

    def set_result(self, result: Appended, /) -> None:
        if not self.done():
            super().set_result(result)

    def set_exception(self, exception: type | BaseException, /) -> None:
        if not self.done():
            super().set_exception(exception)
