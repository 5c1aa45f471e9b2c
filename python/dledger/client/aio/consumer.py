"""A member of a consumer group under asyncio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.aio.consuming.transaction import AsyncConsumerTransaction, open_transaction
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.consuming.callbacks import Callbacks
from dledger.client.protocol.consuming.partitions import HeldPartition, RecordChunk
from dledger.client.protocol.consuming.records import ConsumerRecord, as_consumed
from dledger.client.protocol.consuming.settings import ALL, CHUNK, TopicPartition
from dledger.client.protocol.consuming.state import ShareChange


class AsyncConsumer(AsyncIterator[ConsumerRecord]):
    """`dledger.client.Consumer` under asyncio: the same methods, awaited where they ask the group.
    Callbacks may be coroutine functions.

    Made by `AsyncClient.consumer`, for the tasks of one loop; one task at a time asks for records.
    """

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        engine: ConsumerEngine,
        callbacks: Callbacks,
    ) -> None:
        self._core = core
        self._transport = transport
        self._engine = engine
        self._callbacks = callbacks
        self._chunk: RecordChunk | None = None

    # --- records

    async def poll(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the blocking consumer's
        *,
        max_records: int = CHUNK,
    ) -> list[ConsumerRecord]:
        """See `Consumer.poll`."""
        while (held := await self._next(timeout)) is not None:
            if records := held.records(max_records):
                held.handed_out(len(records))
                return records
        return []

    async def __anext__(self) -> ConsumerRecord:
        while True:
            chunk = self._chunk
            if chunk is not None and chunk.is_live and self._engine.may_deliver:
                return chunk.next()
            held = await self._next(None)
            if held is None:
                raise StopAsyncIteration
            self._chunk = RecordChunk(held, CHUNK)

    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """See `Consumer.batches`."""
        return AsyncConsumedBatches(self._batch)

    async def _batch(self) -> pa.RecordBatch | None:
        held = await self._next(None)
        if held is None:
            return None
        batch = held.peek(ALL)
        found = as_consumed(held.info.name, batch)
        held.handed_out(batch.num_rows)
        return found

    async def _next(self, timeout_s: float | None) -> HeldPartition | None:
        if self._chunk is not None:
            self._chunk.end()
            self._chunk = None
        while True:
            found = await self._engine.next(timeout_s)
            if not isinstance(found, ShareChange):
                return found
            told = self._callbacks.tell(found)
            if inspect.isawaitable(told):
                await told
            await self._engine.settle(found)

    # --- commits

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """See `Consumer.commit`."""
        await self._engine.commit(offsets)

    async def committed(self) -> dict[TopicPartition, int]:
        """See `Consumer.committed`."""
        return await self._engine.committed()

    async def transaction(self, *, timeout_ms: int = 60_000) -> AsyncConsumerTransaction:
        """See `Consumer.transaction`: ``async with await consumer.transaction() as tx``."""
        return await open_transaction(self._core, self._transport, self._engine, timeout_ms)

    # --- places

    async def seek(self, topic: str, partition: int, to: int | datetime) -> None:
        """See `Consumer.seek`."""
        await self._engine.seek(topic, partition, to)

    async def lag(self) -> dict[TopicPartition, int]:
        """See `Consumer.lag`."""
        return await self._engine.lag()

    def assignment(self) -> list[TopicPartition]:
        """See `Consumer.assignment`."""
        return self._engine.assignment()

    def position(self) -> dict[TopicPartition, int]:
        """See `Consumer.position`."""
        return self._engine.positions()

    def pause(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """See `Consumer.pause`."""
        self._engine.pause(partitions, True)

    def resume(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """See `Consumer.resume`."""
        self._engine.pause(partitions, False)

    # --- life

    @property
    def member_id(self) -> str:
        """See `Consumer.member_id`."""
        return self._engine.member_id

    async def close(self) -> None:
        """See `Consumer.close`."""
        await self._close(commit=True)

    async def _close(self, *, commit: bool) -> None:
        if self._chunk is not None:
            self._chunk.end()
            self._chunk = None
        await self._engine.close(commit=commit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        await self._close(commit=kind is None)


class AsyncConsumedBatches(AsyncIterator[pa.RecordBatch]):
    """The batches of a consumer. No generator, which ends with the first exception out of it."""

    def __init__(self, take: Callable[[], Awaitable[pa.RecordBatch | None]]) -> None:
        self._take = take

    async def __anext__(self) -> pa.RecordBatch:
        found = await self._take()
        if found is None:
            raise StopAsyncIteration
        return found
