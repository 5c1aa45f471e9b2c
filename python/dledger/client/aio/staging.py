"""Stages and transactions for asyncio."""

from __future__ import annotations

from collections import deque
from typing import Self

import pyarrow as pa

from dledger.client.aio.outflow import AsyncFlow
from dledger.client.aio.pipeline import stage_pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.appending import Appendable, records_of
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.operations.topics import known_topic
from dledger.client.protocol.results import Committed
from dledger.client.protocol.writing.pieces import check_alone, pieces_of
from dledger.client.protocol.writing.staging import (
    Batches,
    Consumed,
    StageTally,
    TransactionState,
    cut,
)
from dledger.errors import DLedgerError
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import Headers, Times, Values
from dledger.records.frames.frames import Rows, is_frame


@checked
class AsyncStage:
    """`dledger.client.Stage` under asyncio."""

    def __init__(
        self, core: ClientState, transport: AsyncTransport, *, stage_id: int, what: str
    ) -> None:
        self.stage_id = stage_id
        self._core = core
        self._run = transport.run
        self._tally = StageTally(stage_id, what)
        pipeline = stage_pipeline(core, transport, stage_id, what)
        self._flow = AsyncFlow(core, what, pipeline=pipeline, ready=deque())

    async def append_batch(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns; see `Stage.append_batch`."""
        info = await self._run(known_topic(self._core, topic, partition))
        await self.append_all([(info, partition, batch)])

    async def append_all(self, batches: Batches) -> None:
        """Stage all of these batches; see `Stage.append_all`."""
        call = object()
        for info, partition, piece in cut(self._core, batches):
            await self._flow.room()
            self._tally.check_open()
            self._check_failed()
            outgoing = self._tally.outgoing(self._core, info, partition, piece)
            # and there it stays if anything ends this call half way
            self._tally.under_way.add(call)
            self._flow.ready.append(outgoing)
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
        core: ClientState,
        transport: AsyncTransport,
        *,
        stage: AsyncStage | Committed,
        writer_id: str,
        sequence: int,
        consumed: Consumed | None = None,
    ) -> None:
        self._core = core
        self._run = transport.run
        self._state = TransactionState(
            core, stage, writer_id=writer_id, sequence=sequence, consumed=consumed
        )

    async def append(
        self,
        topic: str,
        values: Values | Rows,
        *,
        key: bytes | str | None = None,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
        evolve: bool = False,
    ) -> None:
        """Stage records; see `Transaction.append`."""
        if is_frame(values):
            check_alone(key=key, keys=keys, headers=headers, timestamps=timestamps)
            await self._stage_table(topic, partition, values, evolve)
            return
        records = records_of(
            self._core, values, key=key, keys=keys, headers=headers, timestamps=timestamps
        )
        await self._stage(topic, partition, records)

    async def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns; see `Transaction.append_batch`."""
        await self._stage(topic, partition, batch)

    async def _stage_table(
        self, topic: str, partition: int | None, data: Rows, evolve: bool
    ) -> None:
        state, core = self._state, self._core
        state.check_open()
        if state.stage is not None:
            found = await self._run(pieces_of(core, topic, data, partition, evolve))
            # all of it at once: what does not fit leaves nothing staged
            await state.stage.append_all([(found.info, at, rows) for at, rows in found.pieces])

    async def _stage(self, topic: str, partition: int | None, records: Appendable) -> None:
        state, core = self._state, self._core
        state.check_open()
        if state.stage is not None:
            info = core.seen_topic(topic, partition)
            if info is None:
                info = await self._run(known_topic(core, topic, partition))
            await state.stage.append_all(state.spread(info, partition, records))

    async def commit(self) -> Committed:
        """Give everything its offsets at once; see `Transaction.commit`."""
        state = self._state
        if state.result is None and state.stage is not None:
            state.check_commit()
            await self._run(state.commit(await state.stage.close()))
        return state.committed()

    async def abort(self) -> None:
        """Drop the staged batches. In a forked child the stage is the parent's, and stays."""
        state, stage = self._state, self._state.stage
        if state.over or stage is None or stage.forked:
            return
        stage.cancel()
        await self._run(state.abort(stage.stage_id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except DLedgerError:
            return  # it times out by itself; the error under way is the one to tell
