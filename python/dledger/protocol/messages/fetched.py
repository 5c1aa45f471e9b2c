"""The answer to a fetch: bodies, or whole entries, as the frame's payload, and where they lie."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from itertools import starmap
from operator import attrgetter
from typing import Final

from dledger.protocol.messages.client import FetchRequest, Response
from dledger.types import slots_dataclass


@slots_dataclass()
class FetchedBatch:
    """One body in the payload; its records have offsets from ``base_offset`` on. ``size`` and
    ``crc`` are the body's, crc 0 when it was stored unverified; ``index`` and ``term`` its entry's,
    -1 where they are not known."""

    base_offset: int
    count: int
    size: int
    crc: int
    index: int = -1
    term: int = -1


FETCHED_ROW: Final = struct.Struct(">qIIIqq")
"""The fields of a FetchedBatch on the wire."""
_fields_of: Final = attrgetter("base_offset", "count", "size", "crc", "index", "term")


class FetchedBatches(Collection[FetchedBatch]):
    """The batches of one answer, as they travel: ``packed`` has 36 bytes of each. An answer may
    have a batch for each record, so that none is made before it is asked for."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    @classmethod
    def of(cls, batches: Iterable[FetchedBatch]) -> FetchedBatches:
        """Raises struct.error: a number has no room."""
        if isinstance(batches, FetchedBatches):
            return batches
        return cls(b"".join([FETCHED_ROW.pack(*_fields_of(batch)) for batch in batches]))

    def rows(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """The fields of each batch, in the order of FetchedBatch."""
        return FETCHED_ROW.iter_unpack(self.packed)

    @property
    def base_offset(self) -> int:
        """Of the first batch."""
        return next(self.rows())[0]

    @property
    def end_offset(self) -> int:
        """Behind the last record of the last batch."""
        base, count, *_ = FETCHED_ROW.unpack_from(self.packed, len(self.packed) - FETCHED_ROW.size)
        return int(base + count)

    def part(self, first: int, end: int) -> FetchedBatches:
        """Those from ``first`` to before ``end``."""
        size = FETCHED_ROW.size
        return FetchedBatches(self.packed[first * size : end * size])

    def __len__(self) -> int:
        return len(self.packed) // FETCHED_ROW.size

    def __iter__(self) -> Iterator[FetchedBatch]:
        return starmap(FetchedBatch, self.rows())

    def __contains__(self, batch: object) -> bool:
        return batch in tuple(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and tuple(self) == tuple(other)


RUN_ROW: Final = struct.Struct("<qqqqqqII")
"""Base offset, index, pos, two numbers of the node's own, sizes of the rows before, size, CRC."""
MOST_ROWS: Final = 16 << 10
"""Of one answer: the header of a frame, of 1 MiB at most, has them."""


@slots_dataclass()
class FetchedRun:
    """Neighbouring entries, whole: the node looks at none of them, the asker compares the CRCs.

    Attributes:
        rows: a RUN_ROW of each entry, as the node's catalog has them.
        end_offset: behind the last record.
        term: of all these entries.
    """

    rows: bytes = b""
    end_offset: int = 0
    term: int = -1


NO_RUN: Final = FetchedRun()


@slots_dataclass(kw_only=True)
class FetchResponse(Response):
    """Payload: the bodies, one behind the other, byte for byte as on disk; with a ``run`` its
    entries instead. At least one when any is there, even over ``max_bytes``."""

    begin_offset: int = 0
    end_offset: int = 0
    batches: Collection[FetchedBatch] = ()
    run: FetchedRun = NO_RUN


FIRST_FIELDS: Final[dict[type, int]] = {FetchRequest: 6, FetchResponse: 4}
"""How many fields of these are always there; those behind them are left out where they say nothing,
so that programs that do not know them go on."""
