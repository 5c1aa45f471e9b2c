"""The answers of the catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dledger.protocol.messages.codes import Code


class DataResult(NamedTuple):
    """The outcome of a batch. ``base_offset`` is its first record's offset, -1 when it has none
    (staged or refused)."""

    code: Code
    base_offset: int = -1
    message: str = ""


class BatchRef(NamedTuple):
    """Where a batch lies: offsets [base_offset, base_offset + count), and the entry that holds it.
    ``size`` and ``crc`` are the body's, in bytes and CRC-32 (0: unverified); ``pos`` is the
    entry's."""

    base_offset: int
    count: int  # type: ignore[assignment]  # tuple.count and tuple.index are not needed here
    index: int  # type: ignore[assignment]
    pos: int
    size: int
    crc: int


class RunRef(NamedTuple):
    """Where batches lie whose entries are neighbours: ``rows`` of the table, the entries' first and
    last index, the first one's pos, the bytes of all of them, and the offset behind the last."""

    rows: bytes
    first: int
    last: int
    pos: int
    size: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The outcome of a command; ``result`` is empty unless ``code`` is SUCCESS."""

    code: Code
    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)


STAGED: Final = DataResult(Code.SUCCESS)
"""The answer to every batch that waits for its transaction."""
