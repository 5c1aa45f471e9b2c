"""The life of one client process: appends, producers, reads, offsets, each noted in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from dledger.client.aio.producer import AsyncProducer
from dledger.errors import DLedgerError, OffsetOutOfRange
from dledger.testing.checkers.history import OpenOperation, OperationKind
from dledger.testing.checkers.values import decode_value
from verification.sim.chores import Chores
from verification.sim.consuming import Consuming
from verification.sim.loop import SimLoop
from verification.sim.rng import Rng
from verification.sim.session import ClientSession
from verification.sim.shared_history import SharedHistory, Topic
from verification.sim.transactions import Transactions
from verification.sim.writes import Writes

Call = Callable[[], Awaitable[None]]
READ_RECORDS: Final = 100
"""A read asks for no more, so that long logs do not make all others slow."""


class ClientLife(ClientSession):
    """The calls of one client process."""

    def __init__(
        self,
        workload: SharedHistory,
        loop: SimLoop,
        rng: Rng,
        session: str,
        on_end: Callable[[], object],
    ) -> None:
        """``on_end``: called when it has done all it was asked to."""
        super().__init__(workload, loop, rng, session)
        self._on_end = on_end
        self._chores = Chores(self)
        self._transactions = Transactions(self)
        self._writes = Writes(self)
        self._consuming = Consuming(self, loop) if self.plan.consumers else None
        self._positions: dict[tuple[str, int], int] = {}
        self._producers: dict[str, AsyncProducer] = {}
        self._producer_names: dict[str, str] = {}
        self._sequences: dict[str, int] = {}
        self._fenced = 0

    # --- life -------------------------------------------------------------------------------------

    async def main(self) -> None:
        try:
            await self._prepare()
            consuming = None
            if self._consuming is not None:
                consuming = asyncio.get_running_loop().create_task(self._consuming.main())
            calls = self._calls()
            while self.workload.working:
                await calls[self.rng.below(len(calls))]()
                await asyncio.sleep(self.rng.spread(1, self.plan.think_ms) / 1000)
            for producer in self._producers.values():
                await producer.close()
            if consuming is not None:
                await consuming
            await self.client.close()
        except DLedgerError as error:
            text = f"{self.session} met an error that no call explains: {error!r}"
            self.workload.world.breaks("defect", text, error)
        self._on_end()

    def _calls(self) -> list[Call]:
        """The calls of this client; a call that stands there more often is made more often."""
        end = partial(self._ends, OperationKind.END, stale=False)
        weights: tuple[tuple[Call, int], ...] = (
            (self._append, 3),
            (self._produce, 5),
            (self._transactions.transact, 2),
            (self._read, 3),
            (end, 3),
            (partial(self._ends, OperationKind.END, stale=True), 1),
            (partial(self._ends, OperationKind.BEGIN, stale=False), 1),
            (self._writes.write, 3),
            *self._chores.weights(),
        )
        calls: list[Call] = []
        for call, most in weights:
            calls += [call] * self.rng.between(0, most)
        return calls or [self._append, end]

    async def _prepare(self) -> None:
        for topic in self.workload.topics:
            while True:
                try:
                    await self.client.create_topic(topic.name, topic.partitions, if_absent=True)
                    break
                except DLedgerError as error:
                    self.note(f"topic {topic.name}: {error}")
                    await asyncio.sleep(self.rng.between(50, 500) / 1000)

    # --- writing ----------------------------------------------------------------------------------

    async def _append(self) -> None:
        topic, partition = self.place()
        numbers, values = self.new_values()
        await self.append(topic, partition, numbers, values)

    async def _produce(self) -> None:
        """Several appends at once through a producer, not waiting for any."""
        topic, partition = self.place()
        try:
            producer = await self._producer(topic)
        except DLedgerError as error:
            self.note(f"producer: {error}")
            return
        for _ in range(self.rng.spread(1, 8)):
            self._sequences[topic.name] = sequence = self._sequences.get(topic.name, 0) + 1
            name = self._producer_names[topic.name]
            await self._hand_in(producer, topic, partition, producer=name, sequence=sequence)

    async def _hand_in(
        self, through: AsyncProducer, topic: Topic, partition: int, **more: Any
    ) -> None:
        numbers, values = self.new_values()
        call = self.begin(OperationKind.APPEND, topic, partition, values=numbers, **more)
        future = await through.append(values, partition=partition)
        future.add_done_callback(self._answer(call, topic, partition, len(values)))

    def _answer(
        self, call: OpenOperation, topic: Topic, partition: int, count: int
    ) -> Callable[[asyncio.Future[Any]], None]:
        def answered(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            if error is None:
                done = future.result()
                call.ok(start=done.start)
                self.acknowledged(topic, partition, done.start, done.end, count)
            elif isinstance(error, DLedgerError):
                self.ended(call, "produce", error)
            else:
                raise error

        return answered

    async def _producer(self, topic: Topic) -> AsyncProducer:
        producer = self._producers.get(topic.name)
        if producer is not None and self.rng.chance(50_000):
            del self._producers[topic.name]
            if self.rng.chance(500_000):
                await self._fence(topic, producer)
            await producer.close()
            producer = None
        if producer is None:
            producer = await self.client.producer(topic.name)
            self._producers[topic.name] = producer
            self._producer_names[topic.name] = producer.name
        return producer

    async def _fence(self, topic: Topic, old: AsyncProducer) -> None:
        """A newer session of the same name takes over, and the old one goes on as if it were the
        only one. The order of the two is not known, so in the history each call has a producer of
        its own."""
        newer = await self.client.producer(topic.name, name=old.name)
        partition = self.rng.below(topic.partitions)
        for producer in (newer, old):
            self._fenced += 1
            await self._hand_in(
                producer, topic, partition, producer=f"{self.session}-fenced-{self._fenced}"
            )
        await newer.close()

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        topic, partition = self.place()
        at = self._positions.get((topic.name, partition), 0)
        if self.rng.chance(200_000):
            at = self.rng.below(topic.ends[partition] + 1)
        await self.read(topic, partition, at)

    async def read(self, topic: Topic, partition: int, start: int, most: int = READ_RECORDS) -> int:
        """Read and record; the offset behind the last record."""
        call = self.begin(OperationKind.READ, topic, partition, start=start)
        values: list[int] = []
        offsets: list[int] = []
        known, to_end = self.known, False
        try:
            async for batch in self.client.read(topic.name, partition, start):
                offsets += batch.column("offset").to_pylist()
                for value in batch.column("value").to_pylist():
                    number = known.get(value)
                    values.append(decode_value(value) if number is None else number)
                if len(values) >= most:
                    break
            else:
                to_end = True
        except DLedgerError as error:
            self.ended(call, f"read {topic.name}/{partition} from {start}", error)
            if isinstance(error, OffsetOutOfRange):
                self._positions[topic.name, partition] = max(error.begin, 0)
            return start
        call.ok(values=tuple(values), offsets=tuple(offsets), to_end=to_end)
        end = self._positions[topic.name, partition] = start + len(offsets)
        self.note(f"read {topic.name}/{partition} {start} to {end}")
        return end

    async def probe(self) -> None:
        """Append until it works: a commit is seen only when a client writes."""
        await self._prepare()
        while True:
            numbers, values = self.new_values()
            if await self.append(self.workload.topics[0], 0, numbers, values, what="probe"):
                return

    async def read_from_begin(self, topic: Topic, partition: int) -> None:
        """Everything that is kept, in one read, once there is a leader that knows where it
        begins."""
        while True:
            try:
                begin = (await self.client.begin_offsets(topic.name))[partition]
                break
            except DLedgerError as error:
                self.note(f"begin of {topic.name}: {error}")
                await asyncio.sleep(0.1)
        await self.read(topic, partition, begin, most=1 << 40)

    async def _ends(self, kind: OperationKind, stale: bool) -> None:
        topic = self.rng.pick(self.workload.topics)
        partitions = range(topic.partitions)
        calls = [self.begin(kind, topic, at, stale=stale) for at in partitions]
        ask = self.client.end_offsets if kind is OperationKind.END else self.client.begin_offsets
        try:
            answer = await ask(topic.name, stale=stale)
        except DLedgerError as error:
            for call in calls:
                self.ended(call, kind.value, error)
            return
        for at in partitions:
            calls[at].ok(start=answer[at])
            if kind is OperationKind.END:
                topic.ends[at] = max(topic.ends[at], answer[at])
        self.note(f"{kind.value} offsets of {topic.name}: {answer}")
