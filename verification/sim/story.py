"""The trace of a run: a hash over everything that happened, and the last lines of it for people."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from typing import Final

from verification.sim.scheduler import MS, Scheduler

KEPT: Final = 60
"""Lines kept of each process."""
PIECE: Final = 1000
"""So many events go into the hash at once."""


class Story:
    """The last acts of each process, and a fingerprint of the whole run."""

    def __init__(self, scheduler: Scheduler, kept: int = KEPT) -> None:
        self.hidden = ""
        """A path of this machine, which is another one in each run, and stands in no line."""
        self._scheduler = scheduler
        self._kept = kept
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self._lines: dict[str, deque[tuple[int, int, str]]] = {}
        self._number = 0

    def mark(self, number: int, size: int, name: str, other: str = "") -> None:
        """Into the fingerprint only."""
        self._unhashed.append(f"{self._scheduler.now_ns} {name} {other} {size} {number};")
        if len(self._unhashed) >= PIECE:
            self._update()

    def tell(self, who: str, text: str) -> None:
        """A line, which also counts for the fingerprint."""
        text = self._shown(text)
        self._unhashed.append(f"{self._scheduler.now_ns} {who} {text};")
        self.note(who, text)

    def note(self, who: str, text: str) -> None:
        """A line for people only."""
        text = self._shown(text)
        self._number += 1
        lines = self._lines.get(who)
        if lines is None:
            lines = self._lines[who] = deque(maxlen=self._kept)
        lines.append((self._scheduler.now_ns, self._number, text))

    def _shown(self, text: str) -> str:
        return text.replace(self.hidden, "") if self.hidden else text

    def _update(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    @property
    def digest(self) -> str:
        self._update()
        return self._hash.hexdigest()

    def text(self) -> str:
        """The last lines of all, in order of time."""
        lines = [
            (when, number, who, text)
            for who, kept in self._lines.items()
            for when, number, text in kept
        ]
        lines.sort()
        return "\n".join(f"{when / MS:12.3f} ms  {who:<8} {text}" for when, _, who, text in lines)


class Scribe(logging.Handler):
    """Puts what the product logs into the story, as said by the process that runs at the moment."""

    def __init__(self, story: Story, scheduler: Scheduler, level: int) -> None:
        super().__init__(level)
        self._story = story
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        self._story.note(self._scheduler.speaker, record.getMessage())
