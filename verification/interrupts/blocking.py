"""A round of the blocking client: calls in an order that the seed chooses, interrupted where it
chooses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger.client import Client, Producer, Stage
from dledger.errors import ConfigError, DLedgerError, TransactionError
from verification.interrupts.book import OPEN, TAKEN, Attempt, Book, Unit
from verification.interrupts.calls import OTHERS
from verification.interrupts.inject import Injector
from verification.interrupts.messages import Messages

CALLS: Final = 24
"""Calls of a round, beside those that end it."""
SETTINGS: Final[dict[str, Any]] = {
    "max_in_flight": 8,
    "max_in_flight_bytes": 4096,
    "batch_bytes": 512,
}
"""So little that appends wait for room all the time."""
PARTITIONS: Final = 3


class Servers(NamedTuple):
    """Addresses of a group with topics and of one with messages."""

    topics: str
    messages: str


class Round:
    """One topic, one client, and the calls of a round.

    Args:
        others: names of `OTHERS`, without end.
    """

    def __init__(
        self, servers: Servers, topic: str, dice: Random, injector: Injector, others: Iterator[str]
    ) -> None:
        self.book = Book(topic)
        self._topic = topic
        self._dice = dice
        self._injector = injector
        self._client = Client(servers.topics, linger_ms=dice.choice((0, 1, 5)), **SETTINGS)
        self._info = self._client.create_topic(topic, PARTITIONS)
        self._others = others
        self._broker = Client(servers.messages)
        self.messages = Messages(self._broker, topic, dice)
        self._producers: list[Producer] = []
        self._ended: list[Producer] = []
        self._sequence = 0

    def run(self) -> None:
        """Do the calls, then end everything without interrupts."""
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
        # without a record some calls would wait for one
        first = self.book.attempt(self.book.values(1))
        first.answer = self._client.append(self._topic, first.values, partition=0)
        helper = self._helper() if self._dice.random() < 0.3 else None
        for _ in range(CALLS):
            self._dice.choice(actions)()
        if helper is not None:
            helper.join()
        for producer in [*self._producers, *self._ended]:
            producer.close()
        self.book.settle()
        self._client.close()
        self._broker.close()

    def _call(self, name: str, function: Any) -> tuple[Any, BaseException | None]:
        return self._injector.call(name, function)

    def _producer(self) -> Producer:
        while not self._producers or (len(self._producers) < 3 and self._dice.random() < 0.1):
            producer, _ = self._call("client.producer", lambda: self._client.producer(self._topic))
            if producer is not None:
                self._producers.append(producer)
        return self._dice.choice(self._producers)

    def _key(self) -> bytes | None:
        return self._dice.choice((None, b"a", b"b", b"c", b"d"))

    def _append(self) -> None:
        producer, key, count = self._producer(), self._key(), self._dice.choice((1, 1, 1, 3, 40))
        values = self.book.values(count)
        given: Any = values[0] if count == 1 else values
        keys: Any = key if count == 1 or key is None else [key] * count
        one = self.book.attempt(values, producer.name)
        self._took(one, self._call("producer.append", lambda: producer.append(given, keys=keys)))

    def _append_batch(self) -> None:
        producer = self._producer()
        batch = _batch(self.book.values(self._dice.choice((1, 5, 100))))
        one = self.book.attempt(batch["value"].to_pylist(), producer.name)
        at = self._dice.randrange(PARTITIONS)
        self._took(
            one, self._call("producer.append_batch", lambda: producer.append_batch(at, batch))
        )

    def _took(self, one: Attempt, outcome: tuple[Any, BaseException | None]) -> None:
        future, _ = outcome
        if future is not None:
            one.state, one.future = TAKEN, future

    def _direct(self) -> None:
        one = self.book.attempt(self.book.values(self._dice.choice((1, 4))))
        if self._dice.random() < 0.5:
            call = lambda: self._client.append(self._topic, one.values)  # noqa: E731
            one.answer, _ = self._call("client.append", call)
        else:
            batch, at = _batch(one.values), self._dice.randrange(PARTITIONS)
            one.answer, _ = self._call(
                "client.append_batch", lambda: self._client.append_batch(self._topic, at, batch)
            )
        if one.answer is not None:
            one.state = TAKEN

    def _flush(self) -> None:
        producer = self._producer()
        _, interrupt = self._call("producer.flush", producer.flush)
        if interrupt is None:
            for one in self.book.attempts:
                if one.who == producer.name and one.future is not None and not one.future.done():
                    self.book.problems.append(f"{one.values[0]!r} has no answer behind a flush")

    def _close(self) -> None:
        producer = self._producer()
        self._producers.remove(producer)
        self._ended.append(producer)
        if self._dice.random() < 0.5 or self._call("producer.close", producer.close)[1] is not None:
            self._call("producer.close", producer.close)

    def _result(self) -> None:
        waiting = [
            one for one in self.book.attempts if one.future is not None and not one.future.done()
        ]
        if waiting:
            one = self._dice.choice(waiting)
            with contextlib.suppress(DLedgerError):
                self._call("future.result", one.future.result)

    def _read(self) -> None:
        at = self._dice.randrange(PARTITIONS)
        if self._dice.random() < 0.3:
            end = self._client.end_offsets(self._topic)[at]
            self._call(
                "client.fetch_bodies",
                lambda: list(self._client.fetch_bodies(self._topic, at, 0, end)),
            )
            return
        reader, _ = self._call("client.read", lambda: self._client.read(self._topic, at, 0))
        found: list[bytes] = []
        while reader is not None:
            batch, interrupt = self._call("client.read", lambda: next(reader, None))
            if batch is not None:
                found += batch["value"].to_pylist()
            elif interrupt is None:
                # an interrupt behind the return drops a batch, as any result
                self.book.read(at, found, whole=False)
                return

    def _ask(self) -> None:
        for name in islice(self._others, 3):
            call, kind = OTHERS[name]
            with contextlib.suppress(DLedgerError):
                answer, interrupt = self._call(
                    f"client.{name}",
                    lambda: call(self._client, self._info),  # noqa: B023
                )
                if interrupt is None and not isinstance(answer, kind):
                    self.book.problems.append(f"client.{name} was answered with {answer!r}")

    def _message(self) -> None:
        for _ in range(3):
            name, call, took = self.messages.next()
            answer, interrupt = self._call(f"client.{name}", call)
            if interrupt is None:
                took(answer)

    def _transaction(self) -> None:
        """A transaction whose appends' interrupts its block bears, or does not."""
        self._sequence += 1
        unit, bears = Unit(self._topic, self._sequence), self._dice.random() < 0.5
        self.book.units.append(unit)
        transaction, _ = self._call(
            "client.transaction", lambda: self._client.transaction(self._topic, self._sequence)
        )
        if transaction is None:
            return
        for _ in range(self._dice.randrange(1, 4)):
            one = Attempt(self.book.values(self._dice.choice((1, 30, 200))))
            unit.attempts.append(one)
            keys = [self._dice.choice((b"a", b"b", b"c", b"d")) for _ in one.values]
            name, append = "append", lambda: transaction.append(self._topic, one.values, keys=keys)  # noqa: B023
            if self._dice.random() < 0.3:
                batch = _batch(one.values)
                name = "append_batch"
                append = lambda: transaction.append_batch(self._topic, 1, batch)  # noqa: B023, E731
            try:
                _, interrupt = self._call(f"transaction.{name}", append)
            except TransactionError:  # an abort before was interrupted
                interrupt = None
            else:
                one.state = OPEN if interrupt else TAKEN
            if interrupt is not None and not bears:
                self._end(unit, "transaction.abort", transaction.abort)
                return
        self._end(unit, "transaction.commit", transaction.commit)

    def _end(self, unit: Unit, name: str, function: Any) -> None:
        """Commit or abort; once more where it was interrupted."""
        for _ in range(2):
            try:
                _, interrupt = self._call(name, function)
            except TransactionError:
                unit.ended = "aborted"  # refused: an append before it was interrupted
                return
            if interrupt is None:
                unit.ended = "committed" if name == "transaction.commit" else "aborted"
                return

    def _stage(self) -> None:
        self._sequence += 1
        number = self._sequence
        unit = Unit(self._topic, number)
        self.book.units.append(unit)
        stage, _ = self._call("client.stage", lambda: self._client.stage(self._topic, number))
        if not isinstance(stage, Stage):
            return
        for _ in range(2):
            one = Attempt(self.book.values(50))
            unit.attempts.append(one)
            batch, at = _batch(one.values), self._dice.randrange(PARTITIONS)
            append = lambda: stage.append_batch(self._topic, at, batch)  # noqa: B023, E731
            _, interrupt = self._call("stage.append_batch", append)
            one.state = OPEN if interrupt else TAKEN
        try:
            total, _ = self._call("stage.close", stage.close)
        except TransactionError:
            unit.ended = "aborted"
            return
        if total is not None:
            commit = lambda: self._client.commit_transaction(self._topic, number, (total,))  # noqa: E731
            self._end(unit, "transaction.commit", commit)

    def _helper(self) -> threading.Thread:
        """A thread without interrupts, on a producer whose other calls are interrupted."""
        producer, dice = self._producer(), Random(self._dice.random())
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


def _batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


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
