"""Which bytes of a file a sync covers: it began after they were written, and it has ended without
an error.

For disks of tests, which see to it that a store calls nothing durable but such bytes:
`verification.disk.memory_disk`, and `verification.counted.disk` for real files.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Final

UNDER_WAY: Final = 1 << 62
"""In the place of the number of syncs that had begun when a write ended: it has not."""
NEVER: Final = UNDER_WAY + 1
"""There, too: a sync that was to cover it has failed."""

FOUND: Final[list[str]] = []
"""Errors of this process, of bytes called durable without a sync. They are kept because a thread
under test may swallow the raised one."""


class Uncovered(AssertionError):
    """A store calls bytes durable that no sync covers."""


class Coverage:
    """Writes of one file that no sync covers. For many threads, without a lock: it adds none to
    what they wait for."""

    __slots__ = ("_begun", "_last", "_numbers", "_open")

    def __init__(self) -> None:
        self._begun = 0
        self._open: dict[int, tuple[int, int, int]] = {}
        """By a number of its own: syncs that had begun when a write ended, and where it begins and
        ends."""
        self._numbers = count()
        self._last = -1

    def writing(self, low: int, high: int) -> int:
        """A write of [low, high) begins; its number, for `wrote`."""
        number = next(self._numbers)
        self._open[number] = UNDER_WAY, low, high
        return number

    def wrote(self, number: int) -> None:
        """It has ended, with an error or without."""
        if number not in self._open:
            return  # cut off meanwhile
        _, low, high = self._open[number]
        last = self._open.get(self._last)
        if last is not None and last[0] == self._begun and last[2] == low:
            self._open[self._last] = self._begun, last[1], high
            del self._open[number]
        else:
            self._open[number] = self._begun, low, high
            self._last = number

    def begin(self) -> int:
        """A sync begins; its number, for `ended`."""
        self._begun += 1
        return self._begun

    def ended(self, sync: int) -> None:
        """It has, and without an error."""
        for number, (begun, _, _) in list(self._open.items()):
            if begun < sync:
                self._open.pop(number, None)

    def failed(self, sync: int) -> None:
        """It has, with an error: the pages that it was to write may be marked clean, so no later
        sync covers them."""
        for number, (begun, low, high) in list(self._open.items()):
            if begun < sync and number in self._open:
                self._open[number] = NEVER, low, high

    def cut(self, size: int) -> None:
        """The file ends there now."""
        for number, (begun, low, high) in list(self._open.items()):
            if low >= size:
                self._open.pop(number, None)
            elif high > size:
                self._open[number] = begun, low, size

    def open_in(self, begin: int, end: int) -> int | None:
        """The first byte of [begin, end) that no sync covers; None: all are covered."""
        found = [
            max(low, begin)
            for _, low, high in list(self._open.values())
            if low < end and begin < high
        ]
        return min(found, default=None)

    def __bool__(self) -> bool:
        """Whether there is any such byte."""
        return bool(self._open)


def first_uncovered(
    files: Iterable[tuple[Path, Coverage]], directory: Path, begin: int, end: int
) -> tuple[Path, int] | None:
    """The first of the bytes [begin, end) that no sync covers, as its file and its place there;
    None: all are covered. The files that count are those of ``directory`` which are named by the
    place of their first byte."""
    places = []
    for path, coverage in files:
        if begin < end and coverage and path.parent == directory and path.name.isdecimal():
            start = int(path.name)
            place = coverage.open_in(begin - start, end - start)
            if place is not None:
                places.append((path, place))
    return min(places, default=None)


def uncovered(files: Iterable[tuple[Path, Coverage]], directory: Path, begin: int, end: int) -> str:
    """The error in calling the bytes [begin, end) durable, in words; "" when a sync covers all of
    them. See `first_uncovered`."""
    first = first_uncovered(files, directory, begin, end)
    if first is None:
        return ""
    return f"{first[0]}: no sync covers byte {first[1]}, but {begin} to {end} are called durable"


def found(text: str) -> Uncovered:
    """The error for it, which is also kept in `FOUND`."""
    FOUND.append(text)
    return Uncovered(text)
