"""The result of a scan: a piece of a log, or the reason why it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.records.body.header import BodyKind as BodyKind


class PieceKind(Enum):
    """The kind of a piece of a file."""

    MESSAGE = "message"
    ENTRY = "entry"
    """A DLedger entry with a message in it; the message begins 48 bytes behind the piece's
    start."""
    NOOP = "noop"
    """A DLedger entry that is no message's: without a body, as version 0.4.0 and groups of dledger
    write at elections, or with a command of dledger's own, as when a member is admitted."""
    BLANK = "blank"
    """Closes a file of a plain commit log."""
    DLEDGER_BLANK = "dledger blank"
    """Closes a file of a DLedger log."""
    UNUSED = "unused"
    """Zeros to the end: nothing has been written there yet."""
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class ScannedPiece:
    """Bytes ``start`` to ``end`` of the log (offsets in the log, not in the buffer)."""

    kind: PieceKind
    start: int
    end: int
    reason: str = ""
    """For damage: the fault of its first bytes."""

    @property
    def message_offset(self) -> int:
        """Physical offset of the message in it."""
        return self.start + (HEADER_SIZE if self.kind is PieceKind.ENTRY else 0)


class Incomplete(Exception):
    """The buffer is a part of a file, and the piece at ``offset`` cannot be told without the bytes
    up to ``end``."""

    def __init__(self, offset: int, end: int) -> None:
        super().__init__(f"bytes {offset} to {end} are needed")
        self.offset = offset
        self.end = end


class Unbounded(Exception):
    """Damage, or where there is no ``reason`` zeros, from ``offset`` to the end of a buffer that is
    a part of a file, and perhaps further."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason
