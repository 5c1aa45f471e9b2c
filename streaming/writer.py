"""The sink of writeStream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dledger.datasource.options.option_table import WRITE
from dledger.datasource.options.options import parse_options
from dledger.datasource.worker import settle
from dledger.datasource.write.exactly_once_key import of_micro_batch
from dledger.datasource.write.sink import Sink, refuse_overwrite
from dledger.datasource.write.sink_task import Task
from dledger.errors import ConfigError
from dledger.tracing import span


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch once, also when a part fails and is run again. Spark makes three of
    these for a batch, which share nothing: the values that commit() needs travel in the tasks'
    messages."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite, "output mode complete")
        checked = parse_options(options, WRITE)
        if checked.txn_id:
            raise ConfigError(
                "option 'txnId' is for batch writes and foreachBatch; a stream has its query's id"
            )
        self.sink = Sink.plan(checked, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        task = Task.current()
        if task.query_id is None and self.sink.options.exactly_once:
            raise ConfigError(
                "a task of this stream has no query id, without which it cannot be written "
                "exactly once"
            )
        transaction = of_micro_batch(task.query_id, task.batch_id, self.sink.topic)
        return self.sink.stage(iterator, task, transaction)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with span("commit micro-batch", topic=self.sink.topic, batch=batchId):
            self.sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.abort(messages)
