"""Many small appends into few batches, and each batch's answer back to its appends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from dledger.batch.records import make_records
from dledger.batch.sizes import OVERHEAD, coalesce, split_batch
from dledger.client.results import Appended
from dledger.errors import DLedgerError, OutcomeUnknown


class Promise(Protocol):
    """A future, of threads or of asyncio."""

    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class Pending:
    """One append: done when all its records are. Cut into several entries, ``start`` is the first one's and ``end`` the
    last one's, in whatever order they are answered; records of other producers may lie between.

    It fails when all its entries are decided and one of them failed, and definitely only if none was written.
    """

    __slots__ = ("end", "error", "future", "left", "partition", "start", "topic")

    def __init__(self, future: Promise, topic: str, partition: int, count: int) -> None:
        self.future = future
        self.topic = topic
        self.partition = partition
        self.left = count
        self.start = self.end = -1
        self.error: DLedgerError | None = None

    def answered(self, result: int | DLedgerError, count: int) -> None:
        """``count`` of its records have the offsets from ``result`` on, or failed."""
        self.left -= count
        if isinstance(result, DLedgerError):
            if self.error is None or self.error.definite:
                self.error = result
        else:
            self.start = result if self.start < 0 else min(self.start, result)
            self.end = max(self.end, result + count)
        if self.left:
            return
        if self.error is not None:
            self.future.set_exception(self._whole(self.error))
        else:
            self.future.set_result(Appended(self.topic, self.partition, self.start, self.end))

    def _whole(self, error: DLedgerError) -> DLedgerError:
        """What an error of one part says of the whole append."""
        if self.start < 0 or not error.definite:
            return error
        whole = OutcomeUnknown(f"append to {self.topic!r}: a part of it was written from {self.start} on, but: {error}")
        whole.__cause__ = error
        return whole


@dataclass(slots=True)
class Batch:
    """What goes out as one entry, and whose records it holds, in order."""

    partition: int
    records: pa.RecordBatch
    parts: list[tuple[Pending, int]]

    def answered(self, result: int | DLedgerError) -> None:
        offset = result
        for pending, count in self.parts:
            pending.answered(offset, count)
            if not isinstance(offset, DLedgerError):
                offset += count


@dataclass(slots=True)
class _Group:
    """What waits for one partition: plain values, behind batches that are made already."""

    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    keyed: bool = False
    batches: list[pa.RecordBatch] = field(default_factory=list)
    parts: list[tuple[Pending, int]] = field(default_factory=list)
    size: int = 0

    def seal(self) -> None:
        if self.values:
            self.batches.append(make_records(self.values, keys=self.keys if self.keyed else None))
            self.values, self.keys, self.keyed = [], [], False


class Grouper:
    """Collects records by partition until they are worth an entry."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._groups: dict[int, _Group] = {}

    @property
    def empty(self) -> bool:
        return not self._groups

    def holds(self, partition: int) -> bool:
        """Whether something waits for this partition."""
        return partition in self._groups

    def add_value(self, pending: Pending, value: bytes, key: bytes | None) -> bool:
        """One record of plain bytes; whether its partition has enough now."""
        group = self._groups.setdefault(pending.partition, _Group())
        group.values.append(value)
        group.keys.append(key)
        group.keyed = group.keyed or key is not None
        group.parts.append((pending, 1))
        group.size += len(value) + (len(key) if key else 0) + 32
        return group.size >= self._batch_bytes

    def add_batch(self, pending: Pending, records: pa.RecordBatch, size: int) -> bool:
        """Records of any kind, of ``size`` bytes; whether their partition has enough now."""
        group = self._groups.setdefault(pending.partition, _Group())
        group.seal()
        group.batches.append(records)
        group.parts.append((pending, records.num_rows))
        group.size += size
        return group.size >= self._batch_bytes

    def take(self, partitions: Sequence[int] | None, max_body: int) -> list[Batch]:
        """What was collected for these partitions (None: all), as entries of up to ``max_body`` bytes.

        A record that is over by itself fails its append, and those that share its batch.
        """
        found: list[Batch] = []
        for partition in list(self._groups) if partitions is None else partitions:
            group = self._groups.pop(partition, None)
            if group is not None:
                group.seal()
                found += _cut(partition, group, max_body)
        return found


def _cut(partition: int, group: _Group, max_body: int) -> list[Batch]:
    if len(group.batches) == 1 and group.size <= max_body - OVERHEAD:
        return [Batch(partition, group.batches[0], group.parts)]
    try:
        whole = list(coalesce(group.batches, max_body)) if len(group.batches) > 1 else group.batches
        pieces = [piece for batch in whole for piece in split_batch(batch, max_body)]
    except DLedgerError as error:
        for pending, count in group.parts:
            pending.answered(error, count)
        return []
    if len(pieces) == 1:
        return [Batch(partition, pieces[0], group.parts)]
    found: list[Batch] = []
    parts = iter(group.parts)
    pending, left = next(parts)
    for piece in pieces:
        rows, shares = piece.num_rows, []
        while rows:
            if not left:
                pending, left = next(parts)
            share = min(rows, left)
            shares.append((pending, share))
            rows -= share
            left -= share
        found.append(Batch(partition, piece, shares))
    return found
