"""Stages and transactions for callers that wait: batches that get their offsets only when they are
committed."""

from __future__ import annotations

from _thread import RLock
from collections import deque
from functools import partial
from typing import Self

import pyarrow as pa

from dledger.client.aio.pipeline import stage_pipeline
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.outflow import Flow
from dledger.client.protocol.appending import Appendable, records_of
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, OperationRunner
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
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values
from dledger.records.frames.frames import Rows, is_frame


@checked
class Stage:
    """Batches on their way into one stage, many at a time, in order. Made by `Client.stage`.

    Attributes:
        stage_id: the stage's number in the group.
    """

    def __init__(
        self,
        core: ClientState,
        run: OperationRunner,
        *,
        transport: AsyncTransport,
        stage_id: int,
        what: str,
    ) -> None:
        self.stage_id = stage_id
        self._core = core
        self._run = run
        self._tally = StageTally(stage_id, what)
        self._lock = RLock()
        make = partial(stage_pipeline, core, transport, stage_id, what)
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
        if isinstance(topic, str):
            topic = self._run(known_topic(self._core, topic, partition))
        self.append_all([(topic, partition, batch)])

    def append_all(self, batches: Batches) -> None:
        """Stage all of these batches, each for a partition of a topic; errors as in
        `append_batch`."""
        call = object()
        for info, partition, piece in cut(self._core, batches):
            outgoing = self._tally.outgoing(self._core, info, partition, piece)
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
        core: ClientState,
        run: OperationRunner,
        *,
        stage: Stage | Committed,
        writer_id: str,
        sequence: int,
        consumed: Consumed | None = None,
    ) -> None:
        self._core = core
        self._run = run
        self._state = TransactionState(
            core, stage, writer_id=writer_id, sequence=sequence, consumed=consumed
        )

    def append(
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
        """Stage records, as `Client.append` appends them; keys may belong to several partitions."""
        if is_frame(values):
            check_alone(key=key, keys=keys, headers=headers, timestamps=timestamps)
            self._stage_table(topic, partition, values, evolve)
            return
        records = records_of(
            self._core, values, key=key, keys=keys, headers=headers, timestamps=timestamps
        )
        self._stage(topic, partition, records)

    def append_batch(self, topic: str, partition: int | None, batch: pa.RecordBatch) -> None:
        """Stage a batch of record columns.

        Raises:
            ConfigError, RecordTooLarge: nothing of this batch is staged.
            DLedgerError: the transaction cannot be committed any more. So it is after any other
                exception, as a signal handler's, that ends this call: a part of the batch may be
                staged.
        """
        self._stage(topic, partition, batch)

    def _stage_table(self, topic: str, partition: int | None, data: Rows, evolve: bool) -> None:
        state, core = self._state, self._core
        state.check_open()
        if state.stage is not None:
            found = self._run(pieces_of(core, topic, data, partition, evolve))
            # all of it at once: what does not fit leaves nothing staged
            state.stage.append_all([(found.info, at, rows) for at, rows in found.pieces])

    def _stage(self, topic: str, partition: int | None, records: Appendable) -> None:
        state, core = self._state, self._core
        state.check_open()
        if state.stage is not None:
            info = core.seen_topic(topic, partition)
            if info is None:
                info = self._run(known_topic(core, topic, partition))
            state.stage.append_all(state.spread(info, partition, records))

    def commit(self) -> Committed:
        """Give everything its offsets at once.

        Raises:
            TransactionError: the stage timed out, or an append was interrupted; nothing was
                committed.
            OutcomeUnknown: repeat the whole transaction with the same writer id and sequence.
        """
        state = self._state
        if state.result is None and state.stage is not None:
            state.check_commit()
            self._run(state.commit(state.stage.close()))
        return state.committed()

    def abort(self) -> None:
        """Drop the staged batches. In a forked child the stage is the parent's, and stays."""
        state, stage = self._state, self._state.stage
        if state.over or stage is None or stage.forked:
            return
        stage.cancel()
        self._run(state.abort(stage.stage_id))

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
