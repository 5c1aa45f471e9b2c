"""A log file of any size through windows of a few MiB: the same batches and the same damage as of
the whole file.

Only one window is held at once, or one message where that is larger. A range of a file can be read
by itself: each message belongs to the range in which it begins, so that ranges without gaps between
them give every message once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final

from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.columns.commit_log import EVERYTHING, ColumnBatch, Wanted, column_batches
from dledger.rocketmq.columns.entries import EntryScanner, entry_batches
from dledger.rocketmq.format.message import MAX_BODY, lay_out
from dledger.rocketmq.format.scan import Scanner
from dledger.rocketmq.format.scanned_piece import Incomplete, PieceKind, ScannedPiece, Unbounded
from dledger.rocketmq.with_numpy import np

Read = Callable[[int, int], bytes]
"""``read(offset, length)``: exactly these bytes of the log."""
WINDOW: Final = 16 << 20
GLANCE: Final = 1 << 16
"""Bytes that are read to examine one place."""
LOOKBACK: Final = MAX_BODY + (1 << 17)
"""A range's begin is found by walking from so far before it. Bytes in the middle of a body may look
like a message that lies where it says: a sender can make them so. From before the largest message
that holds them they do not.
"""
OVERLAP: Final = 64
"""Of two windows in a search: more than a mark and the bytes around it."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A file's place in the log."""

    start: int
    """Offset of its first byte, which is its name."""
    data_end: int
    """Offset behind its last byte."""
    file_end: int
    """Offset behind the last byte that it should have; blanks count to there."""
    next_start: int | None = None
    """Where the log goes on, in another file; None for the file that is being written."""


