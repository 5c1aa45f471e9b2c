"""A round of either client: calls in an order that the seed chooses, ended half way where it
chooses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import cycle, islice
from random import Random
from typing import Any, Final, NamedTuple

from dledger.client import AsyncStage, Client, Stage
from dledger.errors import ConfigError, DLedgerError, TransactionError
from dledger.records.body.build import make_records
from verification.interrupts.book import OPEN, TAKEN, Attempt, Book, Unit
from verification.interrupts.calls import OTHERS
from verification.interrupts.kinds import ClientKind, Work
from verification.interrupts.messages import MESSAGE_CALLS, Messages

CALLS: Final = 24
"""Turns of a round of the blocking client, one call each; the asyncio client has half of them, of
more calls."""
PARTITIONS: Final = 3


class Servers(NamedTuple):
    """Addresses of a group with topics and of one with messages."""

    topics: str
    messages: str


class Turns(NamedTuple):
    """Calls that come in turn, over all rounds of a client: their names, without end."""

    others: Iterator[str]
    messages: Iterator[str]

    @staticmethod
    def start() -> Turns:
        """Names of `OTHERS` and `MESSAGE_CALLS`."""
        return Turns(cycle(OTHERS), cycle(MESSAGE_CALLS))


class Round:
    """One topic, one client, and the calls of a round.

    Args:
        turns: of rare calls.
    """

    def __init__(
        self,
        servers: Servers,
        topic: str,
        *,
        dice: Random,
        kind: ClientKind,
        turns: Turns,
    ) -> None:
        self.book = Book(topic)
        self._topic = topic
        self._dice = dice
        self._kind = kind
        self._call = kind.call
        self._client = kind.client(
            servers.topics, linger_ms=dice.choice((0, 1, 5)), **kind.settings
        )
        self._others = turns.others
        self._broker = kind.client(servers.messages)
        self.messages = Messages(self._broker, topic, dice=dice, turns=turns.messages)
        self._producers: list[Any] = []
        self._ended: list[Any] = []
        self._sequence = 0

    async def run(self) -> None:
        """Do the calls, then end everything without interrupts."""
        dice, whole = self._dice, self._kind.whole
        self._info = await whole(lambda: self._client.create_topic(self._topic, PARTITIONS))
        actions = [self._append] * 8 + [self._append_batch] * 2 + [self._direct] * 2
        actions += [self._transaction] * 2 + [self._stage, self._flush, self._close]
        actions += [self._result, self._read, self._ask, self._message]
        # without a record some calls would wait for one
        first = self.book.attempt(self.book.values(1))
        first.answer = await whole(
            lambda: self._client.append(self._topic, first.values, partition=0)
        )
        helper = await self._helper() if self._kind.alone and dice.random() < 0.3 else None
        turns, sizes = (CALLS, (1,)) if self._kind.alone else (CALLS // 2, (1, 2, 6, 12))
        for _ in range(turns):
            chosen = [dice.choice(actions) for _ in range(dice.choice(sizes))]
            await self._kind.together([action() for action in chosen])
        if helper is not None:
            helper.join()
        for producer in [*self._producers, *self._ended]:
            await whole(producer.close)
        self.book.settle()
        await whole(self._client.close)
        await whole(self._broker.close)

    async def _producer(self) -> Any:
        while not self._producers or (len(self._producers) < 3 and self._dice.random() < 0.1):
            producer, _ = await self._call(
                "client.producer", lambda: self._client.producer(self._topic)
            )
            if producer is not None:
                self._producers.append(producer)
        return self._dice.choice(self._producers)

    async def _append(self) -> None:
        producer, key = await self._producer(), self._dice.choice((None, b"a", b"b", b"c", b"d"))
        values = self.book.values(count := self._dice.choice((1, 1, 1, 3, 40)))
        given: Any = values[0] if count == 1 else values
        keys: Any = key if count == 1 or key is None else [key] * count
        await self._take(producer, "append", values, lambda: producer.append(given, keys=keys))

    async def _append_batch(self) -> None:
        producer, at = await self._producer(), self._dice.randrange(PARTITIONS)
        values = self.book.values(self._dice.choice((1, 5, 100)))
        batch = make_records(values)
        await self._take(producer, "append_batch", values, lambda: producer.append_batch(at, batch))

    async def _take(self, producer: Any, name: str, values: list[bytes], work: Work) -> None:
        # appends that overlap have no order
        one = self.book.attempt(values, producer.name if self._kind.alone else "")
        try:
            future, _ = await self._call(f"producer.{name}", work)
        except DLedgerError:
            if self._kind.alone:
                raise
            return  # closed meanwhile
        if future is not None:
            one.state, one.future = TAKEN, future

    async def _direct(self) -> None:
        one = self.book.attempt(self.book.values(self._dice.choice((1, 4))))
        name, work = "append", lambda: self._client.append(self._topic, one.values)
        if self._dice.random() < 0.5:
            batch, at = make_records(one.values), self._dice.randrange(PARTITIONS)
            name = "append_batch"
            work = lambda: self._client.append_batch(self._topic, at, batch)  # noqa: E731
        one.answer, _ = await self._call(f"client.{name}", work)
        if one.answer is not None:
            one.state = TAKEN

    async def _flush(self) -> None:
        producer = await self._producer()
        _, ended = await self._call("producer.flush", producer.flush)
        if not ended:
            for one in self.book.attempts:
                if one.who == producer.name and one.future is not None and not one.future.done():
                    self.book.problems.append(f"{one} has no answer behind a flush")

    async def _close(self) -> None:
        producer = await self._producer()
        if producer in self._producers:  # else it is closed at the same time
            self._producers.remove(producer)
            self._ended.append(producer)
        for _ in range(self._dice.choice((1, 2))):
            await self._call("producer.close", producer.close)

    async def _result(self) -> None:
        waiting = [
            one for one in self.book.attempts if one.future is not None and not one.future.done()
        ]
        if waiting:
            future = self._dice.choice(waiting).future
            with contextlib.suppress(DLedgerError):
                await self._call("future.result", lambda: self._kind.answer_of(future))

    async def _read(self) -> None:
        at, client, kind = self._dice.randrange(PARTITIONS), self._client, self._kind
        if self._dice.random() < 0.3:
            end = (await kind.whole(lambda: client.end_offsets(self._topic)))[at]
            for way in ("fetch_bodies", "fetch"):
                call = getattr(client, way)
                await self._call(
                    f"client.{way}",
                    lambda: kind.all_of(call(self._topic, at, 0, end)),  # noqa: B023
                )
            return
        reader, _ = await self._call("client.read", lambda: client.read(self._topic, at, 0))
        found: list[bytes] = []
        while reader is not None:
            batch, ended = await self._call("client.read", lambda: kind.next_of(reader))
            if batch is not None:
                found += batch["value"].to_pylist()
            elif not ended:
                # an interrupt behind the return drops a batch, as any result; a cancellation none
                self.book.read(at, found, whole=not kind.alone)
                return

    async def _ask(self) -> None:
        for name in islice(self._others, 5):
            call, answers = OTHERS[name]
            with contextlib.suppress(DLedgerError):
                answer, ended = await self._call(
                    f"client.{name}",
                    lambda: call(self._client, self._info),  # noqa: B023
                )
                if not ended and not isinstance(answer, answers):
                    self.book.problems.append(f"client.{name} was answered with {answer!r}")

    async def _message(self) -> None:
        for _ in range(3):
            name, (call, took) = self.messages.next()
            answer, ended = await self._call(f"client.{name}", call)
            if not ended:
                took(answer)

    def _unit(self) -> Unit:
        """A transaction that begins now. Only one at a time may be the writer's next one."""
        self._sequence += 1
        writer = self._topic if self._kind.alone else f"{self._topic} {self._sequence}"
        unit = Unit(writer, self._sequence)
        self.book.units.append(unit)
        return unit

    async def _transaction(self) -> None:
        """A transaction whose appends' interrupts its block bears, or does not."""
        unit, bears = self._unit(), self._dice.random() < 0.5
        transaction, _ = await self._call(
            "client.transaction",
            lambda: self._client.transaction(unit.writer_id, unit.sequence),
        )
        if transaction is None:
            return
        for _ in range(self._dice.randrange(1, 4)):
            one = Attempt(self.book.values(self._dice.choice((1, 30, 200))))
            unit.attempts.append(one)
            keys = [self._dice.choice((b"a", b"b", b"c", b"d")) for _ in one.values]
            name, work = "append", lambda: transaction.append(self._topic, one.values, keys=keys)  # noqa: B023
            if self._dice.random() < 0.3:
                batch = make_records(one.values)
                name = "append_batch"
                work = lambda: transaction.append_batch(self._topic, 1, batch)  # noqa: B023, E731
            _, ended = await self._call(f"transaction.{name}", work)
            one.state = OPEN if ended else TAKEN
            if ended and not bears:
                await self._end(unit, "transaction.abort", transaction.abort)
                return
        await self._end(unit, "transaction.commit", transaction.commit)

    async def _end(self, unit: Unit, name: str, work: Work) -> None:
        """Commit or abort; once more where it was ended half way."""
        for _ in range(2):
            try:
                _, ended = await self._call(name, work)
            except TransactionError:
                unit.ended = "aborted"  # refused: an append before it was ended half way
                return
            if not ended:
                unit.ended = "committed" if name == "transaction.commit" else "aborted"
                return

    async def _stage(self) -> None:
        unit = self._unit()
        of = unit.writer_id, unit.sequence
        stage, _ = await self._call("client.stage", lambda: self._client.stage(*of))
        if not isinstance(stage, Stage | AsyncStage):
            return
        for _ in range(4):
            one = Attempt(self.book.values(50))
            unit.attempts.append(one)
            batch, at = make_records(one.values), self._dice.randrange(PARTITIONS)
            append = lambda: stage.append_batch(self._topic, at, batch)  # noqa: B023, E731
            _, ended = await self._call("stage.append_batch", append)
            one.state = OPEN if ended else TAKEN
        try:
            total, _ = await self._call("stage.close", stage.close)
        except TransactionError:
            unit.ended = "aborted"
            return
        if total is not None:
            commit = lambda: self._client.commit_transaction(*of, (total,))  # noqa: E731
            await self._end(unit, "transaction.commit", commit)

    async def _helper(self) -> threading.Thread:
        """A thread without interrupts, on a producer whose other calls are interrupted."""
        producer, dice = await self._producer(), Random(self._dice.random())
        batches = [self.book.values(dice.choice((1, 1, 20))) for _ in range(60)]

        def work() -> None:
            for values in batches:
                one = Attempt(values, who=f"{producer.name} from a thread")
                try:
                    one.future = producer.append(values, partition=dice.randrange(PARTITIONS))
                except ConfigError:
                    return  # closed
                one.state = TAKEN
                self.book.attempts.append(one)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread


def stored(servers: str, topic: str, book: Book) -> dict[int, list[bytes]]:
    """All values of a topic, by partition, when no append to it is under way any more."""
    with Client(servers) as client:
        for unit in book.units:
            # its commit may still come, and between the reads of two partitions
            if unit.ended == OPEN:
                client.abort_transaction(unit.writer_id, unit.sequence)
        return {
            at: [
                value for batch in client.read(topic, at, 0) for value in batch["value"].to_pylist()
            ]
            for at in range(PARTITIONS)
        }
