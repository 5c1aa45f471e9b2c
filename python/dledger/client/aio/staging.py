"""Stages and transactions for asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from dledger.client.aio.outflow import AsyncFlow
from dledger.client.aio.pipeline import Pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.batching import OutgoingBatch
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.in_flight_window import InFlightWindow
from dledger.client.protocol.record_accumulator import make_item
from dledger.client.protocol.results import Committed
from dledger.client.protocol.session import ProducerSession
from dledger.client.protocol.staging import Batches, StageTally, TransactionState, cut
from dledger.errors import DLedgerError, TransactionError
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import Headers, Times, Values, make_records

if TYPE_CHECKING:
    from dledger.protocol.messages.client import TopicInfo
    from dledger.records.digest import RowsSum


class AsyncStageOwner(Protocol):
    """The client that a stage or a transaction needs."""

    async def known_topic(self, name: str, partition: int | None = None) -> TopicInfo:
        """See `Client.known_topic`."""

    async def commit_transaction(
        self,
        writer_id: str,
        sequence: int,
        stages: Sequence[StageSum],
        rows: RowsSum | None = None,
        formerly: str = "",
    ) -> Committed:
        """See `Client.commit_transaction`."""

    async def abort_transaction(
        self, writer_id: str, sequence: int, stage_ids: Sequence[int] = ()
    ) -> None:
        """See `Client.abort_transaction`."""


@checked
class AsyncStage:
    """`dledger.client.Stage` under asyncio."""

    def __init__(
        self,
        client: AsyncStageOwner,
        core: ClientState,
        *,
        transport: AsyncTransport,
        stage_id: int,
        what: str,
    ) -> None:
        self.stage_id = stage_id
        self._client = client
        self._core = core
        self._tally = StageTally(stage_id, what)

        async def no_session() -> ProducerSession:
            raise TransactionError(f"{what}: the stage is gone")

        pipeline = Pipeline(
            core,
            transport,
            window=InFlightWindow(what, ProducerSession(stage_id, 0)),
            open_session=no_session,
        )
        self._flow = AsyncFlow(core, what, pipeline=pipeline, ready=deque())

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
            self._flow.ready.append(OutgoingBatch((item,)))
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
        client: AsyncStageOwner,
        core: ClientState,
        *,
        stage: AsyncStage | Committed,
        writer_id: str,
        sequence: int,
    ) -> None:
        self._client = client
        self._stage = None if isinstance(stage, Committed) else stage
        self._state = TransactionState(core, writer_id, sequence=sequence)
        self._state.result = stage if isinstance(stage, Committed) else None

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
        self._state.check_open()
        if self._stage is not None:
            info = await self._client.known_topic(topic, partition)
            await self._stage.append_all(self._state.spread(info, partition, batch))

    async def commit(self) -> Committed:
        """Give everything its offsets at once; see `Transaction.commit`."""
        state = self._state
        if state.result is None and self._stage is not None:
            state.check_commit()
            total = await self._stage.close()
            state.result = await self._client.commit_transaction(
                state.writer_id, state.sequence, (total,)
            )
        return state.committed()

    async def abort(self) -> None:
        """Drop the staged batches. In a forked child the stage is the parent's, and stays."""
        state, stage = self._state, self._stage
        if state.over or stage is None or stage.forked:
            return
        stage.cancel()
        await self._client.abort_transaction(state.writer_id, state.sequence, (stage.stage_id,))
        state.over = True

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
