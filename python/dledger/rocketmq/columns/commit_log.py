"""A commit log file as Arrow columns, a batch at a time.

The same messages and the same damage that ``scan`` finds, without a Python object per message.
Where all is sound, numpy checks and takes out whole columns; where something is not, ``Scanner``
gives the fault, and where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.columns.borders import Fields, Rows, walk_entries, walk_messages
from dledger.rocketmq.columns.messages import SCHEMA, MessageColumns
from dledger.rocketmq.columns.properties import slices
from dledger.rocketmq.format.scan import Scanner
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from dledger.rocketmq.with_numpy import np, npt
from dledger.types import Buffer

BATCH_BYTES: Final = 16 << 20
MAX_BUFFER: Final = (1 << 31) - 1
"""Arrow counts the bytes of a column with 32 bits; a commit log file has 1 GiB."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages are wanted; of the others nothing is taken out."""

    topic: Callable[[str], bool] | None = None
    """Asked once for each topic of a batch."""
    stored_from: int | None = None
    """Messages that were stored at this time or later; milliseconds since 1970."""
    stored_before: int | None = None
    """Messages that were stored before this time; milliseconds since 1970."""


EVERYTHING: Final = Wanted()


@dataclass(slots=True)
class ColumnBatch:
    """Messages one behind the other, and the damage in the bytes up to ``end``."""

    rows: pa.RecordBatch | None
    damage: list[ScannedPiece] = field(default_factory=list)
    end: int = 0
    """Offset in the log behind the bytes of this batch."""
    last: int = -1
    """Of rows: where the last message, or entry without one, begins that was looked at, wanted or
    not."""
    has_last: bool = True
    """Whether it is the last row."""
    kind: PieceKind | None = None
    """The kind of the piece that stands there where it is no rows."""
    tail: ScannedPiece | None = None
    """A piece that would be damage, but for being the last thing in the log: a write that was not
    finished, or one given up."""

    @staticmethod
    def of(piece: ScannedPiece) -> ColumnBatch:
        """A piece that is no rows."""
        damage = [piece] if piece.kind is PieceKind.DAMAGE else []
        return ColumnBatch(None, damage, piece.end, kind=piece.kind)


def column_batches(
    data: Buffer,
    start: int = 0,
    *,
    stop: int | None = None,
    file_end: int | None = None,
    data_end: int | None = None,
    columns: Sequence[str] | None = None,
    wanted: Wanted = EVERYTHING,
    check: bool = True,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[ColumnBatch]:
    """The messages of a commit log file, or of a part of it.

    Args:
        data: a file's bytes, or those from a message's border on (``Scanner.next_sound`` finds
            one); at most 2 GiB.
        start: offset in the log of the first byte.
        stop: messages that begin at or behind this offset are not wanted.
        file_end: offset in the log where the file ends, if the data end before that.
        data_end: offset in the log where the file's bytes end, if these data are only a part of
            them. Then the messages that are whole come first, and an exception asks for the bytes
            that decide about the rest.
        wanted: leave out other messages. Damage is never left out: its messages are unknown.
        columns: names out of ``SCHEMA``, all by default; other columns are not taken out.
        check: compare bodies with their CRC.
        batch_bytes: bytes of the log in one batch, about.

    Yields:
        Batches in order. A message whose compressed body cannot be unpacked is there with a null
        body, and among the damage as well.

    Raises:
        ValueError: there is no such column, or the data are over 2 GiB.
        Incomplete, Unbounded: bytes behind the data decide about those behind the last batch.
    """
    if len(data) > MAX_BUFFER:
        raise ValueError(f"{len(data):,} bytes at once; hand over at most {MAX_BUFFER:,}")
    scanner = Scanner(data, start, file_end=file_end, data_end=data_end, check=check)
    messages = _Messages(scanner, columns, batch_bytes=batch_bytes, wanted=wanted)
    yield from messages.batches(stop)


class Batches:
    """One pass over one buffer: sound rows by whole columns, and the bytes between them by a
    scanner."""

    every: ClassVar[pa.Schema]
    """All columns that there are."""

    def __init__(
        self, scanner: Scanner, columns: Sequence[str] | None, *, batch_bytes: int
    ) -> None:
        names = self.every.names if columns is None else columns
        if unknown := [name for name in names if name not in self.every.names]:
            raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(self.every.names)}")
        self._schema = pa.schema([self.every.field(name) for name in names])
        self._batch_bytes = batch_bytes
        self._scanner = scanner
        self._view, self._start, self._check = scanner.view, scanner.start, scanner.check
        self._fields = Fields(self._view)
        self._most = 1 << 30
        """Rows that are checked together: few right behind damage, since rows with a fault among
        them are checked again, and more with each time that all are sound."""

    def batches(self, stop: int | None) -> Iterator[ColumnBatch]:
        """All of them up to ``stop``; see `column_batches`."""
        at, size = 0, len(self._view)
        limit = size if stop is None else max(0, min(size, stop - self._start))
        while at < limit:
            batch = self._sound(at, limit)
            if batch is None:
                piece = self._scanner.piece(self._start + at)
                is_sound = piece.kind in (PieceKind.MESSAGE, PieceKind.ENTRY)
                assert not is_sound, f"overlooked: {piece}"
                self._most = 16 if piece.kind is PieceKind.DAMAGE else self._most
                batch = ColumnBatch.of(piece)
            at = batch.end - self._start
            yield batch

    def _sound(self, at: int, limit: int) -> ColumnBatch | None:
        """The sound rows from here on, as many as a batch takes; None when there are none."""
        raise NotImplementedError

    def _looked_at(self, found: int, sound: int) -> None:
        self._most = min(1 << 30, self._most * 2) if sound == found else 16


