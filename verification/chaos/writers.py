"""Spark-like writers: micro-batches as transactions, staged by tasks that may die, committed again
after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dledger.client import AsyncStage, Committed
from dledger.errors import DLedgerError
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import make_records
from dledger.testing.checkers.history import OpenOperation, OperationKind
from verification.chaos.clients import PAUSE_S, Worker

STAGE_MS: Final = 60_000
TASKS: Final = 2
ABANDONED: Final = 1000
"""Added to an attempt's number for what one of its tasks staged before it died."""

Parts = dict[tuple[str, int], tuple[int, ...]]
"""(topic, partition) -> values, in the order of the stages that hold them."""


@dataclass(slots=True)
class Attempt:
    """One attempt of a transaction that is all staged."""

    number: int
    parts: Parts
    stages: tuple[StageSum, ...]


class Repeated(Exception):
    """The transaction is committed already."""


class TransactionWorker(Worker):
    """One transaction after the other."""

    @property
    def transaction(self) -> str:
        """The name of the one under way."""
        return f"{self.name}/{self._sequence}"

    def begin_commit(
        self, place: tuple[str, int], values: tuple[int, ...], attempt: int = 0
    ) -> OpenOperation:
        """Of the values in one partition."""
        known: dict[str, Any] = {"transaction": self.transaction, "attempt": attempt}
        return self.begin(OperationKind.TRANSACTION, *place, values=values, **known)

    def committed(
        self,
        calls: Mapping[tuple[str, int], OpenOperation],
        staged: Mapping[tuple[str, int], int],
        done: Committed,
    ) -> None:
        """The commit was acknowledged. It must have written as many records as were staged."""
        spans = {(t, p): span for t, found in done.offsets.items() for p, span in found.items()}
        for place, call in calls.items():
            call.ok(start=spans.get(place, (-1, -1))[0])
        written = {place: end - start for place, (start, end) in spans.items()}
        if written != staged:
            self.wrong(f"the commit wrote {written}, but staged were {staged}")
        self.place.acks.note()

    def wrong(self, text: str) -> None:
        """Something that must not be."""
        self.place.wrong.append(f"{self.transaction}: {text}")


class Writer(TransactionWorker):
    """Micro-batch after micro-batch, each repeated until it is known to be committed.

    A transaction's name is (writer id, sequence), as Spark's sink has (query id, batch id). Every
    attempt has values of its own, so that it can be told which one took effect.
    """

    async def step(self) -> None:
        await self.pause()
        attempts: list[int] = []
        while self.place.going:
            try:
                if await self._once(attempts):
                    break
            except Repeated:
                self._is_there(attempts)
                break
            except DLedgerError as error:
                self.place.failed(error)
                await asyncio.sleep(PAUSE_S)
        self._sequence += 1

    async def _once(self, open_attempts: list[int]) -> bool:
        """Stage and commit, now and then by two drivers at the same time. True when it is known to
        be committed.

        Args:
            open_attempts: numbers of attempts whose commit was sent and may have been done; added
                to.
        """
        count = 2 if self.dice.random() < 0.1 else 1
        staged = [await self._stage_all(len(open_attempts) + at) for at in range(count)]
        open_attempts += [attempt.number for attempt in staged]
        found = await asyncio.gather(*(self._commit(attempt, open_attempts) for attempt in staged))
        return any(found)

    async def _stage_all(self, number: int) -> Attempt:
        """All tasks of one attempt, one of which may die and be done again.

        Raises:
            Repeated: an earlier attempt took effect.
            DLedgerError: this attempt will never take effect.
        """
        parts: Parts = {}
        sums: list[StageSum] = []
        try:
            for _ in range(TASKS):
                if self.dice.random() < 0.1:
                    lost: Parts = {}
                    try:
                        await self._stage(lost, finish=False)
                    finally:
                        self._never(number + ABANDONED, lost)
                sums.append(await self._stage(parts))
        except (DLedgerError, Repeated):
            self._never(number + 2 * ABANDONED, parts)
            raise
        return Attempt(number, parts, tuple(sums))

    async def _stage(self, parts: Parts, *, finish: bool = True) -> StageSum:
        """One task; the values that it stages are added to ``parts`` before they are sent."""
        stage = await self.client.stage(self.name, self._sequence, timeout_ms=STAGE_MS)
        if not isinstance(stage, AsyncStage):
            raise Repeated
        try:
            for _ in range(self.dice.randint(1, 3)):
                topic, partition = self.any_partition()
                values = self.new_values(6)
                parts[topic, partition] = parts.get((topic, partition), ()) + values
                await stage.append_batch(topic, partition, make_records(self.encode(values)))
            if finish:
                return await stage.close()
        except DLedgerError:
            stage.cancel()
            raise
        stage.cancel()
        return StageSum(stage_id=stage.stage_id, batches=0, records=0)

    async def _commit(self, attempt: Attempt, open_attempts: list[int]) -> bool:
        calls = {
            place: self.begin_commit(place, values, attempt.number)
            for place, values in attempt.parts.items()
        }
        try:
            done = await self.client.commit_transaction(self.name, self._sequence, attempt.stages)
        except DLedgerError as error:
            self.ended(error, *calls.values())
            return False
        if done.repeated and len(open_attempts) > 1:  # one attempt, unknown which
            for call in calls.values():
                call.unknown()
            self._is_there(open_attempts)
            return True
        staged = {place: len(values) for place, values in attempt.parts.items()}
        self.committed(calls, staged, done)
        return True

    def _never(self, number: int, parts: Parts) -> None:
        """These values were staged and can never be committed: a read of one is an aborted read."""
        for place, values in parts.items():
            self.begin_commit(place, values, number).failed()

    def _is_there(self, attempts: list[int]) -> None:
        """Told that it was committed already: one of these attempts must have been."""
        place = self.place.partitions()[0]
        self.begin_commit(place, (), max(attempts, default=0) + 3 * ABANDONED).ok()
        self.place.acks.note()
