"""A member of a consumer group for callers that wait: a shell around a `ConsumerEngine` on the
background loop. Callbacks run in the caller's thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa

from dledger import forks
from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.aio.transport import AsyncTransport
from dledger.client.blocking.background_loop import Background, background
from dledger.client.blocking.staging import Stage, Transaction
from dledger.client.protocol.client_state import ClientState, OperationRunner
from dledger.client.protocol.consuming.callbacks import Callbacks
from dledger.client.protocol.consuming.partitions import HeldPartition, RecordChunk
from dledger.client.protocol.consuming.records import ConsumerRecord, as_consumed
from dledger.client.protocol.consuming.settings import (
    ALL,
    CHUNK,
    ConsumerSettings,
    TopicPartition,
)
from dledger.client.protocol.consuming.state import ShareChange
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.results import Committed
from dledger.errors import DLedgerError, OutcomeUnknown

T = TypeVar("T")


class Consumer(Iterator[ConsumerRecord]):
    """A member of a consumer group: it reads its share of the group's topics.

    Records are handed out by `poll`, by iteration, or as Arrow batches (`batches`), each partition
    in its order. Whoever asks for more has processed what was handed out before: then the callbacks
    are called, and commits by time are made. Heartbeats are sent beside, by another thread.

    A consumer is for one thread at a time. As a context manager it is closed at the end; when an
    error leaves the block, nothing is committed on the way out.

    Made by `Client.consumer`.
    """

    def __init__(
        self,
        core: ClientState,
        run: OperationRunner,
        *,
        transport: AsyncTransport,
        settings: ConsumerSettings,
        callbacks: Callbacks,
    ) -> None:
        self._core = core
        self._run_operation = run
        self._transport = transport
        self._callbacks = callbacks
        self._chunk: RecordChunk | None = None
        self._born = forks.generation
        self._background = background()
        self._engine = self._background.run(partial(_made, core, transport, settings))
        try:
            self._background.run(self._engine.open)
        except BaseException:
            _forget(self._background, self._engine)
            raise
        self._end = weakref.finalize(self, _forget, self._background, self._engine)
        self._end.atexit = False

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        what = f"the consumer of group {self._engine.settings.group!r}"
        forks.check_born_here(self._born, what)
        return self._background.run(work)

    # --- records

    def poll(
        self, timeout: float | None = None, *, max_records: int = CHUNK
    ) -> list[ConsumerRecord]:
        """The next records of one partition, up to ``max_records``; an empty list when there are
        none within ``timeout`` seconds (None: wait for them).

        Raises:
            ConsumerFenced: another consumer has joined under this one's ``instance_id``.
            OffsetOutOfRange: with ``auto_offset_reset="error"``: a partition's offset is not kept
                any more, or none is committed.
        """
        while (held := self._next(timeout)) is not None:
            if records := held.records(max_records):
                held.handed_out(len(records))
                return records
        return []

    def __next__(self) -> ConsumerRecord:
        """The next record, as soon as there is one; raises as `poll`."""
        while True:
            chunk = self._chunk
            if chunk is not None and chunk.is_live and self._engine.may_deliver:
                return chunk.next()
            held = self._next(None)
            if held is None:
                raise StopIteration
            self._chunk = RecordChunk(held, CHUNK)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches as they are stored, with ``topic``, ``partition``, ``offset``,
        ``timestamp``, ``key``, ``value`` and ``headers``, for ever; raises as `poll`."""
        return ConsumedBatches(self._batch)

    def _batch(self) -> pa.RecordBatch | None:
        held = self._next(None)
        if held is None:
            return None
        batch = held.peek(ALL)
        found = as_consumed(held.info.name, batch)
        held.handed_out(batch.num_rows)
        return found

    def _next(self, timeout: float | None) -> HeldPartition | None:
        if self._chunk is not None:
            self._chunk.end()
            self._chunk = None
        while True:
            found = self._run(partial(self._engine.next, timeout))
            if not isinstance(found, ShareChange):
                return found
            self._callbacks.tell(found)
            self._run(partial(self._engine.settle, found))

    # --- commits

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Everything that was handed out is processed; or these ``offsets`` are reached, (topic,
        partition) -> the offset of the next record. Returns when a quorum has it on disk.

        Raises:
            ConsumerFenced: a partition is another member's by now; nothing was noted.
            OffsetOutOfRange: an offset is behind the end of its partition; nothing was noted.
        """
        self._run(partial(self._engine.commit, offsets))

    def commit_async(self, offsets: Mapping[tuple[str, int], int] | None = None) -> Future[None]:
        """As `commit`, of the positions that there are now, without waiting; the future has its
        end."""
        wanted: dict[tuple[str, int], int] = dict(offsets or {})
        if offsets is None:
            wanted.update({(topic, at): to for (topic, at), to in self._engine.positions().items()})
        forks.check_born_here(self._born, "the consumer")
        return self._background.start(partial(self._engine.commit, wanted))

    def committed(self) -> dict[TopicPartition, int]:
        """The offsets that the group has committed of this consumer's partitions."""
        return self._run(self._engine.committed)

    def transaction(self, *, timeout_ms: int = 60_000) -> ConsumerTransaction:
        """A transaction over what was handed out since the last commit: the records that are
        appended to it become visible together with that commit, or neither happens.

        When it fails, the consumer goes on behind the last commit, and hands the records out again.

        Args:
            timeout_ms: dropped when not committed by then.

        Raises:
            ConfigError: the consumer commits by time.
            ConsumerFenced: the consumer is no member at the moment.
        """
        writer_id, sequence = self._engine.begin_transaction()
        try:
            opened = self._run_operation(
                transactions.open_stage(writer_id, sequence, "consumer", timeout_ms)
            )
        except BaseException:
            self._engine.transactions.end(committed=False)
            raise
        assert not isinstance(opened, Committed), "a consumer's sequences are its own, and grow"
        what = f"stage {opened} of a transaction of group {self._engine.settings.group!r}"
        stage = Stage(
            self._core, self._run_operation, transport=self._transport, stage_id=opened, what=what
        )
        found = ConsumerTransaction(
            self._core,
            self._run_operation,
            stage=stage,
            writer_id=writer_id,
            sequence=sequence,
            consumed=self._engine.transactions.command,
        )
        found._end = self._end_transaction
        return found

    def _end_transaction(self, committed: bool | None) -> None:
        self._run(partial(_end_transaction, self._engine, committed))

    # --- places

    def seek(self, topic: str, partition: int, to: int | datetime) -> None:
        """Go on at an offset, or at the first record of a time or later (a datetime without a time
        zone is UTC); at the end where no record is that new.

        Raises:
            ConsumerFenced: the partition is not assigned to this consumer.
        """
        self._run(partial(self._engine.seek, topic, partition, to))

    def lag(self) -> dict[TopicPartition, int]:
        """How many records there are behind the position, by partition."""
        return self._run(self._engine.lag)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return self._engine.assignment()

    def position(self) -> dict[TopicPartition, int]:
        """The offset behind the last record that was handed out, by partition."""
        return self._engine.positions()

    def pause(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Hand out nothing of these (topic, partition), all by default, until `resume`. They stay
        this consumer's; another member's turn begins them anew, without the pause.

        Raises:
            ConsumerFenced: one of them is not assigned to this consumer.
        """
        self._run(partial(_pause, self._engine, partitions, True))

    def resume(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """The opposite of `pause`."""
        self._run(partial(_pause, self._engine, partitions, False))

    # --- life

    @property
    def member_id(self) -> str:
        """The id of the present membership; empty between two."""
        return self._engine.member_id

    def close(self) -> None:
        """Commit, where commits are made by time, and leave the group: the others get the
        partitions at once. A static member (``instance_id``) keeps its share for its session's
        time-out."""
        self._close(commit=True)

    def _close(self, *, commit: bool) -> None:
        if self._born != forks.generation:
            return  # the parent's goes on
        if self._chunk is not None:
            self._chunk.end()
            self._chunk = None
        self._run(partial(self._engine.close, commit=commit))
        self._end.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(commit=kind is None)


class ConsumedBatches(Iterator[pa.RecordBatch]):
    """The batches of a consumer. No generator, which ends with the first exception out of it."""

    def __init__(self, take: Callable[[], pa.RecordBatch | None]) -> None:
        self._take = take

    def __next__(self) -> pa.RecordBatch:
        found = self._take()
        if found is None:
            raise StopIteration
        return found


class ConsumerTransaction(Transaction):
    """Appends to any topics that become visible together with the commit of the offsets that the
    consumer has reached, or not at all. Made by `Consumer.transaction`.

    As a context manager it commits at the end, and aborts when an error leaves the block.
    """

    _end: Callable[[bool | None], None]

    def commit(self) -> Committed:
        """Commit both.

        Raises:
            ConsumerFenced: a partition went to another member meanwhile; neither was committed.
            TransactionError: the stage timed out; neither was committed.
            OutcomeUnknown: it may have been. The consumer begins a new membership, which goes on
                behind what was committed in the end.
        """
        try:
            done = super().commit()
        except OutcomeUnknown:
            self._end(None)
            raise
        except DLedgerError:
            self._end(False)
            raise
        self._end(True)
        return done

    def abort(self) -> None:
        """Drop the appended records; the consumer goes on behind its last commit."""
        self._end(False)
        super().abort()


async def _made(
    core: ClientState, transport: AsyncTransport, settings: ConsumerSettings
) -> ConsumerEngine:
    return ConsumerEngine(core, transport, settings=settings)


async def _pause(
    engine: ConsumerEngine, partitions: Iterable[tuple[str, int]] | None, paused: bool
) -> None:
    engine.pause(partitions, paused)


async def _end_transaction(engine: ConsumerEngine, committed: bool | None) -> None:
    if committed is None:
        engine.doubt()
    else:
        engine.end_transaction(committed=committed)


def _forget(loop: Background, engine: ConsumerEngine) -> None:
    """A consumer that nobody closed and nobody has any more: its group goes on without it."""
    if loop.alive:
        loop.start(partial(engine.close, commit=False))
