"""Many small appends into few batches, and each batch's answer back to its appends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from dledger.client.protocol.results import Appended, Promise
from dledger.client.protocol.writing.in_flight_window import Done, Item
from dledger.client.protocol.writing.record_future import ValueBatch
from dledger.errors import DLedgerError, OutcomeUnknown
from dledger.records.body.sizer import OVERHEAD, coalesce, split_batch


@dataclass(slots=True)
class Pending:
    """One append: done when all its records are. Cut into several entries, ``start`` is the first
    one's and ``end`` the last one's, in any order of their answers; records of other producers may
    lie between.

    It fails when all its entries are decided and one of them failed, and definitely only if none
    was written.
    """

    future: Promise
    topic: str
    partition: int
    left: int
    """Records that are not decided."""
    start: int = -1
    end: int = -1
    error: DLedgerError | None = None

    def answered(self, result: int | DLedgerError, first: int, count: int) -> None:
        """``count`` of its records, from ``first`` on, have the offsets from ``result`` on, or
        failed."""
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
        """The meaning of an error of one part for the whole append."""
        if self.start < 0 or not error.definite:
            return error
        whole = OutcomeUnknown(
            f"append to {self.topic!r}: a part of it was written from {self.start} on, but: {error}"
        )
        whole.__cause__ = error
        return whole


Part: TypeAlias = tuple[Pending | ValueBatch, int, int]
"""Records of an append, or of several of single values: the first one's number there, and how
many."""


@dataclass(slots=True)
class Batch:
    """The records of one entry that goes out, and the appends that they belong to, in order."""

    partition: int
    records: pa.RecordBatch
    parts: list[Part]

    def answered(self, result: int | DLedgerError) -> None:
        offset = result
        for appended, first, count in self.parts:
            appended.answered(offset, first, count)
            if not isinstance(offset, DLedgerError):
                offset += count


@dataclass(slots=True)
class OutgoingBatch:
    """Batches that go out together, and those that cannot. The loop takes it once, however often it
    is handed over."""

    items: Sequence[Item]
    refused: Sequence[tuple[Done, DLedgerError]] = ()
    taken: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(item.header) + len(item.payload) for item in self.items)

    def refuse(self) -> None:
        """Fail the appends that cannot go out."""
        refused, self.refused = self.refused, ()
        for answered, error in refused:
            answered(error)


@dataclass(slots=True)
class PartitionQueue:
    """The records that wait for one partition, in order, until they are worth an entry.

    Records are taken by one step, the append to ``entries`` or to the last one's ``records``, and
    none is taken any more when ``outgoing`` is set: an interrupt between two steps leaves no
    half-done work.
    """

    topic: str
    partition: int
    entries: list[ValueBatch | tuple[Pending, pa.RecordBatch]] = field(default_factory=list)
    size: int = 0
    outgoing: OutgoingBatch | None = None

    def values(self, keyed: bool) -> ValueBatch:
        """The batch that takes the next single value."""
        last = self.entries[-1] if self.entries else None
        if isinstance(last, ValueBatch) and (last.keyed or not keyed):
            return last
        values = ValueBatch(self.topic, self.partition, keyed=keyed)
        self.entries.append(values)
        return values

    def add_batch(self, pending: Pending, records: pa.RecordBatch, size: int) -> None:
        """Records of any kind, of ``size`` bytes."""
        self.size += size
        self.entries.append((pending, records))

    def drop_values(self) -> None:
        """The values are in the batches that go out: handles of theirs keep no copy alive."""
        for entry in self.entries:
            if isinstance(entry, ValueBatch):
                entry.records = []

    def batches(self, max_body: int) -> tuple[list[Batch], DLedgerError | None]:
        """The collected records, as entries of up to ``max_body`` bytes; or all of them as one, and
        why it cannot be cut."""
        records: list[pa.RecordBatch] = []
        parts: list[Part] = []
        appended: Pending | ValueBatch
        for entry in self.entries:
            if not isinstance(entry, ValueBatch):
                appended, columns = entry
            elif entry.records:  # else the append of its first value was interrupted
                appended, columns = entry, entry.columns()
            else:
                continue
            records.append(columns)
            parts.append((appended, 0, columns.num_rows))
        if not records:
            return [], None
        if len(records) == 1 and self.size <= max_body - OVERHEAD:
            return [Batch(self.partition, records[0], parts)], None
        try:
            whole = list(coalesce(records, max_body)) if len(records) > 1 else records
            pieces = [piece for batch in whole for piece in split_batch(batch, max_body)]
        # a record that is over by itself, and those that share its batch
        except DLedgerError as error:
            return [Batch(self.partition, records[0], parts)], error
        return _shared(self.partition, pieces, parts), None


def _shared(partition: int, pieces: list[pa.RecordBatch], parts: list[Part]) -> list[Batch]:
    """Pieces as batches, each with the appends whose records it holds."""
    if len(pieces) == 1:
        return [Batch(partition, pieces[0], parts)]
    found: list[Batch] = []
    rest = iter(parts)
    appended, first, left = next(rest)
    for piece in pieces:
        rows, shares = piece.num_rows, list[Part]()
        while rows:
            if not left:
                appended, first, left = next(rest)
            share = min(rows, left)
            shares.append((appended, first, share))
            rows, first, left = rows - share, first + share, left - share
        found.append(Batch(partition, piece, shares))
    return found
