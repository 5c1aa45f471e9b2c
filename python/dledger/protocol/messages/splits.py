"""Ranges of offsets that are cut into pieces for tasks, packed: one question may have those of
thousands of partitions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from dledger.errors import ProtocolError
from dledger.types import slots_dataclass

SPAN: Final = struct.Struct("<6q")
PIECE: Final = struct.Struct("<2q")
WHOLE: Final = 1 << 62
"""A ``target_bytes`` that nothing reaches: one piece, with the bytes of the whole range."""
_ONE: Final = struct.pack("<I", 1)
Pieces = list[tuple[int, int]]
"""The end offset and the stored bytes of each piece of a range, in order."""


class SplitSpan(NamedTuple):
    """Cut [start, end) at batch borders into pieces of about ``target_bytes`` stored bytes; at most
    ``max_pieces``."""

    topic_id: int
    partition: int
    start_offset: int
    end_offset: int
    target_bytes: int
    max_pieces: int = 10_000


@slots_dataclass(kw_only=True)
class SplitRequest:
    """Cut each of these, of any topics and partitions: spans, one behind the other."""

    spans: bytes

    @staticmethod
    def of(spans: Iterable[tuple[int, ...]]) -> SplitRequest:
        """The request for spans, with the fields of `SplitSpan` each.

        Raises:
            ProtocolError: a number has no room.
        """
        try:
            numbers = list(chain.from_iterable(spans))
            return SplitRequest(spans=struct.pack(f"<{len(numbers)}q", *numbers))
        except struct.error as error:
            raise ProtocolError(f"SplitRequest cannot be sent: {error}") from None

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Its spans, as plain tuples.

        Raises:
            ProtocolError: the bytes are none.
        """
        if len(self.spans) % SPAN.size:
            raise ProtocolError(f"SplitRequest.spans: {len(self.spans)} bytes are no spans")
        return SPAN.iter_unpack(self.spans)


def pack_cuts(cuts: Sequence[Pieces]) -> tuple[bytes, bytes]:
    """How many pieces each span has, and all of them."""
    numbers = list(chain.from_iterable(chain.from_iterable(cuts)))
    counts = struct.pack(f"<{len(cuts)}I", *map(len, cuts))
    return counts, struct.pack(f"<{len(numbers)}q", *numbers)


def unpack_cuts(counts: bytes, pieces: bytes) -> list[Pieces]:
    """The pieces of each span.

    Raises:
        ProtocolError: the bytes do not come from `pack_cuts`.
    """
    numbers = struct.unpack(f"<{len(counts) // 4}I", counts) if not len(counts) % 4 else ()
    if len(numbers) * 4 != len(counts) or sum(numbers) * PIECE.size != len(pieces):
        raise ProtocolError(
            f"SplitResponse: {len(counts)} bytes of counts and {len(pieces)} of pieces do not agree"
        )
    rows = PIECE.iter_unpack(pieces)
    return [[next(rows) for _ in range(number)] for number in numbers]


def unpack_sizes(counts: bytes, pieces: bytes) -> Sequence[int]:
    """The stored bytes of each span; raises as `unpack_cuts`."""
    if counts == _ONE * (len(pieces) // PIECE.size) and not len(pieces) % PIECE.size:
        return struct.unpack(f"<{len(pieces) // 8}q", pieces)[1::2]
    return [sum(size for _, size in cuts) for cuts in unpack_cuts(counts, pieces)]
