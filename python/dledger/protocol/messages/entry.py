"""The entry, DLedger's replicated unit, and its 48 header bytes.

::

    byte 0       4      8       16     24    32        36         40        44         48
         | magic | size | index | term | pos | channel | chainCrc | bodyCrc | bodySize | body ...

All numbers are big-endian. ``bodyCrc`` is the CRC-32 of the body; ``chainCrc`` is the CRC-32 of the
header with its own field zeroed, seeded with the previous entry's ``chainCrc``, so that it vouches
for the whole log before it. DLedger leaves both zero: such an entry is "unverified".
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.checksum import crc32
from dledger.types import (
    NO_INDEX,
    NO_TERM,
    NOWHERE,
    Buffer,
    Index,
    NodeId,
    Position,
    Term,
    slots_dataclass,
)

HEADER: Final = struct.Struct(">iiqqqiIIi")
HEADER_SIZE: Final = 48
assert HEADER.size == HEADER_SIZE

MAGIC_BLANK: Final = -1
MAGIC_NORMAL: Final = 1
MAGIC_NOOP: Final = 2
MAX_MAGIC: Final = 3
"""Of an entry, RocketMQ's own change of settings among them."""
MIN_BLANK_SIZE: Final = 8
"""An entry only goes into a file if this many bytes stay behind it (magic and size of the
padding)."""


@slots_dataclass()
class Entry:
    """One entry: its header as it stands on disk, and its body, never copied together."""

    index: Index
    term: Term
    magic: int
    pos: int
    chain_crc: int
    body_crc: int
    header: Buffer
    body: Buffer

    @property
    def size(self) -> int:
        """Bytes in the file: header and body."""
        return HEADER_SIZE + len(self.body)

    @property
    def end_pos(self) -> int:
        """Byte offset in the log just behind this entry."""
        return self.pos + HEADER_SIZE + len(self.body)

    @property
    def position(self) -> Position:
        return Position(self.term, self.index)

    @property
    def verified(self) -> bool:
        """False for an entry that DLedger itself wrote: both checksums are zero."""
        return self.chain_crc != 0 or self.body_crc != 0

    def __str__(self) -> str:
        return f"{self.index}@{self.term}+{self.size}"


@slots_dataclass()
class LogEnd:
    """The end of the log before the next entry, as far as that entry depends on it."""

    position: Position = NOWHERE
    end_pos: int = 0
    chain_crc: int = 0

    @staticmethod
    def after(entry: Entry) -> LogEnd:
        return LogEnd(Position(entry.term, entry.index), entry.end_pos, entry.chain_crc)


@slots_dataclass()
class HardState:
    """The state that a node must never forget. It is durable before any message that depends on it
    leaves."""

    term: Term = NO_TERM
    voted_for: NodeId | None = None
    commit_hint: Index = NO_INDEX
    """An index that was committed when this was saved; recovery never cuts at or below it."""


def place(end_pos: int, size: int, segment_size: int) -> int:
    """Where an entry of ``size`` bytes goes: here, or at the start of the next file when it does
    not fit."""
    remaining = segment_size - end_pos % segment_size
    return end_pos if size + MIN_BLANK_SIZE <= remaining else end_pos + remaining


def too_large(size: int, segment_size: int) -> ValueError:
    """The error for an entry that fits no file."""
    return ValueError(f"an entry of {size} bytes does not fit a segment of {segment_size} bytes")


def stamp(end: LogEnd, term: Term, magic: int, body: Buffer, segment_size: int) -> Entry:
    """The entry that puts ``body`` right behind ``end``.

    Raises:
        ValueError: the entry does not fit a file of ``segment_size`` bytes.
    """
    size = HEADER_SIZE + len(body)
    if size + MIN_BLANK_SIZE > segment_size:
        raise too_large(size, segment_size)
    index, pos = Index(end.position.index + 1), place(end.end_pos, size, segment_size)
    body_crc, fields = crc32(body), (magic, size, index, term, pos, 0)
    chain_crc = crc32(HEADER.pack(*fields, 0, body_crc, len(body)), end.chain_crc)
    header = HEADER.pack(*fields, chain_crc, body_crc, len(body))
    return Entry(index, term, magic, pos, chain_crc, body_crc, header, body)


def parse(data: Buffer) -> Entry:
    """The entry whose bytes are exactly ``data``; checks shape, not checksums.

    Raises:
        ValueError: the sizes do not agree with one another.
    """
    view = memoryview(data)
    if len(view) < HEADER_SIZE:
        raise ValueError(f"an entry has at least {HEADER_SIZE} bytes, not {len(view)}")
    magic, size, index, term, pos, _, chain_crc, body_crc, body_size = HEADER.unpack_from(view)
    if size != len(view) or body_size != size - HEADER_SIZE:
        raise ValueError(
            f"entry {index}: size {size} and body size {body_size} in {len(view)} bytes"
        )
    header, body = bytes(view[:HEADER_SIZE]), view[HEADER_SIZE:]
    return Entry(index, term, magic, pos, chain_crc, body_crc, header, body)


def body_is_sound(entry: Entry) -> bool:
    """Whether the body is the one the leader stamped. An unverified entry is taken on trust, as
    DLedger does."""
    return crc32(entry.body) == entry.body_crc or not entry.verified


def chain_is_sound(entry: Entry, previous_chain_crc: int) -> bool:
    """Whether the header follows the previous entry's. An unverified entry is taken on trust, as
    DLedger does."""
    header = entry.header
    zeroed = b"".join((header[:36], bytes(4), header[40:]))
    return crc32(zeroed, previous_chain_crc) == entry.chain_crc or not entry.verified
