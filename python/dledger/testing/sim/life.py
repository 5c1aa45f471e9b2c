"""What one client process does: appends, producers, transactions, reads, offsets, each noted in the
history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from dledger.client.aio.client import AsyncClient
from dledger.client.aio.producer import AsyncProducer
from dledger.client.protocol.results import Committed
from dledger.errors import DLedgerError, OffsetOutOfRange
from dledger.testing.checkers.history import Call, OperationKind
from dledger.testing.checkers.values import decode_value, encode_value, value_id
from dledger.testing.sim.chores import Chores
from dledger.testing.sim.loop import SimLoop
from dledger.testing.sim.machine import Machine
from dledger.testing.sim.rng import Rng
from dledger.testing.sim.settings import PORT
from dledger.testing.sim.writes import Writes

if TYPE_CHECKING:
    from dledger.testing.sim.workload import Client, Topic

READ_RECORDS: Final = 100
"""A read asks for no more, so that long logs do not make all others slow."""


class ClientLife:
    """What one client process does."""

    def __init__(self, client: Client, loop: SimLoop, rng: Rng, session: str) -> None:
        self.session = session
        self.workload = client.workload
        self._owner = client
        self._loop = loop
        self.rng = rng
        plan = client.workload.world.plan
        machine = Machine(loop, rng.fork("dice"), 0, lambda: None)
        addresses = [f"{name}:{PORT}" for name in plan.names]
        rng.shuffle(addresses)
        self.client = AsyncClient(",".join(addresses), environment=machine, **plan.client)
        self._chores = Chores(self)
        self._writes = Writes(self)
        self._plan = plan
        self._writer = self.workload.new_writer()
        self._known = self.workload.known
        self._values = 0
        self._positions: dict[tuple[str, int], int] = {}
        self._producers: dict[str, AsyncProducer] = {}
        self._producer_names: dict[str, str] = {}
        self._sequences: dict[str, int] = {}
        self._transactions = 0
        self._fenced = 0
        self._pending: dict[asyncio.Future[Any], None] = {}

    # --- life -------------------------------------------------------------------------------------

    async def main(self) -> None:
        try:
            await self._prepare()
            calls = self._calls()
            while self.workload.working:
                await calls[self.rng.below(len(calls))]()
                await asyncio.sleep(self.rng.spread(1, self._plan.think_ms) / 1000)
            for producer in self._producers.values():
                await producer.close()
            await self.client.close()
        except DLedgerError as error:
            text = f"{self.session} met an error that no call explains: {error!r}"
            self.workload.world.breaks("defect", text, error)
        self._owner.idle = True

    def _calls(self) -> list[Callable[[], Awaitable[None]]]:
        """What this client does, the more often the more."""
        weights = (
            (self._append, 3),
            (self._produce, 5),
            (self._transact, 2),
            (self._read, 3),
            (self._end, 3),
            (self._stale_end, 1),
            (self._begin, 1),
            (self._writes.write, 3),
            *self._chores.weights(),
        )
        calls: list[Callable[[], Awaitable[None]]] = []
        for call, most in weights:
            calls += [call] * self.rng.between(0, most)
        return calls or [self._append, self._end]

    async def _prepare(self) -> None:
        for topic in self.workload.topics:
            while True:
                try:
                    await self.client.create_topic(topic.name, topic.partitions, if_absent=True)
                    break
                except DLedgerError as error:
                    self.note(f"topic {topic.name}: {error}")
                    await asyncio.sleep(self.rng.between(50, 500) / 1000)

    def note(self, text: str) -> None:
        self.workload.world.story.tell(self.session, text)

    def place(self) -> tuple[Topic, int]:
        topic = self.rng.pick(self.workload.topics)
        return topic, self.rng.below(topic.partitions)

    def new_values(self) -> tuple[tuple[int, ...], list[bytes]]:
        count = self.rng.spread(1, self._plan.most_records)
        numbers = tuple(value_id(self._writer, self._values + at) for at in range(count))
        self._values += count
        values = [encode_value(number, self._plan.value_bytes) for number in numbers]
        self._known.update(zip(values, numbers, strict=True))
        return numbers, values

    def new_value(self, size: int) -> tuple[int, bytes]:
        """One that is as large as that, and its number."""
        number = value_id(self._writer, self._values)
        self._values += 1
        value = encode_value(number, size)
        self._known[value] = number
        return number, value

    def ended(self, call: Call, what: str, error: DLedgerError) -> None:
        if error.definite:
            call.failed()
        else:
            call.unknown()
        self.note(f"{what}: {type(error).__name__}: {error}")

    # --- writing ----------------------------------------------------------------------------------

    async def _append(self) -> None:
        topic, partition = self.place()
        numbers, values = self.new_values()
        call = self.workload.recorder.begin(
            OperationKind.APPEND, self.session, topic.name, partition, values=numbers
        )
        try:
            done = await self.client.append(topic.name, values, partition=partition)
        except DLedgerError as error:
            self.ended(call, "append", error)
        else:
            self._appended(call, topic, partition, done.start, len(values))

    async def append_large(self, topic: Topic, partition: int, size: int) -> None:
        """One record of that size."""
        number, value = self.new_value(size)
        call = self.workload.recorder.begin(
            OperationKind.APPEND, self.session, topic.name, partition, values=(number,)
        )
        try:
            done = await self.client.append(topic.name, [value], partition=partition)
        except DLedgerError as error:
            self.ended(call, "append", error)
        else:
            self._appended(call, topic, partition, done.start, 1)

    def _appended(self, call: Call, topic: Topic, partition: int, start: int, count: int) -> None:
        call.ok(start=start)
        self._acknowledged(topic, partition, start, start + count, count)

    def _acknowledged(self, topic: Topic, partition: int, start: int, end: int, count: int) -> None:
        topic.ends[partition] = max(topic.ends[partition], end)
        self.workload.done(topic.name, partition, start, end, count)
        self.note(f"appended {count} to {topic.name}/{partition}, {start} to {end}")

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
        call = self.workload.recorder.begin(
            OperationKind.APPEND, self.session, topic.name, partition, values=numbers, **more
        )
        future = await through.append(values, partition=partition)
        future.add_done_callback(self._answer(call, topic, partition, len(values)))

    def _answer(
        self, call: Call, topic: Topic, partition: int, count: int
    ) -> Callable[[asyncio.Future[Any]], None]:
        def answered(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            if error is None:
                done = future.result()
                call.ok(start=done.start)
                self._acknowledged(topic, partition, done.start, done.end, count)
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
        only one. Nothing says which of the two is first, so in the history each call has a producer
        of its own."""
        newer, partition = (
            await self.client.producer(topic.name, name=old.name),
            self.rng.below(topic.partitions),
        )
        for producer in (newer, old):
            self._fenced += 1
            await self._hand_in(
                producer, topic, partition, producer=f"{self.session}-fenced-{self._fenced}"
            )
        await newer.close()

    async def _transact(self) -> None:
        """A transaction over one or more partitions, tried until it is known to be done, or given
        up. Now and then somebody does not know that it is done, and goes through all of it
        again."""
        self._transactions += 1
        name = f"{self.session}-{self._transactions}"
        places = [self.place() for _ in range(self.rng.between(1, 3))]
        for attempt in range(self.rng.between(1, 4)):
            if await self._attempt(name, places, attempt):
                if self.rng.chance(200_000):
                    await self._attempt(name, places, attempt + 1)
                return

    async def _attempt(self, name: str, places: list[tuple[Topic, int]], attempt: int) -> bool:
        """Whether nothing more is to be done."""
        calls: dict[tuple[str, int], Call] = {}
        counts: dict[tuple[str, int], int] = {}
        try:
            transaction = await self.client.transaction(name, self._transactions, timeout_ms=5000)
        except DLedgerError as error:
            self.note(f"transaction {name}: {error}")
            return False
        wanted: dict[tuple[str, int], list[int]] = {}
        pieces: list[tuple[Topic, int, list[bytes]]] = []
        for topic, partition in places:
            numbers, values = self.new_values()
            wanted.setdefault((topic.name, partition), []).extend(numbers)
            pieces.append((topic, partition, values))
        for (topic_name, partition), numbers_there in wanted.items():
            counts[topic_name, partition] = len(numbers_there)
            calls[topic_name, partition] = self.workload.recorder.begin(
                OperationKind.TRANSACTION,
                self.session,
                topic_name,
                partition,
                values=tuple(numbers_there),
                transaction=name,
                attempt=attempt,
            )
        try:
            for topic, partition, values in pieces:
                await transaction.append(topic.name, values, partition=partition)
            if self.rng.chance(150_000):
                await transaction.abort()
                self._all_failed(calls)
                return True
            result = await transaction.commit()
        except DLedgerError as error:
            for call in calls.values():
                self.ended(call, f"transaction {name}", error)
            return False
        self._committed(name, attempt, calls, counts, result)
        return True

    def _all_failed(self, calls: dict[tuple[str, int], Call]) -> None:
        for call in calls.values():
            call.failed()

    def _committed(
        self,
        name: str,
        attempt: int,
        calls: dict[tuple[str, int], Call],
        counts: dict[tuple[str, int], int],
        result: Committed,
    ) -> None:
        self.note(f"transaction {name}: {result}")
        for (topic_name, partition), call in calls.items():
            start, end = result.offsets.get(topic_name, {}).get(partition, (-1, -1))
            if attempt == 0 and end - start == counts[topic_name, partition]:
                call.ok(start=start)
                self.workload.done(topic_name, partition, start, end, end - start)
            else:  # a repeat may tell of the attempt before
                call.unknown()

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        topic, partition = self.place()
        at = self._positions.get((topic.name, partition), 0)
        if self.rng.chance(200_000):
            at = self.rng.below(topic.ends[partition] + 1)
        await self.read(topic, partition, at)

    async def read(self, topic: Topic, partition: int, start: int, most: int = READ_RECORDS) -> int:
        """Read and record; the offset behind the last record."""
        call = self.workload.recorder.begin(
            OperationKind.READ, self.session, topic.name, partition, start=start
        )
        values: list[int] = []
        offsets: list[int] = []
        known = self._known
        try:
            async for batch in self.client.read(topic.name, partition, start):
                offsets += batch.column("offset").to_pylist()
                for value in batch.column("value").to_pylist():
                    number = known.get(value)
                    values.append(decode_value(value) if number is None else number)
                if len(values) >= most:
                    break
            else:
                call.ok(values=tuple(values), offsets=tuple(offsets), to_end=True)
                self._advance(topic, partition, start, offsets)
                return start + len(values)
        except DLedgerError as error:
            self.ended(call, f"read {topic.name}/{partition} from {start}", error)
            if isinstance(error, OffsetOutOfRange):
                self._positions[topic.name, partition] = max(error.begin, 0)
            return start
        call.ok(values=tuple(values), offsets=tuple(offsets))
        self._advance(topic, partition, start, offsets)
        return start + len(values)

    async def probe(self) -> None:
        """Append until it works: somebody has to write for a commit to be seen."""
        await self._prepare()
        while True:
            topic, partition = self.workload.topics[0], 0
            numbers, values = self.new_values()
            call = self.workload.recorder.begin(
                OperationKind.APPEND, self.session, topic.name, partition, values=numbers
            )
            try:
                done = await self.client.append(topic.name, values, partition=partition)
            except DLedgerError as error:
                self.ended(call, "probe", error)
                continue
            self._appended(call, topic, partition, done.start, len(values))
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

    def _advance(self, topic: Topic, partition: int, start: int, offsets: list[int]) -> None:
        self._positions[topic.name, partition] = start + len(offsets)
        self.note(f"read {topic.name}/{partition} {start} to {start + len(offsets)}")

    async def _end(self) -> None:
        await self._ends(OperationKind.END, stale=False)

    async def _stale_end(self) -> None:
        await self._ends(OperationKind.END, stale=True)

    async def _begin(self) -> None:
        await self._ends(OperationKind.BEGIN, stale=False)

    async def _ends(self, kind: OperationKind, stale: bool) -> None:
        topic = self.rng.pick(self.workload.topics)
        partitions = range(topic.partitions)
        recorder = self.workload.recorder
        calls = [
            recorder.begin(kind, self.session, topic.name, at, stale=stale) for at in partitions
        ]
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
