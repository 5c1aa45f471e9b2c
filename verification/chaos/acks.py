"""Times of acknowledgements, the gaps between them, and the faults under way at the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

LISTED: Final = 10
BEFORE_S: Final = 0.5
"""A fault that ended so shortly before a gap began is among its causes."""
RECOVERY_S: Final = 4.0
"""... and one that ended within this time before, when no fault was under way."""


@dataclass(frozen=True, slots=True)
class Gap:
    """No append was acknowledged from ``start_s`` on for ``length_s``; ``cause`` in words."""

    start_s: float
    length_s: float
    cause: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "start_s": round(self.start_s, 3),
            "length_s": round(self.length_s, 3),
            "cause": self.cause,
        }


@dataclass(slots=True)
class Watch:
    """The longest time without an acknowledgement in a part of a run."""

    since_s: float
    longest_s: float = 0.0

    def noted(self, last_s: float, now_s: float) -> None:
        """Nothing was acknowledged between the two."""
        self.longest_s = max(self.longest_s, now_s - max(last_s, self.since_s))


@dataclass(slots=True)
class Span:
    """A time in which something was wrong; ``end_s`` is infinite while it is."""

    what: str
    start_s: float
    end_s: float = float("inf")


class Acks:
    """Counts acknowledgements; knows the spans in which faults were under way.

    Args:
        now_s: the run's clock, from 0.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.count = 0
        self.spans: list[Span] = []
        self.last_s = now_s()
        self._gaps: list[tuple[float, float]] = []
        self._watches: list[Watch] = []

    def note(self) -> None:
        """An append or a transaction was acknowledged."""
        now = self.now_s()
        self.count += 1
        self._gaps.append((now - self.last_s, self.last_s))
        for watch in self._watches:
            watch.noted(self.last_s, now)
        if len(self._gaps) > 4096:
            self._trim()
        self.last_s = now

    def restart(self) -> None:
        """The load begins now."""
        self.last_s = self.now_s()

    def finish(self) -> None:
        """The load ends now: the time since the last acknowledgement is a gap as well."""
        now = self.now_s()
        self._gaps.append((now - self.last_s, self.last_s))
        self.last_s = now

    def _trim(self) -> None:
        self._gaps = sorted(self._gaps, reverse=True)[:LISTED]

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Each gap that touches this time has ``what`` among its causes."""
        span = Span(what, self.now_s())
        self.spans.append(span)
        try:
            yield
        finally:
            span.end_s = self.now_s()

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Until the end of the block."""
        watch = Watch(self.now_s())
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
            watch.noted(self.last_s, self.now_s())

    def longest(self) -> list[Gap]:
        """The longest gaps, longest first."""
        self._trim()
        return [
            Gap(start, length, self._cause(start, start + length)) for length, start in self._gaps
        ]

    def _cause(self, start: float, end: float) -> str:
        def touching(before: float) -> list[str]:
            return [s.what for s in self.spans if s.start_s <= end and s.end_s >= start - before]

        found = touching(BEFORE_S) or [f"after {what}" for what in touching(RECOVERY_S)[-1:]]
        return " + ".join(dict.fromkeys(found)) or "no fault was under way"