class _Messages(Batches):
    every = SCHEMA

    def __init__(
        self, scanner: Scanner, columns: Sequence[str] | None, *, batch_bytes: int, wanted: Wanted
    ) -> None:
        super().__init__(scanner, columns, batch_bytes=batch_bytes)
        self._wanted = wanted

    def _sound(self, at: int, limit: int) -> ColumnBatch | None:
        rows, entries = self._sound_rows(at, limit)
        return self._batch(rows, entries, self._start + int(rows.end[-1])) if len(rows.at) else None

    def _sound_rows(self, at: int, limit: int) -> tuple[Rows, bool]:
        """Sound messages from here on, as many as a batch takes, and whether they are in
        entries."""
        stop, most = min(limit, at + self._batch_bytes), self._most
        entries = False
        found = walk_messages(self._view, at, stop, most)
        if not found:
            found, entries = walk_entries(self._view, at, stop, most), True
        places = np.array(found, np.int64)
        bodies = places + HEADER_SIZE if entries else places
        room = len(self._view) - bodies
        if entries:
            room = np.minimum(room, self._fields.int32(places + 44))
        rows = Rows(self._fields, self._view, bodies, room)
        sound = rows.adds_up & rows.placed(self._start)
        if entries:
            sound &= self._headers_agree(places, rows)
        rows = rows.first(first_false(sound))
        rows = self._checked(rows, entries)
        self._looked_at(len(found), len(rows.at))
        return rows, entries

    def _headers_agree(self, places: npt.NDArray[np.int64], rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether each entry's header agrees with its place and its message."""
        body_size = self._fields.int32(places + 44)
        whole = self._fields.int32(places + 4) == HEADER_SIZE + body_size
        placed = self._fields.int64(places + 24) == places + self._start
        sound: npt.NDArray[np.bool_] = whole & placed & (rows.size == body_size)
        return sound

    def _checked(self, rows: Rows, entries: bool) -> Rows:
        """The rows before the first one whose contents are not as written."""
        if not len(rows.at):
            return rows
        count = rows.first_bad_crc() if self._check else len(rows.at)
        if self._check and entries:
            count = min(count, self._first_bad_entry(rows))
        rows = rows.first(count)
        if not count or self._is_text(rows):
            return rows
        return rows.first(self._first_without_text(rows))

    def _first_bad_entry(self, rows: Rows) -> int:
        """The entry's own CRC, which DLedger leaves zero, is looked at by ``Scanner``, one entry at
        a time."""
        stamped = np.flatnonzero(self._fields.int32(rows.at - 8))
        for n in stamped.tolist():
            offset = self._start + int(rows.at[n]) - HEADER_SIZE
            if self._scanner.piece(offset).kind is not PieceKind.ENTRY:
                return int(n)
        return len(rows.at)

    def _is_text(self, rows: Rows) -> bool:
        data = pa.py_buffer(self._view)
        try:
            for begins, ends in ((rows.topic, rows.topic_end), (rows.properties, rows.end)):
                slices(data, begins, ends, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def _first_without_text(self, rows: Rows) -> int:
        low, high = 0, len(rows.at)
        while low + 1 < high:  # the first ``low`` are text, the first ``high`` are not
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_text(rows.first(middle)) else (low, middle)
        return low

    def _chosen(self, rows: Rows) -> Rows:
        """Those of them that are wanted."""
        wanted, chosen = self._wanted, np.ones(len(rows.at), np.bool_)
        if wanted.stored_from is not None or wanted.stored_before is not None:
            stored = rows.fields.int64(rows.born_host_end)
            if wanted.stored_from is not None:
                chosen &= stored >= wanted.stored_from
            if wanted.stored_before is not None:
                chosen &= stored < wanted.stored_before
        if wanted.topic is not None:
            topics = MessageColumns(rows, start=self._start).column("topic").dictionary_encode()
            fits = np.array([*map(wanted.topic, topics.dictionary.to_pylist())], np.bool_)
            chosen &= fits[np.frombuffer(topics.indices.buffers()[1], np.int32)[: len(rows.at)]]
        return rows if chosen.all() else rows.only(chosen)

    def _batch(self, rows: Rows, entries: bool, end: int) -> ColumnBatch:
        last = int(rows.at[-1])
        rows = self._chosen(rows)
        if not len(rows.at):
            return ColumnBatch(None, [], end, self._start + last, has_last=False)
        taken = MessageColumns(rows, entries, start=self._start)
        arrays = [taken.column(name) for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        has_last = bool(rows.at[-1] == last)
        return ColumnBatch(batch, taken.damage, end, self._start + last, has_last=has_last)


def first_false(values: npt.NDArray[np.bool_]) -> int:
    """Number of the first False, or how many there are."""
    return len(values) if values.all() else int(np.argmin(values))
