"""One topic partition: which offsets lie where (see `dledger.catalog.topics.batch_rows`)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from dledger.catalog.results import BatchRef, RunRef
from dledger.catalog.topics.batch_rows import ROW, ROW_SIZE, cut_rows, pack_batches, row_edges
from dledger.catalog.topics.table import Table, TableFactory
from dledger.checksum import crc32
from dledger.errors import CorruptStore, OffsetOutOfRange
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.protocol.messages.fetched import MOST_ROWS

RAW: Final = -1
"""In place of the newest version of schemas, for a topic of Kafka-shaped records."""
BASE: Final = 0
INDEX: Final = 8
POS: Final = 16
NEWEST: Final = 24
APPLIED: Final = 32
BYTES: Final = 40
CHUNK_ROWS: Final = 1024
FIRST_ROWS: Final = 8
NEAR_ROWS: Final = 16
"""So many of the last rows are read at once, where a plan asks for what came since the one before:
each read of a table costs more than these rows."""
MAX_CURSORS: Final = 64
MIN_RUN: Final = 32
"""Batches that are sent as a run."""
NO_TIME: Final = -(1 << 63)

_pack_row: Final = ROW.pack
_base_of: Final = itemgetter(0)


def _bytes_behind(row: tuple[int, ...]) -> int:
    """The sizes of all rows up to this one."""
    return row[5] + row[6]


_number_at = struct.Struct("<q").unpack_from


def table_name(topic_id: int, number: int) -> str:
    """Topic ids are never given twice, so neither are these."""
    return f"topic-{topic_id}-{number}"


@dataclass(slots=True, eq=False)
class Partition:
    """Offsets and rows of one partition. All but `begin_row` and `begin_offset` are equal on every
    node."""

    factory: TableFactory
    topic: str
    topic_id: int
    number: int
    newest_schema: int = RAW
    """Of its topic; here too, because every batch is held against it."""
    next_offset: int = 0
    rows: int = 0
    rows_crc: int = 0
    """Over all rows, so that nodes whose rows differ have different digests."""
    bytes: int = 0
    newest_us: int = NO_TIME
    lateness: int = 0
    """Most entries that ever lay between a batch and its commit."""
    begin_row: int = 0
    begin_offset: int = 0
    last_base: int = 0
    """Base offset of the last row, and below the bytes before it: plans and readers that follow the
    log ask for no other, and so need not read the table."""
    last_before: int = 0
    _cursors: dict[int, int] | None = None
    """Where readers go on: offset -> row, so that they need no search."""
    _table: Table | None = None
    """Opened with the first row: a topic may have many idle partitions."""

    @property
    def name(self) -> str:
        return table_name(self.topic_id, self.number)

    @property
    def table(self) -> Table:
        if self._table is None:
            self._table = self.factory.open(self.name, ROW_SIZE)
        return self._table

    def reopen(self) -> None:
        """After a restart: cut the table to the rows that the snapshot knows.

        Raises:
            CorruptStore: rows are missing, or the last one is not the one that was there.
        """
        table = self.table
        table.truncate(self.rows)
        self.begin_row = table.begin
        self.begin_offset = self.next_offset
        if self.begin_row < self.rows:
            base, *_, before, size, _ = ROW.unpack(table.read(self.rows - 1, self.rows))
            if base >= self.next_offset or before + size != self.bytes:
                raise CorruptStore(
                    f"table {self.name}: its last row does not fit the snapshot; rebuild from the "
                    f"log"
                )
            self.begin_offset = self._number(self.begin_row, BASE)
            self.last_base, self.last_before = base, before

    def append(
        self, index: int, pos: int, size: int, crc: int, count: int, last_us: int, applied_at: int
    ) -> int:
        """Give a batch its offsets; returns the first one."""
        base = self.next_offset
        if last_us > self.newest_us:
            self.newest_us = last_us
        if applied_at - index > self.lateness:
            self.lateness = applied_at - index
        row = _pack_row(base, index, pos, self.newest_us, applied_at, self.bytes, size, crc)
        (self._table or self.table).append(row)
        self.rows_crc = crc32(row, self.rows_crc)
        self.rows += 1
        self.last_base, self.last_before = base, self.bytes
        self.bytes += size
        self.next_offset = base + count
        return base

    def append_all(self, run: EntryRun, counts_and_times: Sequence[tuple[int, int]]) -> list[int]:
        """`append` for the batches of a run, each with its records and its newest time; returns the
        first offset of each."""
        data, ends = run.pieces[0], (self.next_offset, self.newest_us, self.bytes)
        rows, base_offsets, *ends_now = pack_batches(
            data, run.starts, counts_and_times, run.index, run.pos, *ends
        )
        (self._table or self.table).append(rows)
        self.rows_crc = crc32(rows, self.rows_crc)
        self.rows += len(base_offsets)
        self.last_base = base_offsets[-1]
        self.last_before = _number_at(rows, len(rows) - ROW_SIZE + BYTES)[0]
        self.next_offset, self.newest_us, self.bytes = ends_now
        return base_offsets

    def _number(self, row: int, column: int) -> int:
        value: int = _number_at(self.table.read(row, row + 1), column)[0]
        return value

    def _first_above(self, column: int, value: int, low: int, high: int) -> int:
        """The first row of [low, high) whose ``column`` is above ``value``, or ``high``."""
        read = self.table.read
        while high - low > FIRST_ROWS:
            middle = (low + high) // 2
            if _number_at(read(middle, middle + 1), column)[0] > value:
                high = middle
            else:
                low = middle + 1
        rows = read(low, high)  # the last few at once: in a file each read costs more than its rows
        while (
            low < high
            and _number_at(rows, len(rows) - (high - low) * ROW_SIZE + column)[0] <= value
        ):
            low += 1
        return low

    def _next_above(self, column: int, value: int, low: int, high: int, near: int) -> int:
        """As `_first_above`, quicker when the row is about ``near`` rows behind ``low``."""
        step = 2 * near
        while low + step < high and self._number(low + step - 1, column) <= value:
            low, step = low + step, 2 * step
        return self._first_above(column, value, low, min(low + step, high))

    def _is_in_last_row(self, offset: int) -> bool:
        """Whether it is the offset of a record of the last batch, or behind it."""
        return self.begin_row < self.rows and offset >= self.last_base

    def _check_kept(self, offset: int) -> None:
        """Raises `OffsetOutOfRange` for one that is neither of a kept record nor the next."""
        if not self.begin_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.name} is outside of what is kept, {self.begin_offset} "
                f"to {self.next_offset}",
                self.begin_offset,
                self.next_offset,
            )

    def _row_of(self, offset: int) -> int:
        self._check_kept(offset)
        if self._is_in_last_row(offset):
            return self.rows - 1  # a reader that follows the log asks for its last batch
        return self._first_above(BASE, offset, self.begin_row, self.rows) - 1

    def find(self, offset: int, end_offset: int, max_bytes: int) -> list[BatchRef]:
        """The batches that hold [offset, end_offset); no more than ``max_bytes`` of them, but at
        least one."""
        if end_offset < 0 or end_offset > self.next_offset:
            end_offset = self.next_offset
        if offset >= end_offset and offset >= self.begin_offset:
            return []
        row = self._reader_at(offset)
        found = self._collect(row, end_offset, max_bytes)
        self._reader_goes_on(found[-1].base_offset + found[-1].count, row + len(found))
        return found

    def find_run(self, offset: int, end_offset: int, max_bytes: int) -> RunRef | None:
        """The batches that hold [offset, end_offset), up to ``max_bytes`` of them, as far as their
        entries lie one behind the other; None when these are few."""
        end_offset = min(end_offset, self.next_offset)
        if self.lateness or not self.begin_offset <= offset < end_offset:
            return None  # where a transaction placed batches, a row's entry may lie before the last
        row = self._reader_at(offset)
        if row + MIN_RUN > self.rows:
            return None  # as for most readers that follow the log
        room, others = self._entries_before(row) + max_bytes, self._others_before(row)
        if self._entries_before(row + MIN_RUN) > room:
            return None
        stop = bisect_right(range(self.rows + 1), room, lo=row, key=self._entries_before) - 1
        stop = self._first_above(BASE, end_offset - 1, row, min(stop, row + MOST_ROWS))
        # in the order of the log, so neighbours as long as each begins where the one before ends
        stop = bisect_right(range(stop), others, lo=row, key=self._others_before)
        if stop - row < MIN_RUN:
            return None
        rows = bytes(self.table.read(row, stop))
        size = self._entries_before(stop) - self._entries_before(row)
        behind = self._number(stop, BASE) if stop < self.rows else self.next_offset
        self._reader_goes_on(behind, stop)
        first, last = (_number_at(rows, at + INDEX)[0] for at in (0, len(rows) - ROW_SIZE))
        return RunRef(rows, first, last, _number_at(rows, POS)[0], size, behind)

    def _entries_before(self, row: int) -> int:
        """Bytes of the entries of all rows before this one."""
        bodies = self._number(row, BYTES) if row < self.rows else self.bytes
        return bodies + row * HEADER_SIZE

    def _others_before(self, row: int) -> int:
        """Bytes in front of a row's entry that are of no row; they grow from row to row."""
        return self._number(row, POS) - self._entries_before(row)

    def _reader_at(self, offset: int) -> int:
        """The row that holds an offset."""
        row = -1 if self._cursors is None else self._cursors.get(offset, -1)
        return self._row_of(offset) if row < self.begin_row else row

    def _reader_goes_on(self, offset: int, row: int) -> None:
        """A reader will ask for this offset, which is the first one of the row."""
        cursors = self._cursors
        if cursors is None:
            cursors = self._cursors = {}
        if len(cursors) >= MAX_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[offset] = row

    def _collect(self, row: int, end_offset: int, max_bytes: int) -> list[BatchRef]:
        """The batches from ``row`` on that begin below ``end_offset``; up to ``max_bytes``, but at
        least one."""
        found: list[BatchRef] = []
        limit = self._number(row, BYTES) + max_bytes
        for rows, ends in self._chunks(row):
            # both grow from row to row
            below = bisect_left(rows, end_offset, key=_base_of)
            fit = bisect_right(rows, limit, key=_bytes_behind)
            stop = min(below, max(fit, 0 if found else 1), MOST_ROWS - len(found))
            found += [
                BatchRef(base, end - base, index, pos, size, crc)
                for (base, index, pos, _, _, _, size, crc), end in zip(
                    rows[:stop], ends, strict=False
                )
            ]
            if stop < len(rows):
                break
        return found

    def _chunks(self, row: int) -> Iterator[tuple[list[tuple[int, ...]], list[int]]]:
        """The rows from ``row`` on, and the end offset of the batch of each; the first chunks are
        small."""
        chunk = FIRST_ROWS
        while row < self.rows:
            stop = min(row + chunk, self.rows)
            rows = list(ROW.iter_unpack(self.table.read(row, min(stop + 1, self.rows))))
            ends = [fields[0] for fields in rows[1:]]
            if stop == self.rows:
                ends.append(self.next_offset)
            yield rows[: stop - row], ends
            row, chunk = stop, min(2 * chunk, CHUNK_ROWS)

    def batches_of(self, first: int, last: int) -> list[tuple[int, int]]:
        """(base offset, records) of the batches that lie in the entries ``first`` to ``last``."""
        placed = self.placed(first, last + self.lateness)
        return [(base, count) for base, count, index, _ in placed if first <= index <= last]

    def placed(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """(base offset, records, entry, placing entry) of the batches that were given their offsets
        by the entries ``first`` to ``last``: by their own, or by their transaction's COMMIT."""
        if self.begin_row == self.rows:
            return  # and its table stays unopened: a topic may have many idle partitions
        row = self._first_above(APPLIED, first - 1, self.begin_row, self.rows)
        for rows, ends in self._chunks(row):
            for (base, index, _, _, applied, *_), end in zip(rows, ends, strict=True):
                if applied > last:
                    return
                yield base, end - base, index, applied

    def needed_from(self, offset: int) -> int | None:
        """An entry in front of which nothing is needed to read from ``offset`` on; None when
        nothing is there to read. Below the first kept offset: as from that one."""
        if offset >= self.next_offset or self.begin_row == self.rows:
            return None
        row = self._row_of(max(offset, self.begin_offset))
        # a later row's entry may lie before this one's, but not before its own COMMIT by more than
        # that
        return self._number(row, APPLIED) - self.lateness

    def unread(self, offset: int) -> tuple[int, int]:
        """(stored bytes, time) behind ``offset``: of the kept batches that hold records from there
        on, and the newest time up to the end of the first of these, in microseconds since 1970
        (NO_TIME where there is none)."""
        if offset >= self.next_offset or self.begin_row == self.rows:
            return 0, NO_TIME
        row = self._row_of(max(offset, self.begin_offset))
        return self.bytes - self._number(row, BYTES), self._number(row, NEWEST)

    def split(
        self, start: int, end: int, target_bytes: int, max_pieces: int
    ) -> list[tuple[int, int]]:
        """Cut [start, end) between batches, each piece of at least one batch and about
        ``target_bytes``."""
        if start >= end:
            return []
        if self._is_in_last_row(start) and end <= self.next_offset:
            return [(end, self.bytes - self.last_before)]
        for offset in (start, end):  # a shorter answer would lose records
            self._check_kept(offset)
        near = max(self.begin_row, self.rows - NEAR_ROWS)
        edges = row_edges(self.table.read(near, self.rows), self.next_offset, self.bytes)
        if edges[0][0] <= start:
            return cut_rows(*edges, start, end, target_bytes, max_pieces)
        first, last = self._row_of(start), self._row_of(end - 1)
        cuts: list[tuple[int, int]] = []
        done = self._number(first, BYTES)
        whole = (self._number(last + 1, BYTES) if last + 1 < self.rows else self.bytes) - done
        if whole <= target_bytes:
            return [(end, whole)]
        row, near = first, FIRST_ROWS
        while row <= last and len(cuts) < max_pieces:
            begin = row
            row = max(
                row + 1, self._next_above(BYTES, done + target_bytes - 1, row, last + 1, near)
            )
            near = row - begin
            before = self._number(row, BYTES) if row < self.rows else self.bytes
            cuts.append((self._number(row, BASE) if row <= last else end, before - done))
            done = before
        return cuts

    def offset_for_time(self, timestamp_us: int) -> int:
        """The base offset of the first batch with a record at or after that time; -1 when there is
        none."""
        if timestamp_us > self.newest_us or self.begin_row == self.rows:
            return -1
        return self._number(
            self._first_above(NEWEST, timestamp_us - 1, self.begin_row, self.rows), BASE
        )

    def end_as_of(self, index: int) -> int:
        """The offset behind the last record that had one by entry ``index``; -1 where the rows
        around it are gone."""
        row = self._first_above(APPLIED, index, self.begin_row, self.rows)
        if 0 < self.begin_row == row:  # a row that is gone may have come later, too
            return -1
        return self.next_offset if row == self.rows else self._number(row, BASE)

    def drop_before(self, index: int) -> None:
        """Entries below ``index`` are gone: begin behind the last batch that is among them."""
        begin = self.begin_row
        if begin == self.rows:
            return
        gone = self._first_above(APPLIED, index - 1, begin, self.rows)
        # a batch that is gone may have been committed by an entry that is kept, at most `lateness`
        # entries later
        row = (
            self._first_above(APPLIED, index - 1 + self.lateness, gone, self.rows)
            if self.lateness
            else gone
        )
        while row > gone:
            start = max(gone, row - CHUNK_ROWS)
            rows = list(ROW.iter_unpack(self.table.read(start, row)))
            late = [start + at + 1 for at, fields in enumerate(rows) if fields[1] < index]
            if late:
                gone = late[-1]
                break
            row = start
        if gone > begin:
            self.begin_row = gone
            self.begin_offset = self._number(gone, BASE) if gone < self.rows else self.next_offset
            self.table.drop_front(gone)
