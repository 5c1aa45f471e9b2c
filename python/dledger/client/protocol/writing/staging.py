"""Stages, as far as they need neither socket nor thread: sums, and batches of the right size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from dledger.client.protocol.appending import (
    Appendable,
    check_kind,
    is_typed_batch,
    place,
    spread,
)
from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.group_membership import commit_consumed_transaction
from dledger.client.protocol.operations.transaction_requests import (
    abort_transaction,
    commit_transaction,
)
from dledger.client.protocol.results import Committed
from dledger.client.protocol.writing.batching import OutgoingBatch
from dledger.client.protocol.writing.in_flight_window import Done
from dledger.client.protocol.writing.record_accumulator import make_item, max_body
from dledger.errors import DLedgerError, TransactionError
from dledger.protocol.messages.catalog_commands import CommitConsumed, StageSum
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import make_records
from dledger.records.body.one_record import OneRecord
from dledger.records.body.sizer import OVERHEAD, split_batch

S = TypeVar("S")


class StageTally:
    """The batches of a stage: how many are there, and whether that is all of them.

    Attributes:
        under_way: calls that have handed over some of their batches, and not all. One that was
            ended half way stays.
        sum: the sum that a commit must name, from `close` on.
    """

    def __init__(self, stage_id: int, what: str) -> None:
        self.under_way: set[object] = set()
        self.sum: StageSum | None = None
        self.failed: DLedgerError | None = None
        self._stage_id = stage_id
        self._what = what
        self._batches = 0
        self._records = 0

    def counting(self, records: int) -> Done:
        """The callback for the answer of a batch of ``records``."""

        def answered(result: int | DLedgerError) -> None:
            if isinstance(result, DLedgerError):
                self.failed = self.failed or result
            else:
                self._batches += 1
                self._records += records

        return answered

    def outgoing(
        self, core: ClientState, info: TopicInfo, partition: int, records: Appendable
    ) -> OutgoingBatch:
        """A batch of the stage as it goes out; its answer is counted."""
        answered = self.counting(records.num_rows)
        return OutgoingBatch((make_item(core, info, partition, records, answered, staged=True),))

    def check_open(self) -> None:
        """Raises `TransactionError` behind `close`."""
        if self.sum is not None:
            raise TransactionError(f"{self._what}: the stage is closed")

    def check_ended(self) -> None:
        """Raises `TransactionError` where a part of an append may be missing."""
        if self.under_way:
            raise TransactionError(
                f"{self._what}: a call that stages records was interrupted or has not ended, so "
                "that a part of them may be missing: abort, and do all of it again; the same "
                "writer id and sequence are safe"
            )

    def close(self) -> StageSum:
        """Everything is answered: no batch is taken any more. Asked for again it is the same."""
        if self.sum is None:
            self.sum = StageSum(
                stage_id=self._stage_id, batches=self._batches, records=self._records
            )
        return self.sum


Batches = Sequence[tuple[TopicInfo, int, Appendable]]
"""Batches and the partitions of topics that they are for."""


def cut(core: ClientState, batches: Batches) -> Batches:
    """Batches that a group takes, in order.

    Raises:
        ConfigError, RecordTooLarge: one of them cannot be stored.
    """
    for info, partition, batch in batches:
        place(core, info, partition, batch)
    return [
        (info, partition, piece)
        for info, partition, batch in batches
        for piece in _pieces(batch, max_body(core))
    ]


def _pieces(batch: Appendable, most_bytes: int) -> Iterable[Appendable]:
    if isinstance(batch, OneRecord):
        if len(batch.value) + len(batch.key or b"") <= most_bytes - OVERHEAD:
            return (batch,)
        batch = make_records(batch.value, keys=batch.key)
    return split_batch(batch, most_bytes)


Consumed = Callable[[], CommitConsumed]
"""Gives the offsets that a consumer's transaction commits."""


class TransactionState(Generic[S]):
    """How far a transaction is. The shells stage, commit and abort; this says whether they may.

    Args:
        opened: its stage, or the result of an earlier commit.
        consumed: of a consumer's transaction.

    Attributes:
        stage: its stage; None where it was committed before.
        result: of the commit, from then on; that of the first one where it was committed before.
        over: it was committed or aborted.
    """

    def __init__(
        self,
        core: ClientState,
        opened: S | Committed,
        *,
        writer_id: str,
        sequence: int,
        consumed: Consumed | None = None,
    ) -> None:
        self.writer_id = writer_id
        self.sequence = sequence
        self.stage = None if isinstance(opened, Committed) else opened
        self.result = opened if isinstance(opened, Committed) else None
        self.over = False
        self._core = core
        self._consumed = consumed

    def check_open(self) -> None:
        """Raises `TransactionError` behind the end of the transaction."""
        if self.over:
            raise TransactionError(f"transaction ({self.writer_id!r}, {self.sequence}) is over")

    def spread(self, info: TopicInfo, partition: int | None, batch: Appendable) -> Batches:
        """A batch, divided among the partitions that its keys belong to."""
        check_kind(info, is_typed_batch(batch))
        return [(info, at, rows) for at, rows in spread(self._core, info, partition, batch)]

    def check_commit(self) -> None:
        """Raises `TransactionError` where there is nothing to commit any more."""
        if self.over:
            raise TransactionError(f"transaction ({self.writer_id!r}, {self.sequence}) was aborted")

    def commit(self, total: StageSum) -> Operation[None]:
        """Commit the stage, which is closed."""
        if self._consumed is not None:
            self.result = yield from commit_consumed_transaction(
                self.writer_id, self.sequence, (total,), self._consumed()
            )
            return
        self.result = yield from commit_transaction(
            self._core, self.writer_id, self.sequence, (total,)
        )

    def abort(self, stage_id: int) -> Operation[None]:
        """Drop the stage."""
        yield from abort_transaction(self._core, self.writer_id, self.sequence, (stage_id,))
        self.over = True

    def committed(self) -> Committed:
        """The result; nothing is staged any more."""
        assert self.result is not None
        self.over = True
        return self.result
