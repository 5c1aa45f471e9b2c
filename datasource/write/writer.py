"""Batch writes, also those inside foreachBatch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dledger.datasource.options.option_table import WRITE
from dledger.datasource.options.options import parse_options
from dledger.datasource.worker import settle
from dledger.datasource.write.exactly_once_key import (
    WriteTransaction,
    of_foreach_batch,
    of_job,
    of_named_write,
)
from dledger.datasource.write.nameless import warn_of_repeats
from dledger.datasource.write.sink import Sink, refuse_overwrite
from dledger.datasource.write.sink_task import Staged, Task
from dledger.datasource.write.write_fence import WriteNote
from dledger.errors import ConfigError


class BatchWriter(DataSourceArrowWriter):
    """One write: staged by tasks, committed at once. Spark pickles this object to the tasks and to
    the commit, so the job's id is the same everywhere."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite, "mode overwrite")
        self.job = str(uuid.uuid4())
        self.sink = Sink.plan(parse_options(options, WRITE), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        task = Task.current()
        return self.sink.stage(iterator, task, self._transaction(task))

    def _transaction(self, task: Task) -> WriteTransaction:
        topic, txn_id = self.sink.topic, self.sink.options.txn_id
        if task.query_id is not None:
            key = of_foreach_batch(task.query_id, task.batch_id, topic, txn_id)
            if not self.sink.options.exactly_once:
                return key
            return replace(key, claim=self._claim(task, key.writer_id))
        return of_named_write(txn_id, topic) if txn_id else of_job(self.job)

    def _claim(self, task: Task, name: str) -> WriteNote | None:
        options, topic = self.sink.options, self.sink.topic
        try:
            uuid.UUID(task.run_id)
        except ValueError:
            if options.txn_id:
                return None
            raise ConfigError(
                f"foreachBatch has set a job group of its own ({task.run_id!r}) in place of the "
                f"query's run id, without which two writes to topic {topic!r} in one batch could "
                "not be told apart: give each write its own name, as in .option('txnId', "
                "'orders')"
            ) from None
        return WriteNote(task.run_id, task.batch_id, options.address, name, topic, self.job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.commit(messages)
        staged = [one for one in messages if isinstance(one, Staged) and one.stage is not None]
        if staged and not staged[0].transaction.may_be_repeated:
            warn_of_repeats(self.sink.topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.abort(messages)
