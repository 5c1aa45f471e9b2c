"""Writers whose commits have count and digest of their rows, and are made again with the same rows
and with others."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from dledger.client import AsyncStage, Committed
from dledger.errors import DLedgerError, ReplayMismatch
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import make_records
from dledger.records.digest import RowsSum, sum_rows
from dledger.testing.checkers.history import OpenOperation
from verification.chaos.clients import PAUSE_S
from verification.chaos.writers import STAGE_MS, TransactionWorker

Batches = dict[tuple[str, int], pa.RecordBatch]
"""(topic, partition) -> the rows for it, at every attempt the same."""


class HeldWriter(TransactionWorker):
    """One write after the other, each repeated until it is known to be committed, as Spark's driver
    is started again until its micro-batch is done: with the same rows each time."""

    async def step(self) -> None:
        await self.pause()
        batches: Batches = {}
        calls: dict[tuple[str, int], OpenOperation] = {}
        for topic, partition in self.dice.sample(self.place.partitions(), self.dice.randint(1, 2)):
            values = self.new_values(6)
            batches[topic, partition] = make_records(self.encode(values))
            calls[topic, partition] = self.begin_commit((topic, partition), values)
        rows = sum((sum_rows(batch) for batch in batches.values()), RowsSum())
        while self.place.going:
            try:
                done = await self._commit(batches, rows)
            except ReplayMismatch as error:
                self.wrong(f"the same rows are refused: {error}")
                break
            except DLedgerError as error:
                self.place.failed(error)
                await asyncio.sleep(PAUSE_S)
                continue
            self.committed(calls, {place: len(batch) for place, batch in batches.items()}, done)
            await self._again(batches, rows)
            break
        self._sequence += 1

    async def _commit(self, batches: Batches, rows: RowsSum) -> Committed:
        """Stage all rows and commit them; rows that are committed already are not staged again."""
        stage = await self.client.stage(f"spark/{self.name}/t", self._sequence, timeout_ms=STAGE_MS)
        stages: tuple[StageSum, ...] = ()
        if isinstance(stage, AsyncStage):
            try:
                for (topic, partition), batch in batches.items():
                    await stage.append_batch(topic, partition, batch)
                stages = (await stage.close(),)
            except DLedgerError:
                stage.cancel()
                raise
        return await self.client.commit_transaction(
            f"spark/{self.name}/t", self._sequence, stages, rows
        )

    async def _again(self, batches: Batches, rows: RowsSum) -> None:
        """Now and then the committed write once more, with the same rows or with others, or the one
        before."""
        name, sequence = f"spark/{self.name}/t", self._sequence
        try:
            if self.dice.random() < 0.3:
                done = await self._commit(batches, rows)
                if not done.repeated or done.records != rows.count:
                    self.wrong(f"a repeat is taken for a new write: {done}")
            if self.dice.random() < 0.3:
                other = rows + self.dice.choice([RowsSum(0, 1), RowsSum(1, 0)])
                await self._refused(name, sequence, other, "a repeat with other rows")
            if sequence and self.dice.random() < 0.3:
                await self._refused(name, sequence - 1, rows, "an older write")
        except ReplayMismatch as error:
            self.wrong(f"a repeat with the same rows is refused: {error}")
        except DLedgerError as error:
            self.place.failed(error)

    async def _refused(self, name: str, sequence: int, rows: RowsSum, what: str) -> None:
        try:
            done = await self.client.commit_transaction(name, sequence, (), rows)
        except ReplayMismatch:
            return
        self.wrong(f"{what} is accepted: {done}")
