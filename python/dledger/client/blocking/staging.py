"""Stages and transactions for callers that wait: batches that get their offsets only when they are
committed."""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from dledger.client.aio.pipeline import Pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.outflow import Flow
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
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values, make_records

if TYPE_CHECKING:
    from dledger.records.digest import RowsSum


class StageOwner(Protocol):
    """The client that a stage or a transaction needs."""

    def known_topic(self, name: str, partition: int | None = None) -> TopicInfo:
        """See `Client.known_topic`."""

    def commit_transaction(
        self,
        writer_id: str,
        sequence: int,
        stages: Sequence[StageSum],
        rows: RowsSum | None = None,
        formerly: str = "",
    ) -> Committed:
        """See `Client.commit_transaction`."""

    def abort_transaction(
        self, writer_id: str, sequence: int, stage_ids: Sequence[int] = ()
    ) -> None:
        """See `Client.abort_transaction`."""


@checked
class Stage:
    """Batches on their way into one stage, many at a time, in order. Made by `Client.stage`.

    Attributes:
        stage_id: the stage's number in the group.
    """

    def __init__(
        self,
        client: StageOwner,
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
        self._lock = RLock()

        async def no_session() -> ProducerSession:
            raise TransactionError(f"{what}: the stage is gone")

        def make() -> Pipeline:
            return Pipeline(
                core,
                transport,
                window=InFlightWindow(what, ProducerSession(stage_id, 0)),
                open_session=no_session,
            )

        self._flow = Flow(core, what, make=make, ready=deque())

    def append_batch(self, topic: str | TopicInfo, partition: int, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns; waits only while too much is in flight. A batch over the
        group's max_body_bytes is cut. A topic given by its description is that very one, not
        another one of its name.

        Raises:
            ConfigError, RecordTooLarge: nothing of this batch is staged.
            DLedgerError: this batch or one before it is not staged, and the stage is of no use any
                more. So it is after any other exception, as a signal handler's, that ends this
                call.
        """
        info = topic if isinstance(topic, TopicInfo) else self._client.known_topic(topic, partition)
        self.append_all([(info, partition, batch)])

    def append_all(self, batches: Batches) -> None:
        """Stage all of these batches, each for a partition of a topic; errors as in
        `append_batch`."""
        call = object()
        for info, partition, piece in cut(self._core, batches):
            answered = self._tally.counting(piece.num_rows)
            outgoing = OutgoingBatch(
                (make_item(self._core, info, partition, piece, answered, staged=True),)
            )
            self._flow.wait_for_room()
            with self._lock:
                self._tally.check_open()
                self._check_failed()
                # and there it stays if anything ends this call half way
                self._tally.under_way.add(call)
                self._flow.ready.append(outgoing)
            self._flow.wake(outgoing.size)
        self._tally.under_way.discard(call)

    def _check_failed(self) -> None:
        if self._tally.failed:
            self._flow.cancel()
            raise self._tally.failed

    def close(self) -> StageSum:
        """Wait until everything is staged; returns the sum that a commit must name, a plain value
        that can be sent to the committer.

        Raises:
            TransactionError: a call of `append_batch` was interrupted, or has not ended.
            DLedgerError: not everything is staged.
        """
        self._flow.check()
        while (total := self._tally.sum) is None:
            self._tally.check_ended()
            self._flow.wait_empty()
            with self._lock:
                self._check_failed()
                if self._flow.empty and not self._tally.under_way:
                    self._tally.close()
        self._flow.close()
        return total

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that the stage belongs to."""
        return self._flow.forked

    def cancel(self) -> None:
        """Stop sending. The staged batches are dropped when the transaction is aborted or the stage
        times out."""
        self._flow.cancel()


@checked
class Transaction:
    """Appends to any topics that become visible together, or not at all. Made by
    `Client.transaction`.

    As a context manager it commits at the end, and aborts when an error leaves the block. When
    (writer_id, sequence) is committed already, appends do nothing and `commit` gives the first
    commit's result: doing all of it again is safe.
    """

    def __init__(
        self,
        client: StageOwner,
        core: ClientState,
        *,
        stage: Stage | Committed,
        writer_id: str,
        sequence: int,
    ) -> None:
        self._client = client
        self._stage = None if isinstance(stage, Committed) else stage
        self._state = TransactionState(core, writer_id, sequence=sequence)
        self._state.result = stage if isinstance(stage, Committed) else None

    def append(
        self,
        topic: str,
        values: Values,
        *,
        keys: Values | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamps: Times | None = None,
    ) -> None:
        """Stage records, as `Client.append` appends them; keys may belong to several partitions."""
        self.append_batch(
            topic,
            partition,
            make_records(values, keys=keys, headers=headers, timestamps=timestamps),
        )

    def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns.

        Raises:
            ConfigError, RecordTooLarge: nothing of this batch is staged.
            DLedgerError: the transaction cannot be committed any more. So it is after any other
                exception, as a signal handler's, that ends this call: a part of the batch may be
                staged.
        """
        self._state.check_open()
        if self._stage is not None:
            info = self._client.known_topic(topic, partition)
            self._stage.append_all(self._state.spread(info, partition, batch))

    def commit(self) -> Committed:
        """Give everything its offsets at once.

        Raises:
            TransactionError: the stage timed out, or an append was interrupted; nothing was
                committed.
            OutcomeUnknown: repeat the whole transaction with the same writer id and sequence.
        """
        state = self._state
        if state.result is None and self._stage is not None:
            state.check_commit()
            total = self._stage.close()
            state.result = self._client.commit_transaction(
                state.writer_id, state.sequence, (total,)
            )
        return state.committed()

    def abort(self) -> None:
        """Drop the staged batches. In a forked child the stage is the parent's, and stays."""
        state, stage = self._state, self._stage
        if state.over or stage is None or stage.forked:
            return
        stage.cancel()
        self._client.abort_transaction(state.writer_id, state.sequence, (stage.stage_id,))
        state.over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except DLedgerError:
            return  # it times out by itself; the error under way is the one to tell
