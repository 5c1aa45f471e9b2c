"""Writes as Spark's sink makes them: each commit has count and digest of its rows, and is made
again now and then.

A repeat with the same rows changes nothing, also when it was staged a second time; one with other
rows, or of an older sequence, is refused, even when leaders, nodes and answers were lost meanwhile.
Reads of clients are judged with all the rest of the history: refused rows must never be seen, and
those of a repeat once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.client import AsyncStage, Committed
from dledger.errors import DLedgerError, ReplayMismatch
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import make_records
from dledger.records.digest import RowsSum, sum_rows
from dledger.testing.checkers.history import OpenOperation, OperationKind
from verification.sim.session import ClientSession
from verification.sim.shared_history import Topic

TRIES: Final = 4
STAGE_MS: Final = 5000
RIVALS: Final = 200_000
"""So many writes in a million have a stage with other rows open while they commit."""
LEAVES: Final = 400_000
"""So many times in a million the next write is another writer's, so that earlier ones are forgotten
in the end."""


@dataclass(slots=True)
class Rows:
    """The rows of one write, and their place."""

    topic: Topic
    partition: int
    numbers: tuple[int, ...]
    values: list[bytes]

    @property
    def sum(self) -> RowsSum:
        return sum_rows(make_records(self.values))


class Writes:
    """Writers, one after the other in each life of a client: another one follows a write with an
    unknown outcome."""

    def __init__(self, life: ClientSession) -> None:
        self._life = life
        self._client = life.client
        self._rng = life.rng.fork("writes")
        self._writers = 0
        self._sequence = 0
        self._last: Rows | None = None
        self._left: list[tuple[str, int, RowsSum]] = []
        """Writers that write no more, with their last write."""

    @property
    def name(self) -> str:
        return f"spark/{self._life.session}-w{self._writers}/t"

    async def write(self) -> None:
        """One write, known to be committed, perhaps with repeats; else the next one is another
        writer's."""
        before, self._last = self._last, None
        rows = self._new_rows()
        rival = self._new_rows() if self._rng.chance(RIVALS) else None
        if not await self._commit(rows, rival):
            self._writers, self._sequence = self._writers + 1, 0
            return
        self._last = rows
        await self._repeat(rows)
        if before is not None and self._rng.chance(300_000):
            await self._refused("an older write", self.name, self._sequence - 1, before.sum)
        if self._left:
            await self._come_back(*self._rng.pick(self._left))
        if self._rng.chance(LEAVES):
            self._left.append((self.name, self._sequence, rows.sum))
            self._writers, self._sequence, self._last = self._writers + 1, 0, None
        else:
            self._sequence += 1

    async def _come_back(self, name: str, sequence: int, rows: RowsSum) -> None:
        """An earlier writer's last write again, of which a hash may be left: with the same rows, or
        with others. Where no hash is left, the commit has no stages for its rows, and is refused
        for that."""
        if self._rng.chance(500_000):
            await self._refused(
                "an earlier writer's repeat with other rows", name, sequence, rows + RowsSum(0, 1)
            )
            return
        try:
            done = await self._client.commit_transaction(name, sequence, (), rows)
        except ReplayMismatch as error:
            self._broken(f"an earlier writer's repeat with the same rows is refused: {error}")
        except DLedgerError as error:
            self._life.note(f"return of {name} {sequence}: {error}")
        else:
            if not done.repeated or done.records != rows.count:
                self._broken(f"an earlier writer's repeat is taken for a new write: {done}")

    def _new_rows(self) -> Rows:
        numbers, values = self._life.new_values()
        return Rows(*self._life.place(), numbers, values)

    async def _commit(self, rows: Rows, rival: Rows | None) -> bool:
        """Stage and commit until it is known to be done. Whether it is."""
        call = self._begin(rows, 0)
        refused = None if rival is None else self._begin(rival, 1)
        committed: Committed | None = None
        other: Sequence[StageSum] = ()
        is_definite = True
        for _ in range(TRIES):
            try:
                if rival is not None and not other:
                    other = await self._stage(rival)
                stages = await self._stage(rows)
                committed = await self._client.commit_transaction(
                    self.name, self._sequence, stages, rows.sum
                )
                break
            except ReplayMismatch as error:
                self._broken(f"a write that is the only one of its name is refused: {error}")
                break
            except DLedgerError as error:
                self._life.note(f"write {self.name} {self._sequence}: {error}")
                is_definite = is_definite and error.definite
        self._end(call, rows, committed, is_definite)
        if refused is not None and rival is not None:
            refused.failed()  # its commit is refused, or was never asked for
            if committed is not None and other:
                await self._refused(
                    "a write with other rows", self.name, self._sequence, rival.sum, other
                )
        return committed is not None

    async def _stage(self, rows: Rows) -> Sequence[StageSum]:
        """One stage with these rows; none when the write is committed already."""
        stage = await self._client.stage(self.name, self._sequence, timeout_ms=STAGE_MS)
        if not isinstance(stage, AsyncStage):
            return ()
        try:
            await stage.append_batch(rows.topic.name, rows.partition, make_records(rows.values))
            return (await stage.close(),)
        except DLedgerError:
            stage.cancel()
            raise

    def _begin(self, rows: Rows, attempt: int) -> OpenOperation:
        return self._life.begin(
            OperationKind.TRANSACTION,
            rows.topic,
            rows.partition,
            values=rows.numbers,
            transaction=f"{self.name}/{self._sequence}",
            attempt=attempt,
        )

    def _end(
        self, call: OpenOperation, rows: Rows, done: Committed | None, is_definite: bool
    ) -> None:
        if done is not None:
            start, end = done.offsets.get(rows.topic.name, {}).get(rows.partition, (-1, -1))
            if end - start != len(rows.values) or done.records != len(rows.values):
                self._broken(f"the commit of {len(rows.values)} rows says {done}")
            call.ok(start=start)
            self._life.workload.done(rows.topic.name, rows.partition, start, end, len(rows.values))
        elif is_definite:
            call.failed()
        else:
            call.unknown()

    async def _repeat(self, rows: Rows) -> None:
        """The committed write again: with the same rows, or with others."""
        if self._rng.chance(300_000):
            try:
                stages = await self._stage(rows)
                done = await self._client.commit_transaction(
                    self.name, self._sequence, stages, rows.sum
                )
            except ReplayMismatch as error:
                self._broken(f"a repeat with the same rows is refused: {error}")
            except DLedgerError as error:
                self._life.note(f"repeat of {self.name} {self._sequence}: {error}")
            else:
                if stages or not done.repeated or done.records != len(rows.values):
                    self._broken(
                        f"a repeat with the same rows is taken for a new write: {stages}, {done}"
                    )
        if self._rng.chance(300_000):
            more = RowsSum(0, 1) if self._rng.chance(500_000) else RowsSum(1, 0)
            other = rows.sum + more
            await self._refused("a repeat with other rows", self.name, self._sequence, other)

    async def _refused(
        self, what: str, name: str, sequence: int, rows: RowsSum, stages: Sequence[StageSum] = ()
    ) -> None:
        try:
            done = await self._client.commit_transaction(name, sequence, stages, rows)
        except ReplayMismatch:
            return
        except DLedgerError as error:
            self._life.note(f"{what} under {name} {sequence}: {error}")
        else:
            self._broken(f"{what} is accepted: {done}")

    def _broken(self, text: str) -> None:
        self._life.workload.world.breaks("I30", f"{self.name} {self._sequence}: {text}")