@dataclass(eq=False)
class FileReader:
    """Reads one log file."""

    read: Read
    span: LogSpan
    _: KW_ONLY
    entries: bool = False
    """DLedger's entries with any body, as `entry_batches` gives them; otherwise messages, as
    `column_batches` does, which explains the other fields."""
    columns: tuple[str, ...] | None = None
    wanted: Wanted = EVERYTHING
    check: bool = True
    window: int = WINDOW
    """Bytes that are read at once."""
    lookback: int = LOOKBACK
    """How far before a range its begin is looked for."""
    batch_bytes: int = WINDOW // 4

    def __post_init__(self) -> None:
        span, entries, check = self.span, self.entries, self.check
        self._doubted = -1
        places: dict[str, Any] = {"file_end": span.file_end, "data_end": span.data_end}
        self._scanner: Callable[..., Scanner] = partial(
            EntryScanner if entries else Scanner, check=check, **places
        )
        batches: Callable[..., Iterator[ColumnBatch]] = entry_batches if entries else column_batches
        self._walk: Callable[..., Iterator[ColumnBatch]] = partial(
            batches, columns=(), check=check, **places
        )
        more: dict[str, Any] = {"batch_bytes": self.batch_bytes} | places
        if not entries:
            more["wanted"] = self.wanted
        self._batches = partial(batches, columns=self.columns, check=check, **more)

    def batches(self, begin: int, stop: int, *, exact: bool = False) -> Iterator[ColumnBatch]:
        """The pieces of the range [begin, stop) of the file: from the first sound piece in it, or
        from the file's start, up to the first sound piece behind it. Damage goes with the sound
        piece before it.

        A file behind which the log goes on must be closed by a blank; where it is not, the rest is
        damage. In the file that is being written, damage is read twice: bytes written meanwhile may
        come in another order than they are read in. An unsound rest with no sound piece behind it
        is no damage there but a ``tail``: a crash leaves that, and a broker that comes back writes
        over it.

        Args:
            exact: a piece is known to end at ``begin``, and the piece that begins there belongs to
            the range.
        """
        at = begin if exact else self.border(begin, stop)
        if at is None:
            return
        batches = self._range(at, min(stop, self.span.data_end))
        yield from batches if self.span.next_start is not None else self._up_to_the_end(batches)

    def _up_to_the_end(self, batches: Iterator[ColumnBatch]) -> Iterator[ColumnBatch]:
        """Of the file that is being written: only the bytes behind a piece show that it is not the
        last one."""
        held: list[ColumnBatch] = []
        for batch in batches:
            if batch.kind is PieceKind.UNUSED:
                yield from self._last(held)
            elif batch.kind is not PieceKind.DAMAGE:
                yield from held
            else:
                held.append(batch)
                continue
            held = [batch]
        yield from self._last(held) if held and held[-1].end >= self.span.data_end else held

    def _last(self, held: Sequence[ColumnBatch]) -> Iterator[ColumnBatch]:
        """These batches, as the last ones of the log: damage is no damage, and half a message is
        none."""
        for batch in held:
            if batch.kind is PieceKind.DAMAGE:
                (piece,) = batch.damage
                yield replace(batch, damage=[], tail=piece)
                continue
            is_last = batch.kind is None and batch is held[-1]
            if is_last and not self.entries and not self._is_whole(batch):
                reason = "a message without the end of its properties"
                tail = ScannedPiece(PieceKind.DAMAGE, batch.last, batch.end, reason)
                rows = batch.rows
                if rows and batch.has_last:
                    rows = rows.slice(0, rows.num_rows - 1)
                yield replace(batch, rows=rows, tail=tail)
            else:
                yield batch

    def _is_whole(self, batch: ColumnBatch) -> bool:
        """Whether the log's last message, or entry, has been written to its end.

        It is read once more: bytes written while they are read can come in another order. A message
        that ends with zeros may go on: no checksum covers the parts behind its body, but topic and
        properties have no zeros in them.
        """
        data = self.read(batch.last, batch.end - batch.last)
        if not self._scanner(data, batch.last, data_end=batch.end).is_sound(batch.last):
            return False
        if self.entries:
            return len(data) == HEADER_SIZE or data[-1] != 0
        parts = lay_out(data, 0, len(data))
        return 0 not in data[parts.topic : parts.topic_end] and 0 not in data[parts.properties :]

    def _range(self, at: int, stop: int) -> Iterator[ColumnBatch]:
        while at < self.span.data_end:
            if at >= stop and self._is_sound(at):
                return
            for batch in self._batches_from(at, max(stop, at + 1), self._batches):
                yield batch
                if batch.end >= self.span.data_end:
                    closed = self.span.data_end if batch.kind is not PieceKind.UNUSED else at
                    yield from self._unclosed(closed, batch.kind)
                at = batch.end

    def written_end(self, border: int) -> int:
        """Where the last sound piece ends that follows a border, in a file that is being written.

        Behind that may be half a message. Damage is passed when a sound piece stands behind it, so
        that it is read and told of; zeros are not.
        """
        at, length = border, GLANCE
        last: ColumnBatch | None = None  # the rows that end at ``at``, if any do
        while at < self.span.data_end:
            data = self.read(at, min(length, self.span.data_end - at))
            length = self.window
            try:
                for batch in self._walk(data, at):
                    damaged = batch.kind is PieceKind.DAMAGE
                    if batch.kind is PieceKind.UNUSED or (damaged and not self._goes_on(batch.end)):
                        return self._whole_end(at, None if damaged else last)
                    at, last = batch.end, batch if batch.kind is None else None
            except Incomplete as more:
                length = max(length, more.end - at)
            except Unbounded as begun:
                return self._whole_end(at, None if begun.reason else last)
        return self._whole_end(at, last)

    def _goes_on(self, at: int) -> bool:
        return at < self.span.data_end and self._is_sound(at)

    def _whole_end(self, at: int, last: ColumnBatch | None) -> int:
        if last is None or self._is_whole(last):
            return at
        start = last.last - (0 if self.entries else HEADER_SIZE)
        return start if start >= self.span.start and self._is_sound(start) else last.last

    def border(self, begin: int, stop: int) -> int | None:
        """Where the first sound piece of the range [begin, stop) begins, or the file, if that is in
        it; or None."""
        span = self.span
        if begin <= span.start:
            return span.start if stop > span.start else None
        at = max(span.start, begin - self.lookback)
        if at > span.start:
            found, _ = self._search(at, stop)
            if found is None:
                return None
            at = found.start
        for batch in self._batches_from(at, begin, self._walk):
            at = batch.end
        while at < min(stop, span.data_end) and not self._is_sound(at):
            at = next(self._batches_from(at, at + 1, self._walk)).end
        return at if at < min(stop, span.data_end) else None

    def _is_sound(self, at: int) -> bool:
        length = GLANCE
        while True:
            data = self.read(at, min(length, self.span.data_end - at))
            try:
                return self._scanner(data, at).is_sound(at)
            except Incomplete as more:
                length = more.end - at

    def _unclosed(self, offset: int, kind: PieceKind | None) -> Iterator[ColumnBatch]:
        goes_on, is_blank = self.span.next_start, kind in (PieceKind.BLANK, PieceKind.DLEDGER_BLANK)
        if goes_on is not None and goes_on > offset and not is_blank:
            reason = f"nothing is there, and the log goes on at {goes_on:,} in another file"
            batch = ColumnBatch.of(ScannedPiece(PieceKind.DAMAGE, offset, goes_on, reason))
            yield replace(batch, end=self.span.data_end)

    def _batches_from(
        self, at: int, stop: int, batches: Callable[..., Iterator[ColumnBatch]]
    ) -> Iterator[ColumnBatch]:
        """The pieces that begin in [at, stop), where ``at`` is a border."""
        stop, length = min(stop, self.span.data_end), self.window
        while at < stop:
            data = self.read(at, min(length, self.span.data_end - at))
            length = self.window
            try:
                for batch in batches(data, at, stop=stop):
                    if self._look_again(batch, at):
                        break
                    at = batch.end
                    yield batch
            except Incomplete as more:
                length = max(length, more.end - at)
            except Unbounded as begun:
                batch = self._rest(begun)
                if self._look_again(batch, at):
                    continue
                at = batch.end
                yield batch

    def _look_again(self, batch: ColumnBatch, at: int) -> bool:
        """Whether this is damage in the file that is being written, seen for the first time."""
        is_damage = batch.kind is PieceKind.DAMAGE
        again = is_damage and self.span.next_start is None and self._doubted != at
        self._doubted = at if again else self._doubted
        return again

    def _rest(self, begun: Unbounded) -> ColumnBatch:
        """Zeros or damage that go on behind a window, with an end."""
        found, written = self._search(begun.offset + 1)
        if not begun.reason and found is None and written <= begun.offset:
            unused = ScannedPiece(PieceKind.UNUSED, begun.offset, self.span.data_end)
            return ColumnBatch.of(unused)
        reason = begun.reason or "00000000 00000000 begins neither message, entry nor blank"
        end = max(written, begun.offset + 1) if found is None else found.start
        return ColumnBatch.of(ScannedPiece(PieceKind.DAMAGE, begun.offset, end, reason))

    def _search(self, offset: int, stop: int | None = None) -> tuple[ScannedPiece | None, int]:
        """The first sound piece at or behind an offset and before ``stop``, and where there is none
        the end of the bytes that are not zero."""
        span, at, length, written = self.span, offset, self.window, 0
        stop = span.data_end if stop is None else min(stop, span.data_end)
        while at < stop:
            begin = max(span.start, at - HEADER_SIZE)
            data = self.read(begin, min(length + HEADER_SIZE, span.data_end - begin))
            end, length = begin + len(data), self.window
            if np.frombuffer(data, np.uint8).any():
                scanner = self._scanner(data, begin)
                try:
                    found = scanner.next_sound(at)
                except Incomplete as more:
                    at, length = more.offset, max(length, more.end - more.offset)
                    continue
                if found is not None:
                    return found if found.start < stop else None, written
                last = scanner.last_written(begin)
                written = last if last > begin else written
            at = end if end >= span.data_end else max(at + 1, end - OVERLAP)
        return None, written
