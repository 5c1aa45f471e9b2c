"""Counting what happens again and again, so that it is told once in a while with its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

INTERVAL_S: Final = 10.0
MOST_KINDS: Final = 256
"""Kinds that are told apart at a time; the rest are one kind."""

K = TypeVar("K")


@dataclass(slots=True)
class _Kind:
    since_s: float
    told: int = 0
    more: int = 0


class More(NamedTuple, Generic[K]):
    """What was only counted: ``more`` of one kind in ``seconds``."""

    kind: K
    more: int
    seconds: int


class Repeats(Generic[K]):
    """Of each kind the first ``burst`` in `INTERVAL_S` are told, and the others are counted.

    Args:
        now_s: a clock that does not go back.
        rest: the kind of all that come when `MOST_KINDS` are known.
    """

    def __init__(self, now_s: Callable[[], float], *, rest: K, burst: int = 1) -> None:
        self._now_s = now_s
        self._rest = rest
        self._burst = burst
        self._kinds: dict[K, _Kind] = {}

    def is_told(self, kind: K) -> bool:
        """Whether this one is to be told; else it is counted."""
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = self._rest
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind(self._now_s())
        if known.told < self._burst:
            known.told += 1
            return True
        known.more += 1
        return False

    def over(self, *, at_once: bool = False) -> list[More[K]]:
        """Those that were counted and whose time is over, or all ``at_once``. They go on to be
        counted; a kind of which nothing came is forgotten."""
        now, found = self._now_s(), []
        for kind, known in list(self._kinds.items()):
            if now - known.since_s < INTERVAL_S and not at_once:
                continue
            if known.more:
                found.append(More(kind, known.more, round(now - known.since_s)))
                self._kinds[kind] = _Kind(now, told=self._burst)
            else:
                del self._kinds[kind]
        return found
