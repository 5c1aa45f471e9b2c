"""Where the bytes of a log are not zeros any more."""

from __future__ import annotations

from typing import Final, Protocol

CHUNK: Final = 1 << 20
LOOK_BYTES: Final = 64 << 10
"""Steps in which a file is searched for holes."""


class Segments(Protocol):
    """Files of one size, one behind the other; `dledger.storage.log.segments`."""

    file_size: int

    def has(self, offset: int) -> bool: ...
    def pread(self, offset: int, size: int) -> bytes: ...
    def next_data(self, offset: int) -> int | None: ...


def first_nonzero(data: Segments, pos: int, end: int | None = None) -> int | None:
    """The first byte from ``pos`` to ``end``, or to the end of all files, that is not zero. Holes
    are not read."""
    while data.has(pos) and (end is None or pos < end):
        stop = pos - pos % data.file_size + data.file_size
        stop = stop if end is None else min(stop, end)
        for at, size in _places_to_look(data, pos, stop):
            block = data.pread(at, size)
            if block.count(0) != len(block):
                return at + len(block) - len(block.lstrip(b"\0"))
        pos = stop
    return None


def _places_to_look(data: Segments, pos: int, stop: int) -> list[tuple[int, int]]:
    """The places that may hold anything but zeros, as (offset, size). All are found before any is
    read: bytes that the system reads ahead lie in its cache and from then on look like data, so a
    whole file without data would be read."""
    places: list[tuple[int, int]] = []
    while pos < stop:
        found = data.next_data(pos)
        if found is None or found >= stop:
            break
        size = min(LOOK_BYTES, stop - found)
        if places and sum(places[-1]) == found and places[-1][1] + size <= CHUNK:
            places[-1] = (places[-1][0], places[-1][1] + size)
        else:
            places.append((found, size))
        pos = found + size
    return places
