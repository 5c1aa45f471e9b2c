"""A store as ranges of files, each of which can be read by itself, on another machine too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dledger.rocketmq.columns.commit_log import EVERYTHING, ColumnBatch, Wanted, column_batches
from dledger.rocketmq.files.dledger_end import ledger_end
from dledger.rocketmq.files.layout import DLEDGER, Form, LogFile, Store
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.scanned_piece import Incomplete, ScannedPiece, Unbounded

HEAD: Final = 64 << 10
"""Bytes of a file in which its first message is looked for."""
CLOCK_MARGIN_MS: Final = 3_600_000
"""Store times come from brokers' clocks, which may be set back, and in DLedger mode from one broker
after the other: a file is left out by its neighbours' times only when these are so far away."""


@dataclass(frozen=True, slots=True)
class FileRange(LogFile):
    """Part of a file: the pieces that begin in [begin, stop)."""

    begin: int
    stop: int
    exact: bool = False
    """A message or entry is known to begin at ``begin``."""

    @property
    def bytes(self) -> int:
        return self.stop - self.begin


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The ranges of a store to be read."""

    ranges: tuple[FileRange, ...]
    """One for each file."""
    faults: tuple[ScannedPiece, ...]
    """The faults between files, in the part that is read."""


def plan_store(
    store: Store, begin: int = 0, stop: int | None = None, wanted: Wanted = EVERYTHING
) -> RangePlan:
    """The files of a store with anything in [begin, stop) that is wanted.

    Raises:
        PathError: a file cannot be read.
    """
    ranges: list[FileRange] = []
    faults: list[ScannedPiece] = []
    for form in store.forms:
        end = form.end if form.name != DLEDGER else ledger_end(store.storage, form)
        last = end if stop is None else min(end, stop)
        for file in _stored_then(store.storage, form, wanted):
            span = file.span
            if span.data_end > end:
                span = replace(span, data_end=end, next_start=None)
            first, behind = max(begin, span.start), min(last, span.data_end)
            if first < behind:
                ranges.append(FileRange(file.path, span, first, behind))
        faults += [one for one in form.faults if begin < one.end and one.start < last]
    return RangePlan(tuple(ranges), tuple(faults))


def cut(ranges: Sequence[FileRange], most: int) -> list[FileRange]:
    """The same in ranges of at most ``most`` bytes, each file in equal parts."""
    parts: list[FileRange] = []
    for one in ranges:
        count = max(1, -(-one.bytes // most))
        borders = [one.begin + one.bytes * n // count for n in range(count + 1)]
        parts += [
            replace(one, begin=first, stop=stop, exact=one.exact and first == one.begin)
            for first, stop in itertools.pairwise(borders)
        ]
    return parts


def read_range(
    storage: Storage,
    layout: str,
    one: FileRange,
    columns: Sequence[str] | None = None,
    wanted: Wanted = EVERYTHING,
    batch_bytes: int = 4 << 20,
) -> Iterator[ColumnBatch]:
    """The messages of a range, or with layout ``dledger`` its entries, and the damage in it.

    Args:
        columns: names out of `dledger.rocketmq.columns.commit_log.SCHEMA` or
        `dledger.rocketmq.columns.entries.ENTRY_SCHEMA`.

    Raises:
        PathError: the file cannot be read, or is gone.
    """
    reader = one.reader(
        storage,
        entries=layout == DLEDGER,
        columns=None if columns is None else tuple(columns),
        wanted=wanted,
        batch_bytes=batch_bytes,
    )
    return reader.batches(one.begin, one.stop, exact=one.exact)


def first_stored(storage: Storage, file: LogFile) -> int | None:
    """Store time of a file's first message, in milliseconds; None when the file does not begin with
    one."""
    span = file.span
    length = min(HEAD, span.data_end - span.start)
    columns = ("store_timestamp",)
    while True:
        data = storage.read_exactly(file.path, span.start, span.start, length)
        try:
            batches = column_batches(
                data,
                span.start,
                stop=span.start + 1,
                file_end=span.file_end,
                data_end=span.data_end,
                columns=columns,
                check=False,
            )
            rows = next((batch.rows for batch in batches), None)
        except Incomplete as more:
            length = more.end - span.start
            continue
        except Unbounded:
            return None
        stored = rows.column(0).cast("int64").to_pylist() if rows else [None]
        return None if stored[0] is None else int(stored[0]) // 1000


def _stored_then(storage: Storage, form: Form, wanted: Wanted) -> list[LogFile]:
    """The files of a form that may have messages that were stored when they are wanted."""
    begin, end = wanted.stored_from, wanted.stored_before
    if begin is None and end is None:
        return list(form.files)
    times = [first_stored(storage, file) for file in form.files]
    kept = []
    for n, file in enumerate(form.files):
        after = next((time for time in times[n + 1 :] if time is not None), None)
        if begin is not None and after is not None and after < begin - CLOCK_MARGIN_MS:
            continue
        mine = times[n]
        if end is not None and mine is not None and mine > end + CLOCK_MARGIN_MS:
            continue
        kept.append(file)
    return kept
