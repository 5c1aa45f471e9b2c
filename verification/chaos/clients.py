"""The load: clients of every kind, each of which records its calls and their answers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from dledger.client import AsyncClient
from dledger.client.aio.producer import AsyncProducer
from dledger.client.protocol.results import Appended
from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OpenOperation, OperationKind, Recorder
from dledger.testing.checkers.values import encode_value, value_id
from verification.chaos.acks import Acks
from verification.chaos.appends import Appends

PAUSE_S: Final = 0.2
"""After an error, so that clients of a group that is down do not only collect errors."""
MAX_VALUE_BYTES: Final = 600
LARGE_BYTES: Final = 200_000
"""One value in a thousand is as large as that: large bodies go other ways in client and node than
small ones."""


@dataclass(slots=True)
class Place:
    """The state that all clients of a run share."""

    bootstrap_servers: str
    topics: dict[str, int]
    """Name -> partitions."""
    nodes: list[str]
    recorder: Recorder
    acks: Acks
    appends: Appends
    errors: Counter[str] = field(default_factory=Counter)
    """Name of the error -> how often a client was told so."""
    wrong: list[str] = field(default_factory=list)
    """Impossible answers that a client itself has noticed."""
    going: bool = True
    quiet: bool = False
    """Clients begin nothing new."""
    clients: int = 0

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, at) for topic, count in self.topics.items() for at in range(count)]

    def failed(self, error: DLedgerError) -> None:
        self.errors[type(error).__name__] += 1


class Worker:
    """One client with a connection, values and dice of its own.

    Args:
        rate: calls a second when nothing is in the way.
        settings: of its `AsyncClient`.
    """

    def __init__(self, place: Place, name: str, rate: float, seed: int, **settings: Any) -> None:
        self.place = place
        self.name = name
        self.dice = random.Random(f"{seed} {name}")
        self.client = AsyncClient(place.bootstrap_servers, **settings)
        self._pause_s = 1 / rate
        self._number = place.clients
        self._next = 0
        self._sequence = 0
        place.clients += 1

    async def run(self) -> None:
        """Until the place's `going` is False."""
        try:
            while self.place.going:
                try:
                    await self.step()
                except DLedgerError as error:
                    self.place.failed(error)
                    await asyncio.sleep(PAUSE_S)
        finally:
            await self.client.close()

    async def step(self) -> None:
        """One call after the other; the errors that it raises are counted."""
        raise NotImplementedError

    async def pause(self) -> None:
        await asyncio.sleep(self.dice.expovariate(1 / self._pause_s))
        while self.place.quiet and self.place.going:  # noqa: ASYNC110 - wakes no task
            await asyncio.sleep(0.02)

    def new_values(self, most: int) -> tuple[int, ...]:
        """Numbers of records that no other client writes."""
        count = self.dice.randint(1, most)
        self._next += count
        return tuple(value_id(self._number, at) for at in range(self._next - count, self._next))

    def encode(self, values: tuple[int, ...]) -> list[bytes]:
        sizes = (
            LARGE_BYTES if self.dice.random() < 0.001 else self.dice.randint(12, MAX_VALUE_BYTES)
            for _ in values
        )
        return [encode_value(value, size) for value, size in zip(values, sizes, strict=True)]

    def any_partition(self) -> tuple[str, int]:
        return self.dice.choice(self.place.partitions())

    def begin(self, kind: OperationKind, topic: str, partition: int, **known: Any) -> OpenOperation:
        """Note a call of this client that begins now."""
        return self.place.recorder.begin(kind, self.name, topic, partition, **known)

    def ended(self, error: DLedgerError, *calls: OpenOperation) -> None:
        """The calls were answered with an error."""
        self.place.failed(error)
        for call in calls:
            if error.definite:
                call.failed()
            else:
                call.unknown()


class AppendWorker(Worker):
    """Its calls are appends."""

    def begin_append(self, topic: str, partition: int, **known: Any) -> OpenOperation:
        """An append of this client begins now."""
        call = self.begin(OperationKind.APPEND, topic, partition, **known)
        self.place.appends.begun(call)
        return call

    def appended(self, call: OpenOperation, found: Appended) -> None:
        """It was acknowledged."""
        call.ok(start=found.start)
        self.place.appends.ended(call)
        self.place.acks.note()

    def refused(self, call: OpenOperation, error: DLedgerError) -> None:
        """It was answered with an error."""
        self.ended(error, call)
        self.place.appends.ended(call, error)


class Appender(AppendWorker):
    """One append after the other. Each may be given up soon, so that some outcomes stay unknown."""

    async def step(self) -> None:
        await self.pause()
        topic, partition = self.any_partition()
        values = self.new_values(4)
        call = self.begin_append(topic, partition, values=values)
        try:
            found = await self.client.append(topic, self.encode(values), partition=partition)
        except DLedgerError as error:
            self.refused(call, error)
            await asyncio.sleep(PAUSE_S)
        else:
            self.appended(call, found)


class Pipeliner(AppendWorker):
    """An idempotent producer with many appends in flight. Now and then another producer takes over
    its name, while appends of the former one are still on their way."""

    async def step(self) -> None:
        topic = self.dice.choice(list(self.place.topics))
        producer = await self.client.producer(topic, name=self.name)
        for _ in range(self.dice.randint(20, 400)):
            if not self.place.going:
                break
            await self._append(producer, topic)
            await self.pause()
        if self.place.going and not self.place.appends.calm and self.dice.random() < 0.3:
            closing = asyncio.ensure_future(producer.close())  # the zombie
            await asyncio.sleep(0)
            closing.add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            await producer.close()

    async def _append(self, producer: AsyncProducer, topic: str) -> None:
        partition = self.dice.randrange(self.place.topics[topic])
        values = self.new_values(8)
        self._sequence += 1
        known = {"values": values, "producer": self.name, "sequence": self._sequence}
        call = self.begin_append(topic, partition, **known)
        try:
            future = await producer.append(self.encode(values), partition=partition)
        except DLedgerError as error:
            self.refused(call, error)
            raise
        future.add_done_callback(partial(self._answered, call))

    def _answered(self, call: OpenOperation, done: asyncio.Future[Appended]) -> None:
        if done.cancelled():
            call.unknown()
            self.place.appends.ended(call)
            return
        error = done.exception()
        if error is None:
            self.appended(call, done.result())
        elif isinstance(error, DLedgerError):
            self.refused(call, error)
        else:
            call.unknown()
            self.place.appends.ended(call)
            self.place.wrong.append(f"{self.name}: {error!r}")


async def run_all(
    workers: list[Worker], until: Awaitable[None], stopped: Callable[[], None], drain_s: float
) -> None:
    """Run all until ``until`` is done and say so by ``stopped``; then each ends its call that is
    under way, for at most ``drain_s``.

    Raises:
        RuntimeError: a client failed otherwise than it may.
    """
    tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
    end = asyncio.ensure_future(until)
    try:
        done, _ = await asyncio.wait([end, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            worker.place.going = False
        stopped()
        if end in done:
            end.result()
            done, _ = await asyncio.wait(tasks, timeout=drain_s)
        for task in done - {end}:
            if error := task.exception():
                raise RuntimeError(
                    f"a client failed in a way that it must not: {error!r}"
                ) from error
    finally:
        for task in (end, *tasks):
            task.cancel()
        await asyncio.gather(end, *tasks, return_exceptions=True)
