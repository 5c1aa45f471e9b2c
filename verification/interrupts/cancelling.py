"""A round of the asyncio client: calls that are cancelled at the awaits that the seed chooses."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from itertools import islice
from random import Random
from typing import Any, Final

import pyarrow as pa

from dledger.client import AsyncClient
from dledger.client.aio.producer import AsyncProducer
from dledger.client.aio.staging import AsyncStage
from dledger.errors import DLedgerError, TransactionError
from verification.interrupts.blocking import PARTITIONS, Servers
from verification.interrupts.book import OPEN, TAKEN, Attempt, Book, Unit
from verification.interrupts.calls import OTHERS
from verification.interrupts.messages import Messages

CALLS: Final = 24
NARROW: Final[dict[str, Any]] = {
    "max_in_flight": 2,
    "max_in_flight_bytes": 2048,
    "batch_bytes": 128,
}
"""Appends on a loop end before an answer comes: only so little makes them wait for room."""
PATIENCE_S: Final = 60.0
"""A call that takes longer than this hangs."""


class Canceller:
    """Runs coroutines, and cancels some of them at one of their awaits, and at a later one again.

    Attributes:
        asked: how often a call was made, by its name.
        fired: how often one was cancelled.
    """

    def __init__(self, dice: Random) -> None:
        self.asked: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.seconds = 0
        self._dice = dice
        self._lengths: dict[str, int] = {}

    async def call(self, name: str, work: Coroutine[Any, Any, Any]) -> tuple[Any, bool]:
        """The result of the call, and whether the call was cancelled.

        Raises:
            Exception: what it raised.
            TimeoutError: it hangs.
        """
        self.asked[name] += 1
        dice, at = self._dice, []
        if dice.random() < 0.6:
            at = [dice.randrange(1, self._lengths.get(name, 8) + 2)]
            if dice.random() < 0.3:
                at.append(at[0] + dice.randrange(1, 6))
        task = asyncio.get_running_loop().create_task(self._counted(name, work, at))
        done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
        if not done:
            raise TimeoutError(f"{name} hangs: {task.get_stack()}")
        if task.cancelled():
            return None, True
        return task.result(), False

    async def _counted(self, name: str, work: Coroutine[Any, Any, Any], at: list[int]) -> Any:
        task, awaits = asyncio.current_task(), 0
        assert task is not None

        def cancel(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(cancel, turns - 1)
            elif task.cancel():
                self.fired[name] += 1

        def awaited() -> None:
            nonlocal awaits
            awaits += 1
            if awaits in at:
                self.seconds += awaits != at[0]
                cancel(self._dice.choice((0, 0, 1, 2)))

        try:
            return await _Watched(work, awaited)
        finally:
            self._lengths[name] = (self._lengths.get(name, awaits) + awaits + 1) // 2


class _Watched:
    """A coroutine that says when it awaits something that is not there yet."""

    def __init__(self, work: Coroutine[Any, Any, Any], awaited: Callable[[], None]) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        work, throw = self._work, None
        try:
            while True:
                waits_for = work.send(None) if throw is None else work.throw(throw)
                throw = None
                asyncio.get_running_loop().call_soon(self._awaited)
                try:
                    yield waits_for
                except BaseException as error:
                    throw = error
        except StopIteration as stop:
            return stop.value


class AsyncRound:
    """One topic, one client, and the calls of a round; ``others`` as in `Round`."""

    def __init__(
        self,
        servers: Servers,
        topic: str,
        dice: Random,
        canceller: Canceller,
        others: Iterator[str],
    ) -> None:
        self.book = Book(topic)
        self._topic = topic
        self._dice = dice
        self._call = canceller.call
        self._others = others
        self._broker = AsyncClient(servers.messages)
        self.messages = Messages(self._broker, topic, dice)
        self._client = AsyncClient(servers.topics, linger_ms=dice.choice((0, 1, 5)), **NARROW)
        self._producers: list[AsyncProducer] = []
        self._ended: list[AsyncProducer] = []
        self._sequence = 0

    async def run(self) -> None:
        """Do the calls, some of them at a time, then end everything without cancelling."""
        self._info = await self._client.create_topic(self._topic, PARTITIONS)
        actions = (
            [self._append] * 8
            + [self._append_batch] * 2
            + [self._direct] * 2
            + [self._transaction] * 2
            + [
                self._stage,
                self._flush,
                self._close,
                self._result,
                self._read,
                self._ask,
                self._message,
            ]
        )
        first = self.book.attempt(self.book.values(1))
        first.answer = await self._client.append(self._topic, first.values, partition=0)
        for _ in range(CALLS // 2):
            together = [
                self._dice.choice(actions)() for _ in range(self._dice.choice((1, 2, 6, 12)))
            ]
            await asyncio.gather(*together)
        for producer in [*self._producers, *self._ended]:
            await asyncio.wait_for(producer.close(), PATIENCE_S)
        self.book.settle()
        await self._client.close()
        await self._broker.close()

    async def _producer(self) -> AsyncProducer:
        while not self._producers or (len(self._producers) < 3 and self._dice.random() < 0.1):
            producer, _ = await self._call("client.producer", self._client.producer(self._topic))
            if producer is not None:
                self._producers.append(producer)
        return self._dice.choice(self._producers)

    async def _append(self) -> None:
        producer, count = await self._producer(), self._dice.choice((1, 1, 1, 3, 40))
        values, key = self.book.values(count), self._dice.choice((None, b"a", b"b", b"c", b"d"))
        keys: Any = key if count == 1 or key is None else [key] * count
        one = self.book.attempt(values)
        await self._take(
            one, "producer.append", producer.append(values[0] if count == 1 else values, keys=keys)
        )

    async def _append_batch(self) -> None:
        producer = await self._producer()
        one = self.book.attempt(self.book.values(self._dice.choice((1, 5, 100))))
        at = self._dice.randrange(PARTITIONS)
        await self._take(
            one, "producer.append_batch", producer.append_batch(at, _batch(one.values))
        )

    async def _take(self, one: Attempt, name: str, work: Coroutine[Any, Any, Any]) -> None:
        with contextlib.suppress(DLedgerError):  # closed meanwhile
            future, _ = await self._call(name, work)
            if future is not None:
                one.state, one.future = TAKEN, future

    async def _direct(self) -> None:
        one = self.book.attempt(self.book.values(self._dice.choice((1, 4))))
        if self._dice.random() < 0.5:
            one.answer, _ = await self._call(
                "client.append", self._client.append(self._topic, one.values)
            )
        else:
            work = self._client.append_batch(
                self._topic, self._dice.randrange(PARTITIONS), _batch(one.values)
            )
            one.answer, _ = await self._call("client.append_batch", work)
        if one.answer is not None:
            one.state = TAKEN

    async def _flush(self) -> None:
        producer = await self._producer()
        await self._call("producer.flush", producer.flush())

    async def _close(self) -> None:
        producer = await self._producer()
        if producer in self._producers:
            self._producers.remove(producer)
            self._ended.append(producer)
        for _ in range(self._dice.choice((1, 2))):
            await self._call("producer.close", producer.close())

    async def _result(self) -> None:
        waiting = [
            one for one in self.book.attempts if one.future is not None and not one.future.done()
        ]
        if waiting:
            future = self._dice.choice(waiting).future
            await self._call("future", _waited(asyncio.shield(future)))

    async def _read(self) -> None:
        at = self._dice.randrange(PARTITIONS)
        if self._dice.random() < 0.3:
            await self._call("client.fetch_bodies", self._bodies(at))
            return
        reader, ends = self._client.read(self._topic, at, 0), object()
        found: list[bytes] = []
        while True:
            batch, cancelled = await self._call("client.read", _next(reader, ends))
            if batch is ends:
                self.book.read(at, found, whole=True)
                return
            if not cancelled:
                found += batch["value"].to_pylist()

    async def _bodies(self, at: int) -> int:
        end = (await self._client.end_offsets(self._topic))[at]
        return sum(
            [len(body) async for _, body in self._client.fetch_bodies(self._topic, at, 0, end)]
        )

    async def _ask(self) -> None:
        for name in islice(self._others, 3):
            call, kind = OTHERS[name]
            with contextlib.suppress(DLedgerError):
                answer, cancelled = await self._call(
                    f"client.{name}", call(self._client, self._info)
                )
                if not cancelled and not isinstance(answer, kind):
                    self.book.problems.append(f"client.{name} was answered with {answer!r}")

    async def _message(self) -> None:
        for _ in range(3):
            name, call, took = self.messages.next()
            answer, cancelled = await self._call(f"client.{name}", call())
            if not cancelled:
                took(answer)

    async def _transaction(self) -> None:
        """A transaction whose cancelled appends its block bears, or does not."""
        self._sequence += 1
        number, writer = self._sequence, f"{self._topic} {self._sequence}"
        unit, bears = Unit(writer, number), self._dice.random() < 0.5
        self.book.units.append(unit)
        begin = self._client.transaction(writer, number)
        transaction, _ = await self._call("client.transaction", begin)
        if transaction is None:
            return
        for _ in range(self._dice.randrange(1, 4)):
            one = Attempt(self.book.values(self._dice.choice((1, 30, 200))))
            unit.attempts.append(one)
            keys = [self._dice.choice((b"a", b"b", b"c", b"d")) for _ in one.values]
            if self._dice.random() < 0.3:
                name, work = (
                    "append_batch",
                    transaction.append_batch(self._topic, 1, _batch(one.values)),
                )
            else:
                name, work = "append", transaction.append(self._topic, one.values, keys=keys)
            _, cancelled = await self._call(f"transaction.{name}", work)
            one.state = OPEN if cancelled else TAKEN
            if cancelled and not bears:
                await self._end(unit, "transaction.abort", transaction.abort)
                return
        await self._end(unit, "transaction.commit", transaction.commit)

    async def _end(
        self, unit: Unit, name: str, function: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        for _ in range(2):
            try:
                _, cancelled = await self._call(name, function())
            except TransactionError:
                unit.ended = "aborted"  # refused: an append before it was cancelled
                return
            if not cancelled:
                unit.ended = "committed" if name == "transaction.commit" else "aborted"
                return

    async def _stage(self) -> None:
        self._sequence += 1
        number, writer = self._sequence, f"{self._topic} {self._sequence}"
        unit = Unit(writer, number)
        self.book.units.append(unit)
        stage, _ = await self._call("client.stage", self._client.stage(writer, number))
        if not isinstance(stage, AsyncStage):
            return
        for _ in range(4):
            one = Attempt(self.book.values(50))
            unit.attempts.append(one)
            work = stage.append_batch(
                self._topic, self._dice.randrange(PARTITIONS), _batch(one.values)
            )
            _, cancelled = await self._call("stage.append_batch", work)
            one.state = OPEN if cancelled else TAKEN
        try:
            total, _ = await self._call("stage.close", stage.close())
        except TransactionError:
            unit.ended = "aborted"
            return
        if total is not None:
            await self._end(
                unit,
                "transaction.commit",
                lambda: self._client.commit_transaction(writer, number, (total,)),
            )


async def _next(reader: AsyncIterator[Any], ends: object) -> Any:
    return await anext(reader, ends)


async def _waited(future: asyncio.Future[Any]) -> Any:
    return await future


def _batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
