"""Many small appends into few batches, and each batch's answer back to its appends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa

from dledger.client.protocol.results import Appended
from dledger.client.protocol.writing.in_flight_window import Item
from dledger.errors import DLedgerError, OutcomeUnknown
from dledger.records.body.build import make_records
from dledger.records.body.sizer import OVERHEAD, coalesce, split_batch


class Promise(Protocol):
    """A future, of threads or of asyncio."""

    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


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
        """The meaning of an error of one part for the whole append."""
        if self.start < 0 or not error.definite:
            return error
        whole = OutcomeUnknown(
            f"append to {self.topic!r}: a part of it was written from {self.start} on, but: {error}"
        )
        whole.__cause__ = error
        return whole


@dataclass(slots=True)
class Batch:
    """The records of one entry that goes out, and the appends that they belong to, in order."""

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
class OutgoingBatch:
    """Batches that go out together, and those that cannot. The loop takes it once, however often it
    is handed over."""

    items: Sequence[Item]
    refused: Sequence[tuple[Batch, DLedgerError]] = ()
    taken: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(item.header) + len(item.payload) for item in self.items)

    def refuse(self) -> None:
        """Fail the appends that cannot go out."""
        refused, self.refused = self.refused, ()
        for batch, error in refused:
            batch.answered(error)


@dataclass(slots=True)
class PartitionQueue:
    """The records that wait for one partition, in order, until they are worth an entry.

    Each record is taken by one step, the append to ``entries``, and no record is taken any more
    when ``outgoing`` is set: an interrupt between two steps leaves no half-done work.
    """

    partition: int
    entries: list[tuple[Pending, bytes | pa.RecordBatch, bytes | None]] = field(
        default_factory=list
    )
    size: int = 0
    outgoing: OutgoingBatch | None = None

    def add_value(self, pending: Pending, value: bytes, key: bytes | None) -> None:
        """One record of plain bytes."""
        self.size += len(value) + (len(key) if key else 0) + 32
        self.entries.append((pending, value, key))

    def add_batch(self, pending: Pending, records: pa.RecordBatch, size: int) -> None:
        """Records of any kind, of ``size`` bytes."""
        self.size += size
        self.entries.append((pending, records, None))

    def batches(self, max_body: int) -> tuple[list[Batch], DLedgerError | None]:
        """The collected records, as entries of up to ``max_body`` bytes; or all of them as one, and
        why it cannot be cut."""
        records: list[pa.RecordBatch] = []
        parts: list[tuple[Pending, int]] = []
        for plain, entries in groupby(self.entries, _is_plain):
            if plain:
                pendings, values, keys = zip(*entries, strict=True)
                keyed = any(key is not None for key in keys)
                records.append(make_records(list(values), keys=list(keys) if keyed else None))
                parts += [(pending, 1) for pending in pendings]
            else:
                for pending, batch, _ in entries:
                    records.append(batch)
                    parts.append((pending, len(batch)))
        if len(records) == 1 and self.size <= max_body - OVERHEAD:
            return [Batch(self.partition, records[0], parts)], None
        try:
            whole = list(coalesce(records, max_body)) if len(records) > 1 else records
            pieces = [piece for batch in whole for piece in split_batch(batch, max_body)]
        # a record that is over by itself, and those that share its batch
        except DLedgerError as error:
            return [Batch(self.partition, records[0], parts)], error
        return _shared(self.partition, pieces, parts), None


def _is_plain(entry: tuple[Pending, bytes | pa.RecordBatch, bytes | None]) -> bool:
    return isinstance(entry[1], bytes)


def _shared(
    partition: int, pieces: list[pa.RecordBatch], parts: list[tuple[Pending, int]]
) -> list[Batch]:
    """Pieces as batches, each with the appends whose records it holds."""
    if len(pieces) == 1:
        return [Batch(partition, pieces[0], parts)]
    found: list[Batch] = []
    rest = iter(parts)
    pending, left = next(rest)
    for piece in pieces:
        rows, shares = piece.num_rows, []
        while rows:
            if not left:
                pending, left = next(rest)
            share = min(rows, left)
            shares.append((pending, share))
            rows -= share
            left -= share
        found.append(Batch(partition, piece, shares))
    return found
