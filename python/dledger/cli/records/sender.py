"""Batches of records on their way into a topic, and where they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dledger.client.protocol.appending import partitions_of
from dledger.errors import ConfigError, DLedgerError, SchemaMismatch
from dledger.records.columns.arrays import number, numbers_of
from dledger.records.columns.partitioner import Division, divided_by_codes, whole

if TYPE_CHECKING:
    from dledger.cli.progress import CommandProgress
    from dledger.client import Appended, Producer
    from dledger.protocol.messages.client import TopicInfo


class RecordSender:
    """Sends batches of any keys, or rows of a typed topic, in order, many at a time.

    Args:
        open_topic: given the first batch, of whose columns a topic that is missing may be made.
        evolve: new and wider columns of the rows become the topic's.

    Attributes:
        spans: the offsets that the records got, by partition, neighbours joined.
    """

    def __init__(
        self,
        open_topic: Callable[[pa.RecordBatch], tuple[Producer, TopicInfo]],
        partition: int | None,
        *,
        evolve: bool,
        shown: CommandProgress,
    ) -> None:
        self.spans: dict[int, list[tuple[int, int]]] = {}
        self._open_topic = open_topic
        self._opened: tuple[Producer, TopicInfo] | None = None
        self._partition = partition
        self._evolve = evolve
        self._shown = shown
        self._waiting: deque[tuple[Future[Appended], int, int]] = deque()

    @property
    def records(self) -> int:
        """How many are appended for certain."""
        return self._shown.records

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand the records over; waits while too many are on their way.

        Raises:
            ConfigError: a partition that the topic does not have.
            DLedgerError: earlier records could not be appended.
        """
        if self._opened is None:
            self._opened = self._open_topic(batch)
        producer, info = self._opened
        if info.typed:
            try:
                rows = producer.append(batch, partition=self._partition, evolve=self._evolve)
            except SchemaMismatch as error:
                raise _in_a_line(error) from None
            self._waiting.append((rows, batch.num_rows, batch.nbytes))
        for at, part in [] if info.typed else self._parts(batch, info):
            columns = {name: part.column(name) for name in part.schema.names}
            future = producer.append(
                columns["value"],
                keys=columns.get("key"),
                partition=at,
                headers=columns.get("headers"),
                timestamps=columns.get("timestamp"),
            )
            self._waiting.append((future, part.num_rows, part.nbytes))
        while self._waiting and self._waiting[0][0].done():
            self._note()

    def finish(self) -> None:
        """Returns when all are answered. Raises as `send`."""
        if self._opened is not None:
            self._opened[0].flush()
            while self._waiting:
                self._note()
            self._opened[0].close()

    def settle(self) -> bool:
        """After an error, or Ctrl-C: wait for what was sent; whether all of it is appended."""
        if self._opened is None:
            return True
        is_known = True
        try:
            self._opened[0].flush()
            while self._waiting:
                try:
                    self._note()
                except DLedgerError:
                    is_known = False
        except (KeyboardInterrupt, DLedgerError):
            return False
        return is_known

    def _parts(
        self, batch: pa.RecordBatch, info: TopicInfo
    ) -> list[tuple[int | None, pa.RecordBatch]]:
        """The records by partition; None is any."""
        if self._partition is not None:
            return [(self._partition, batch)]
        if "partition" in batch.schema.names:
            return list(_named(batch.column("partition"), info).of(batch))
        if info.partitions == 1:
            return [(0, batch)]
        found = partitions_of(batch, info.partitions)
        return [(None, batch)] if found is None else list(found.of(batch))

    def _note(self) -> None:
        future, rows, size = self._waiting.popleft()
        for done in future.result().parts:
            spans = self.spans.setdefault(done.partition, [])
            if spans and spans[-1][1] == done.start:
                spans[-1] = (spans[-1][0], done.end)
            else:
                spans.append((done.start, done.end))
        self._shown.add(rows, size)


def _in_a_line(error: SchemaMismatch) -> SchemaMismatch:
    """The remedy and the columns that do not fit, of a table that shows all side by side."""
    told, *table = str(error).splitlines()
    marked = [" ".join(line.strip("! ").split()) for line in table if line.startswith("!")]
    told = told.replace("pass evolve=True", "say --evolve").replace(" marked with !", "")
    return SchemaMismatch("; ".join([told, *marked]))


def _named(column: pa.Array, info: TopicInfo) -> Division:
    """Records by the partitions that they name."""
    numbers = pc.fill_null(column.cast(pa.int64()), number(pa.int64(), -1))
    most = info.partitions - 1
    low, high = pc.min_max(numbers).as_py().values() if len(numbers) else (0, 0)
    if low < 0 or high > most:
        bad = next(at for at in numbers_of(numbers) if not 0 <= at <= most)
        raise ConfigError(
            f"a record is for partition {bad if bad >= 0 else 'null'}, and topic {info.name!r} has "
            f"partitions 0..{most}: name one for all with --partition"
        )
    return divided_by_codes(numbers) if most else whole(0, len(column))
