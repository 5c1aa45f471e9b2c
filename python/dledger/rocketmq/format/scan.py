"""The pieces of a commit log file: every sound message, and exactly the bytes that are none.

Works on plain files and on those of DLedger mode, where a 48-byte entry header stands before each
message; a store that was upgraded has both. A file is laid out in ``ScannedPiece``s without a gap:
bytes that no message, blank or unused space accounts for are a piece of damage with the reason.
Behind damage, the next message counts only where all of it agrees: its sizes, its CRC, and the
physical offset in it, which must be the one where it lies. A message inside another one's body, or
left over from another file, is therefore never taken for one.

Whether entries follow one another in index and term is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from dledger.checksum import crc32
from dledger.errors import FormatError
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MAGIC_NOOP, MAGIC_NORMAL
from dledger.records.body.header import BODY_HEADER_SIZE, BODY_MAGIC, BODY_VERSION
from dledger.records.body.header import BodyKind as BodyKind
from dledger.rocketmq.format.message import (
    BLANK_MAGIC,
    BLANK_SIZE,
    DLEDGER_BLANK_MAGIC,
    INT64,
    MESSAGE_MAGICS,
    MIN_MESSAGE,
    MOST_HEAD,
    PAIR,
    PHYSICAL_OFFSET_AT,
    Layout,
    check_contents,
    lay_out,
    read_head,
)
from dledger.rocketmq.format.scanned_piece import Incomplete, PieceKind, ScannedPiece, Unbounded
from dledger.types import Buffer

MARKS: Final = re.compile(
    rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94|\xff\xff\xff\xff(?=[\x00-\x7f])"
)
"""Where a piece may begin: the magic of a message, of a blank, of DLedger's padding."""
COMMAND: Final = BODY_MAGIC + bytes((BODY_VERSION, BodyKind.COMMAND))
"""Begins the body of an entry of a dledger group that is no message but a command, see
``dledger.records.body.header``."""
STRETCH: Final = 1 << 16
NOTHING: Final = 4096
"""So many zeros behind a damaged message mean that it was the last one."""
ZEROS: Final = bytes(STRETCH)


def scan(
    data: Buffer, start: int = 0, *, file_end: int | None = None, check: bool = True
) -> Iterator[ScannedPiece]:
    """All pieces of a commit log file, in order and without a gap.

    Args:
        data: a file's bytes, or the part of it that there is.
        start: offset in the log of the first byte; for a whole file, its name.
        file_end: offset in the log where the file ends, if the data end before that.
        check: compare bodies with their CRC.
    """
    scanner = Scanner(data, start, file_end=file_end, check=check)
    at = start
    while at < scanner.end:
        piece = scanner.piece(at)
        yield piece
        at = piece.end


