"""Batch reads of the files of a RocketMQ store, or of a node of Java's DLedger: ``.option("layout",
"rocketmq")``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dledger.datasource.options.option_table import BATCH
from dledger.datasource.options.store_options import LATEST, parse_store_options
from dledger.datasource.read.planning import LEAST_BYTES, MOST_BYTES, MOST_TASKS, TASKS_PER_CORE
from dledger.datasource.stores.store_schema import columns_to_read
from dledger.datasource.worker import settle
from dledger.errors import CorruptEntry, PathError
from dledger.rocketmq.columns.commit_log import ColumnBatch
from dledger.rocketmq.files.layout import DLEDGER, Store, open_store
from dledger.rocketmq.files.ranges import FileRange, cut, plan_store, read_range
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.scanned_piece import ScannedPiece

LOGGER: Final = logging.getLogger("dledger.spark")
WAY_OUT: Final = (
    "To read what is sound, set option 'onDamage' to skip; .option('metadata', "
    "'damage') is a table of all such places"
)


@dataclass
class StoreSlice(InputPartition):
    """The input of one task, in plain values: it travels to an executor that knows only the reader
    beside it."""

    storage: Storage
    range: FileRange | None = None
    """None: only ``faults``."""
    faults: tuple[ScannedPiece, ...] = ()
    """The faults between files, for the table of damage."""


class StoreReads:
    """A read of a store's files, of a batch or a stream: its options, its tasks, and their rows.
    Spark pickles it to the executors. Messages that a broker writes meanwhile are read where a task
    comes by them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, use: str) -> None:
        self.options = parse_store_options(options, use)
        self.columns = columns_to_read(self.options, schema)
        self.schema = schema

    def open(self) -> Store:
        """Find the files."""
        return open_store(self.options.storage, self.options.layout)

    def tasks(self, storage: Storage, ranges: Sequence[FileRange]) -> list[InputPartition]:
        """The tasks that read these ranges."""
        options = self.options
        total = sum(one.bytes for one in ranges)
        most = min(max(total // (TASKS_PER_CORE * (os.cpu_count() or 2)), LEAST_BYTES), MOST_BYTES)
        if options.max_task_bytes is not None:
            most = min(most, options.max_task_bytes)
        if options.min_partitions:
            most = min(most, -(-total // options.min_partitions) or 1)
        if options.max_task_bytes is None:
            most = max(most, total // max(MOST_TASKS, options.min_partitions))
        return [StoreSlice(storage, one) for one in cut(ranges, max(1, most))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, in the executor. Spark passes a bare InputPartition when there is
        nothing to read.

        Raises:
            CorruptEntry: there is damage, and that is an error.
            PathError: the file cannot be read, or was deleted, and that is an error.
        """
        settle()
        if not isinstance(partition, StoreSlice):
            return
        schema = to_arrow_schema(self.schema, timezone="UTC")
        if self.options.table:
            rows = _damage_rows(partition, self.options.layout)
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
        elif partition.range is not None:
            for columns in self._read(partition.storage, partition.range):
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _read(self, storage: Storage, part: FileRange) -> Iterator[list[pa.Array]]:
        options, path = self.options, storage.join(part.path)
        damage = Damage(path, options.fail_on_damage)
        try:
            for batch in read_range(storage, options.layout, part, self.columns, options.wanted):
                if batch.rows is not None and batch.rows.num_rows:
                    yield batch.rows.columns
                damage.take(batch)
        except PathError as error:
            if storage.size(part.path) is not None:
                raise
            if options.fail_on_data_loss:
                raise PathError(
                    f"{path} was deleted while it was read; to go on without it set option "
                    f"'failOnDataLoss' to false"
                ) from error
            LOGGER.warning(
                "%s was deleted while it was read; going on because 'failOnDataLoss' is false", path
            )
        damage.tell()


class StoreReader(StoreReads, DataSourceReader):
    """Reads a store's files."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, use=BATCH)

    def partitions(self) -> Sequence[InputPartition]:
        """Find the files, and cut them into tasks."""
        options, store = self.options, self.open()
        stop = None if options.stop == LATEST else options.stop
        plan = plan_store(store, max(0, options.begin), stop, options.wanted)
        slices = self.tasks(store.storage, plan.ranges)
        if options.table and plan.faults:
            slices.append(StoreSlice(store.storage, faults=plan.faults))
        elif plan.faults:
            Damage(store.storage.url, options.fail_on_damage).take_all(plan.faults)
        return slices


def _damage_rows(given: StoreSlice, layout: str) -> list[dict[str, Any]]:
    found = [("damage", piece) for piece in given.faults]
    path = given.storage.url if given.range is None else given.storage.join(given.range.path)
    if given.range is not None:
        # a body that does not unpack is found when it is taken out
        names = () if layout == DLEDGER else ("body",)
        for batch in read_range(given.storage, layout, given.range, names):
            found += [("damage", piece) for piece in batch.damage]
            found += [("tail", batch.tail)] if batch.tail is not None else []
    return [
        {
            "file": path,
            "start": p.start,
            "end": p.end,
            "bytes": p.end - p.start,
            "kind": kind,
            "reason": p.reason,
        }
        for kind, p in found
    ]


class Damage:
    """The handling of damage: an error, or a warning in the end that counts it."""

    def __init__(self, path: str, fail: bool) -> None:
        self._path = path
        self._fail = fail
        self._found: list[ScannedPiece] = []

    def take(self, batch: ColumnBatch) -> None:
        """Warn of a batch's tail, and take its damage; raises as `take_all`."""
        if batch.tail is not None:
            LOGGER.warning(
                "%s: %s at the log's end are no message and are left out: a write that was not "
                "finished, or one that was given up (%s)",
                self._path,
                _place(batch.tail),
                batch.tail.reason,
            )
        self.take_all(batch.damage)

    def take_all(self, pieces: Sequence[ScannedPiece]) -> None:
        """Raises:
        CorruptEntry: when it is an error.
        """
        if pieces and self._fail:
            raise CorruptEntry(
                f"{self._path}: {_place(pieces[0])} are damaged: {pieces[0].reason}. {WAY_OUT}"
            )
        self._found += pieces

    def tell(self) -> None:
        """Warn of the messages that were left out."""
        if self._found:
            size = sum(piece.end - piece.start for piece in self._found)
            LOGGER.warning(
                "%s: %d places with %d bytes are damaged and are left out because 'onDamage' is "
                "skip: %s",
                self._path,
                len(self._found),
                size,
                "; ".join(f"{_place(p)}: {p.reason}" for p in self._found[:20]),
            )


def _place(piece: ScannedPiece) -> str:
    return f"bytes {piece.start} to {piece.end} of the log"
