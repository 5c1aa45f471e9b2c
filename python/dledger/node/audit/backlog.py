"""The lines of the audit log that wait for the group's topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

MOST_LINES: Final = 10_000
MOST_BYTES: Final = 8 << 20
"""So much waits while no leader takes it; what comes then is lost to the topic, and counted."""


class Line(NamedTuple):
    """A line, and when it was written, in microseconds since 1970 UTC."""

    text: bytes
    time_us: int


class Backlog:
    """Lines in the order in which they were written.

    Args:
        most_line_bytes: of one line that the topic can take.
        gap: makes the line that stands for so many that were lost.
    """

    def __init__(self, most_line_bytes: int, *, gap: Callable[[int], Line]) -> None:
        self.most_line_bytes = most_line_bytes
        self._gap = gap
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._missing = 0
        """Lost behind the newest one."""
        self.lost = 0
        """In all."""

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, text: bytes, time_us: int) -> None:
        """A new line."""
        self.tell_missing()
        is_full = len(self._lines) >= MOST_LINES or self._bytes + len(text) > MOST_BYTES
        if self._missing or is_full or len(text) > self.most_line_bytes:
            self._missing += 1
            self.lost += 1
            return
        self._add(Line(text, time_us))

    def _add(self, line: Line) -> None:
        self._lines.append(line)
        self._bytes += len(line.text)

    def first(self, lines: int, most_bytes: int) -> list[Line]:
        """The oldest ones, up to so many and so many bytes, but at least one where there is any."""
        found: list[Line] = []
        for line in islice(self._lines, lines):
            most_bytes -= len(line.text)
            if found and most_bytes < 0:
                break
            found.append(line)
        return found

    def written(self, lines: int) -> None:
        """The topic has so many of the oldest ones."""
        for _ in range(min(lines, len(self._lines))):
            self._bytes -= len(self._lines.popleft().text)

    def tell_missing(self) -> None:
        """Put down how many lines are missing here, where there is room again."""
        if self._missing and len(self._lines) < MOST_LINES and self._bytes < MOST_BYTES:
            self._add(self._gap(self._missing))
            self._missing = 0