class Scanner:
    """Finds the piece at one offset of a log; ``scan`` walks with it."""

    marks: ClassVar[re.Pattern[bytes]] = MARKS

    def __init__(
        self,
        data: Buffer,
        start: int = 0,
        *,
        file_end: int | None = None,
        data_end: int | None = None,
        check: bool = True,
    ) -> None:
        """Args:
        data_end: offset in the log where the file's bytes end, when the buffer is only a part of
        them; then the methods
            raise ``Incomplete`` and ``Unbounded`` where the rest decides.
        Others: as for ``scan``.
        """
        self.view = memoryview(data).cast("B")
        self.start = start
        """Offset in the log of the first byte of the buffer."""
        self.check = check
        """Whether bodies are compared with their CRC."""
        self.end = start + len(self.view)
        """Offset in the log behind the last byte of the buffer."""
        self.data_end = self.end if data_end is None else data_end
        self.file_end = self.data_end if file_end is None else file_end

    def piece(self, offset: int) -> ScannedPiece:
        """The piece that begins at this offset, which must be below ``end``. There is one for any
        bytes.

        Raises:
            Incomplete, Unbounded: bytes behind the buffer decide.
        """
        self._need(offset, min(PAIR.size, self.data_end - offset))
        if self._is_zero(offset):
            if self.end < self.data_end:
                raise Unbounded(offset, "")
            return ScannedPiece(PieceKind.UNUSED, offset, self.end)
        try:
            return self._sound(offset)
        except FormatError as e:
            return ScannedPiece(PieceKind.DAMAGE, offset, self._damage_end(offset, str(e)), str(e))

    def is_sound(self, offset: int) -> bool:
        """Whether a sound message, entry or blank begins at this offset.

        Raises:
            Incomplete: bytes behind the buffer decide.
        """
        return self._try(offset - self.start) is not None

    def next_sound(self, offset: int) -> ScannedPiece | None:
        """The first sound message or blank at or behind this offset, which may be anywhere in the
        log.

        This is how a part of a file is read that does not begin where a message does. The message
        of an entry that began before the offset belongs to the part before; for that to be seen,
        the buffer must hold the 48 bytes in front of the offset.

        Raises:
            Incomplete: whether the piece at the offset that it names is sound depends on bytes
                behind the buffer.
        """
        begin = max(0, offset - self.start)
        for mark in self.marks.finditer(self.view, begin):
            place = self._place(mark)
            try:
                found = self._try(place) if place >= begin else None
            except Incomplete as e:
                raise Incomplete(self.start + place, e.end) from None
            if found is not None:
                return found
        return None

    def _place(self, mark: re.Match[bytes]) -> int:
        """Where the piece with this mark in it would begin, as a position in the buffer."""
        place = mark.start() if mark.group()[0] == 0xFF else mark.start() - 4
        return place - HEADER_SIZE if self._in_entry(place) else place

    def _in_entry(self, place: int) -> bool:
        """Whether a header stands before this position that says so itself and agrees with the
        message's size: then the entry decides whether the message is sound, and whose it is."""
        at = place - HEADER_SIZE
        if at < 0 or place + PAIR.size > len(self.view):
            return False
        magic, size, _, _, pos, _, _, _, body_size = HEADER.unpack_from(self.view, at)
        agrees = (
            body_size == PAIR.unpack_from(self.view, place)[0] and size == HEADER_SIZE + body_size
        )
        return bool(magic == MAGIC_NORMAL and pos == self.start + at and agrees)

    def _try(self, place: int) -> ScannedPiece | None:
        """The sound piece at this position of the buffer, if there is one."""
        try:
            return self._sound(self.start + place) if place >= 0 else None
        except FormatError:
            return None

    def _need(self, offset: int, length: int) -> None:
        """Ask for bytes of the file that the buffer does not have."""
        if self.end < offset + length <= self.data_end:
            raise Incomplete(offset, offset + length)

    def _sound(self, offset: int) -> ScannedPiece:
        """The sound piece here.

        Raises:
            FormatError: there is none.
        """
        at, room = offset - self.start, self.data_end - offset
        if room < PAIR.size:
            raise FormatError(f"{room} bytes are too few for anything")
        self._need(offset, PAIR.size)
        first, second = PAIR.unpack_from(self.view, at)
        if self._is_message(second):
            return ScannedPiece(PieceKind.MESSAGE, offset, offset + self._message(at, room))
        if second == BLANK_MAGIC or first == DLEDGER_BLANK_MAGIC:
            is_plain = second == BLANK_MAGIC
            kind, size = (PieceKind.BLANK, first) if is_plain else (PieceKind.DLEDGER_BLANK, second)
            if size != self.file_end - offset:
                raise FormatError(
                    f"a {kind.value} of {size:,} bytes, {self.file_end - offset:,} before the "
                    f"file's end"
                )
            return ScannedPiece(kind, offset, self.data_end)
        if self._is_entry(first):
            return self._entry(offset, at, room)
        raise FormatError(
            f"{first & 0xFFFF_FFFF:08x} {second:08x} begins neither message, entry nor blank"
        )

    def _is_message(self, magic: int) -> bool:
        return magic in MESSAGE_MAGICS

    def _is_entry(self, magic: int) -> bool:
        return magic in (MAGIC_NORMAL, MAGIC_NOOP)

    def _entry(self, offset: int, at: int, room: int) -> ScannedPiece:
        if room < HEADER_SIZE:
            raise FormatError(f"{room} bytes are too few for an entry")
        self._need(offset, HEADER_SIZE)
        magic, size, index, _, pos, _, _, body_crc, body_size = HEADER.unpack_from(self.view, at)
        if body_size < 0 or size != HEADER_SIZE + body_size or size > room:
            raise FormatError(
                f"an entry with size {size:,} and body size {body_size:,}, {room:,} bytes before "
                f"the end"
            )
        if pos != offset:
            raise FormatError(f"entry {index} says that it lies at {pos:,}")
        if magic == MAGIC_NOOP and not body_size:
            return ScannedPiece(PieceKind.NOOP, offset, offset + size)
        self._need(offset, size)
        body = at + HEADER_SIZE
        if body_crc and self.check and crc32(self.view[body : body + body_size]) != body_crc:
            raise FormatError(f"entry {index}: the body does not match the entry's CRC")
        if self._is_command(body, body_size) and body_crc:
            return ScannedPiece(PieceKind.NOOP, offset, offset + size)
        self._body(index, body, body_size)
        return ScannedPiece(PieceKind.ENTRY, offset, offset + size)

    def _is_command(self, at: int, size: int) -> bool:
        return size >= BODY_HEADER_SIZE and bytes(self.view[at : at + len(COMMAND)]) == COMMAND

    def _body(self, index: int, at: int, size: int) -> None:
        """Check the body of an entry.

        Raises:
            FormatError: it is no message, or more than one.
        """
        if self._message(at, size) != size:
            raise FormatError(f"entry {index}: the message ends before the entry does")

    def _message(self, at: int, room: int) -> int:
        """Size of the message at this position of the buffer."""
        layout = self._lay_out(at, room)
        if self.check:
            check_contents(self.view, at, layout)
        return layout.end - at

    def _lay_out(self, at: int, room: int, *, placed: bool = True) -> Layout:
        """The message's parts.

        Raises:
            FormatError: its sizes do not add up, or, where ``placed`` matters, it says that it lies
                elsewhere.
        """
        offset = self.start + at
        if room >= MIN_MESSAGE:
            self._need(offset, min(room, MOST_HEAD))
        head = read_head(self.view, at, room)
        says = INT64.unpack_from(self.view, at + PHYSICAL_OFFSET_AT)[0]
        if placed and says != offset:
            raise FormatError(f"the message says that it lies at {says:,}")
        self._need(offset, head.size)
        return lay_out(self.view, at, room)

    def _damage_end(self, offset: int, reason: str) -> int:
        """Where the damage that begins here is over: at the next sound piece, or where only zeros
        are left."""
        if self._only_the_header_is_wrong(offset):
            return offset + HEADER_SIZE
        claimed = self._claimed_end(offset)
        if claimed is not None and self._follows(claimed):
            return claimed
        found = self.next_sound(offset + 1)
        if found is None and self.end < self.data_end:
            raise Unbounded(offset, reason)
        return self.last_written(offset) if found is None else found.start

    def _only_the_header_is_wrong(self, offset: int) -> bool:
        """Whether an entry's header contradicts itself or its place, but a sound message stands
        behind it."""
        at, room = offset - self.start, self.data_end - offset
        if room < HEADER_SIZE:
            return False
        self._need(offset, min(room, HEADER_SIZE + PAIR.size))
        if self._in_entry(at + HEADER_SIZE):
            return False
        try:
            return bool(self._message(at + HEADER_SIZE, room - HEADER_SIZE))
        except FormatError:
            return False

    def _claimed_end(self, offset: int) -> int | None:
        """Where the damaged message or entry would end by sizes that agree with one another."""
        at, room = offset - self.start, self.data_end - offset
        if room > HEADER_SIZE and PAIR.unpack_from(self.view, at)[0] == MAGIC_NORMAL:
            at, room = at + HEADER_SIZE, room - HEADER_SIZE
        try:
            return self.start + self._lay_out(at, room, placed=False).end
        except FormatError:
            return None

    def _follows(self, offset: int) -> bool:
        """Whether something sound begins here, or nothing at all."""
        length = min(NOTHING, self.data_end - offset)
        self._need(offset, length)
        at = offset - self.start
        is_empty = bytes(self.view[at : at + length]) == ZEROS[:length]
        return is_empty or self._try(at) is not None

    def _is_zero(self, offset: int) -> bool:
        """Whether nothing but zeros is left in the buffer; true at the end."""
        at, size, length = offset - self.start, len(self.view), BLANK_SIZE
        while at < size:
            part = bytes(self.view[at : at + length])
            if part != ZEROS[: len(part)]:
                return False
            at, length = at + len(part), STRETCH
        return True

    def last_written(self, offset: int) -> int:
        """Offset behind the last byte of the buffer that is not zero, or the given one where all
        are."""
        end, begin = len(self.view), offset - self.start
        while end > begin:
            part = bytes(self.view[max(begin, end - STRETCH) : end])
            left = part.rstrip(b"\0")
            if left:
                return self.start + end - len(part) + len(left)
            end -= len(part)
        return offset
