"""Transactions of a client process: over some partitions, tried again, committed or aborted."""

from __future__ import annotations

from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OperationKind
from verification.sim.session import ClientSession
from verification.sim.shared_history import Topic

Place = tuple[Topic, int]
"""A topic and a partition of it."""


class Transactions:
    """A client's, in each of its lives."""

    def __init__(self, life: ClientSession) -> None:
        self._life = life
        self._rng = life.rng
        self._transactions = 0

    async def transact(self) -> None:
        """A transaction over one or more partitions, tried until it is known to be done, or given
        up. Now and then a client goes through all of a transaction again that is done, as if it did
        not know."""
        self._transactions += 1
        name = f"{self._life.session}-{self._transactions}"
        places = [self._life.place() for _ in range(self._rng.between(1, 3))]
        for attempt in range(self._rng.between(1, 4)):
            if await self._attempt(name, places, attempt):
                if self._rng.chance(200_000):
                    await self._attempt(name, places, attempt + 1)
                return

    async def _attempt(self, name: str, places: list[Place], attempt: int) -> bool:
        """Whether nothing more is to be done."""
        try:
            transaction = await self._life.client.transaction(
                name, self._transactions, timeout_ms=5000
            )
        except DLedgerError as error:
            self._life.note(f"transaction {name}: {error}")
            return False
        wanted: dict[Place, list[int]] = {}
        pieces: list[tuple[Place, list[bytes]]] = []
        for place in places:
            numbers, values = self._life.new_values()
            wanted.setdefault(place, []).extend(numbers)
            pieces.append((place, values))
        calls = {
            (topic, partition): self._life.begin(
                OperationKind.TRANSACTION,
                topic,
                partition,
                values=tuple(numbers),
                transaction=name,
                attempt=attempt,
            )
            for (topic, partition), numbers in wanted.items()
        }
        try:
            for (topic, partition), values in pieces:
                await transaction.append(topic.name, values, partition=partition)
            if self._rng.chance(150_000):
                await transaction.abort()
                for call in calls.values():
                    call.failed()
                return True
            result = await transaction.commit()
        except DLedgerError as error:
            for call in calls.values():
                self._life.ended(call, f"transaction {name}", error)
            return False
        self._life.note(f"transaction {name}: {result}")
        for (topic, partition), call in calls.items():
            start, end = result.offsets.get(topic.name, {}).get(partition, (-1, -1))
            if attempt == 0 and end - start == len(wanted[topic, partition]):
                call.ok(start=start)
                self._life.workload.done(topic.name, partition, start, end, end - start)
            else:  # a repeat may tell of the attempt before
                call.unknown()
        return True
