"""Pipelined appends, stages and transactions under asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from dledger import forks
from dledger.client.aio.pipeline import Pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.staging import Batches, Tally, cut
from dledger.client.protocol.appending import partitions_of, place
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.batching import Outgoing
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.in_flight_window import Done, Window
from dledger.client.protocol.record_accumulator import RecordAccumulator, make_item
from dledger.client.protocol.requests import init_producer
from dledger.client.protocol.results import Appended, Committed
from dledger.client.protocol.session import ProducerSession
from dledger.errors import ConfigError, DLedgerError, TransactionError
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values
from dledger.records.body.records import make_records

if TYPE_CHECKING:
    from dledger.client.aio.client import AsyncClient


class AsyncFlow:
    """Batches into a pipeline, no more than fit at a time; `dledger.client.blocking.outflow` for
    one loop."""

    def __init__(
        self, core: ClientState, what: str, pipeline: Pipeline, ready: deque[Outgoing]
    ) -> None:
        self.pipeline = pipeline
        self._what = what
        self._born = forks.generation
        self.ready = ready
        self._config = core.config
        self._count = 0
        self._bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that it belongs to."""
        return self._born != forks.generation

    def check(self) -> None:
        """Raises ForkedClient in a child of the process that it belongs to."""
        forks.check_born_here(self._born, self._what)

    def take(self) -> None:
        """Send what is ready, whether there is room or not."""
        while self.ready:
            outgoing = self.ready.popleft()
            outgoing.refuse()
            for item in outgoing.items:
                size = len(item.header) + len(item.payload)
                self._count += 1
                self._bytes += size
                item.done = self._freeing(size, item.done)
                self.pipeline.push(item)

    def _freeing(self, size: int, done: Done) -> Done:
        def answered(result: int | DLedgerError) -> None:
            done(result)
            self._count -= 1
            self._bytes -= size
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

        return answered

    async def room(self) -> None:
        """Wait until less than the limits is in flight. Raises as `check`."""
        self.check()
        config = self._config
        await self._wait(
            lambda: self._count < config.max_in_flight and self._bytes < config.max_in_flight_bytes
        )

    async def empty(self) -> None:
        """Wait until everything is answered. Raises as `check`."""
        self.check()
        await self._wait(lambda: not self._count)

    async def _wait(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    async def close(self) -> None:
        await self.empty()
        await self.pipeline.close()


class AsyncProducer:
    """`dledger.client.Producer` under asyncio: ``await append(...)`` waits for room and gives a
    future."""

    def __init__(
        self,
        core: ClientState,
        channel: AsyncTransport,
        info: TopicInfo,
        partition: int | None,
        name: str,
        session: ProducerSession,
    ) -> None:
        self.name = name
        self._linger_s = core.config.linger_ms / 1000
        self._intake = RecordAccumulator(core, info, partition)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        window = Window(f"append to {info.name!r}")
        window.opened(session)
        pipeline = Pipeline(core, channel, window, lambda: channel.run(init_producer(core, name)))
        self._flow = AsyncFlow(
            core, f"the producer of topic {info.name!r}", pipeline, self._intake.ready
        )

    async def append(
        self,
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> asyncio.Future[Appended]:
        """Append records, as `AsyncClient.append`; the future has their place when a quorum has
        them on disk.

        Raises:
            RecordTooLarge, ConfigError: nothing was taken. Everything else comes through the
                future.
        """
        plain = headers is None and timestamps is None
        if not (plain and isinstance(values, bytes) and (keys is None or isinstance(keys, bytes))):
            records = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
            return await self._append(self._intake.place(partition, keys), records, now=False)
        at = self._intake.place(partition, keys)
        self._intake.check_value(values, keys)
        answer = _Answer()
        await self._ready()
        self._intake.add_value(answer, at, values, keys)
        self._taken()
        return answer

    async def append_batch(
        self, partition: int | None, batch: pa.RecordBatch
    ) -> asyncio.Future[Appended]:
        """Append a batch of record columns now, behind what was appended before it; see
        `append`."""
        return await self._append(self._intake.place(partition, None), batch, now=True)

    async def _append(self, at: int, batch: pa.RecordBatch, now: bool) -> asyncio.Future[Appended]:
        answer = _Answer()
        pieces = self._intake.pieces(batch)
        pending = self._intake.pending(answer, at, batch.num_rows)
        for piece in pieces:
            await self._ready()
            self._intake.add_piece(pending, piece, now or len(pieces) > 1)
            self._taken()
        return answer

    async def _ready(self) -> None:
        self._check()
        await self._flow.room()
        self._check()  # it may have been closed meanwhile

    def _check(self) -> None:
        if self._closed:
            raise ConfigError("the producer is closed; open another one")

    def _taken(self) -> None:
        self._flow.take()
        if self._timer is None and not self._intake.empty:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._lingered)

    def _lingered(self) -> None:
        self._timer = None
        self._hand_over()

    def _hand_over(self) -> None:
        self._intake.hand_over()
        self._flow.take()

    async def flush(self) -> None:
        """Send what waits, and return when everything is answered. Failures are in the futures."""
        self._flow.check()
        self._hand_over()
        await self._flow.empty()

    async def close(self) -> None:
        """Flush, then end. Appending afterwards is an error. Each call returns only when everything
        is answered.

        In a forked child it only gives up the child's copy: what was appended is the parent's to
        send.
        """
        if self._flow.forked:
            return
        self._closed = True
        await self.flush()
        await self._flow.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Answer(asyncio.Future[Appended]):
    """Who waits may stop waiting; the records are on their way all the same."""

    def set_result(self, result: Appended, /) -> None:
        if not self.done():
            super().set_result(result)

    def set_exception(self, exception: type | BaseException, /) -> None:
        if not self.done():
            super().set_exception(exception)


@checked
class AsyncStage:
    """`dledger.client.Stage` under asyncio."""

    def __init__(
        self,
        client: AsyncClient,
        core: ClientState,
        channel: AsyncTransport,
        stage_id: int,
        what: str,
    ) -> None:
        self.stage_id = stage_id
        self._client = client
        self._core = core
        self._tally = Tally(stage_id, what)

        async def no_session() -> ProducerSession:
            raise TransactionError(f"{what}: the stage is gone")

        pipeline = Pipeline(core, channel, Window(what, ProducerSession(stage_id, 0)), no_session)
        self._flow = AsyncFlow(core, what, pipeline, deque())

    async def append_batch(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns; see `Stage.append_batch`."""
        info = await self._client.known_topic(topic, partition)
        await self.append_all([(info, partition, batch)])

    async def append_all(self, batches: Batches) -> None:
        """Stage all of these batches; see `Stage.append_all`."""
        call = object()
        for info, partition, piece in cut(self._core, batches):
            await self._flow.room()
            self._tally.check_open()
            self._check_failed()
            item = make_item(
                self._core,
                info,
                partition,
                piece,
                self._tally.counting(piece.num_rows),
                staged=True,
            )
            # and there it stays if anything ends this call half way
            self._tally.under_way.add(call)
            self._flow.ready.append(Outgoing((item,)))
            self._flow.take()
        self._tally.under_way.discard(call)

    def _check_failed(self) -> None:
        if self._tally.failed:
            self.cancel()
            raise self._tally.failed

    async def close(self) -> StageSum:
        """Wait until everything is staged; see `Stage.close`."""
        if self._tally.sum is None:
            self._tally.check_ended()
            await self._flow.empty()
            self._check_failed()
            self._tally.check_ended()
        total = self._tally.close()
        await self._flow.close()
        return total

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that the stage belongs to."""
        return self._flow.forked

    def cancel(self) -> None:
        """Stop sending; see `Stage.cancel`."""
        self._flow.pipeline.cancel()


@checked
class AsyncTransaction:
    """`dledger.client.Transaction` under asyncio."""

    def __init__(
        self,
        client: AsyncClient,
        core: ClientState,
        stage: AsyncStage | Committed,
        writer_id: str,
        sequence: int,
    ) -> None:
        self._client = client
        self._core = core
        self._stage = stage
        self._writer_id = writer_id
        self._sequence = sequence
        self._result: Committed | None = stage if isinstance(stage, Committed) else None
        self._over = False

    async def append(
        self,
        topic: str,
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> None:
        """Stage records; see `Transaction.append`."""
        batch = make_records(values, keys=keys, headers=headers, timestamps=timestamps)
        await self.append_batch(topic, partition, batch)

    async def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns; see `Transaction.append_batch`."""
        if self._over:
            raise TransactionError(f"transaction ({self._writer_id!r}, {self._sequence}) is over")
        if isinstance(self._stage, Committed):
            return
        info = await self._client.known_topic(topic, partition)
        spread = (
            partitions_of(batch, info.partitions)
            if partition is None and info.partitions > 1
            else None
        )
        if spread is None:
            await self._stage.append_all([(info, place(self._core, info, partition, batch), batch)])
        else:
            await self._stage.append_all(
                [(info, at, batch.take(rows)) for at, rows in sorted(spread.items())]
            )

    async def commit(self) -> Committed:
        """Give everything its offsets at once; see `Transaction.commit`."""
        if self._result is None:
            if self._over or isinstance(self._stage, Committed):
                raise TransactionError(
                    f"transaction ({self._writer_id!r}, {self._sequence}) was aborted"
                )
            total = await self._stage.close()
            self._result = await self._client.commit_transaction(
                self._writer_id, self._sequence, (total,)
            )
        self._over = True
        return self._result

    async def abort(self) -> None:
        """Drop what was staged. In a forked child it is the parent's, and stays."""
        if self._over or isinstance(self._stage, Committed) or self._stage.forked:
            return
        self._stage.cancel()
        await self._client.abort_transaction(
            self._writer_id, self._sequence, (self._stage.stage_id,)
        )
        self._over = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except DLedgerError:
            return  # it times out by itself; the error under way is the one to tell
