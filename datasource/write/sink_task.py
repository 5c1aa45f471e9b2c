"""The parts of a write of Spark: tasks, their transaction, and their staged records."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from dledger.datasource.write.exactly_once_key import WriteTransaction
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.digest import RowsSum


@dataclass(frozen=True, slots=True)
class Task:
    """A task as Spark describes it."""

    partition: int
    attempt: int
    query_id: str | None
    """Of the streaming query, from its checkpoint; None outside of one."""
    run_id: str
    """Of this run of the query; another one after each start."""
    batch_id: int

    @staticmethod
    def current() -> Task:
        """The task that this code runs in."""
        context = TaskContext.get()
        if context is None:
            return Task(0, 0, None, "", 0)
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId") if batch is not None else None
        run = context.getLocalProperty("spark.jobGroup.id") or ""
        return Task(context.partitionId(), context.attemptNumber(), query, run, int(batch or 0))

    @property
    def label(self) -> str:
        """The writer of a stage, for people."""
        return f"partition {self.partition} attempt {self.attempt}"


@dataclass
class Staged(WriterCommitMessage):
    """A task's message to the driver: which transaction it wrote for, which rows, and its stage if
    it sent any."""

    transaction: WriteTransaction
    stage: StageSum | None = None
    rows: RowsSum = field(default_factory=RowsSum)
