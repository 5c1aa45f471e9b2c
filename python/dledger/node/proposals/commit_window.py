"""How much of the log may be without a quorum while several principals are connected.

What is in the log cannot be overtaken, so who comes waits for it. Disks and links want a little of
it at a time, and beyond that it only waits: pieces of the log take longer, and no more of them are
committed. So the window goes by the time that a piece takes from its proposal to its commit, beside
the least that one took lately, when nothing was before it: as TCP Vegas and BBR do on a link.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from dledger.types import Index

PIECE_BYTES: Final = 128 << 10
"""Proposed at once: each piece is committed by itself, and others come between two of them."""
LEAST_BYTES: Final = 2 * PIECE_BYTES
"""One piece that is being synced, and one that is on its way meanwhile."""
MOST_BYTES: Final = 2 << 20
WAITS: Final = 2.0
"""The window shrinks when its pieces take more than so many times the least."""
LATELY_S: Final = 5.0
"""The least time is that of the last one or two spans of this length: a disk may get slower."""


class CommitWindow:
    """Counts pieces from their proposal to their commit; a leader's only."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.size = 2 * LEAST_BYTES
        """Bytes."""
        self._proposed: deque[tuple[Index, float]] = deque()
        """Last entry and time of each piece that is not committed."""
        self._is_full = False
        """Something found no room since the size was looked at last."""
        self._least_s = self._least_before_s = math.inf
        self._span_end_s = 0.0
        self._round_end = Index(-1)
        """What was proposed under the present size begins behind this entry."""
        self._round_s = math.inf
        """The least time of a piece of this round."""

    def room(self, in_flight: int) -> int:
        """Bytes that those who wait may propose now, where so many are without a quorum."""
        self._is_full |= in_flight >= self.size
        return min(self.size - in_flight, PIECE_BYTES)

    def proposed(self, last: Index) -> None:
        """A piece up to this entry is on its way."""
        self._proposed.append((last, self._now_s()))

    def committed(self, index: Index) -> None:
        """A quorum has all up to there."""
        if not self._proposed:
            return
        now_s, last = self._now_s(), Index(-1)
        while self._proposed and self._proposed[0][0] <= index:
            last, since_s = self._proposed.popleft()
            self._round_s = min(self._round_s, now_s - since_s)
        if last > self._round_end:
            self._adapt(now_s)
            self._round_end = self._proposed[-1][0] if self._proposed else last
            self._round_s, self._is_full = math.inf, False

    def clear(self) -> None:
        """What is not committed may be cut, and its indexes be another leader's."""
        self._proposed.clear()
        self._round_end = Index(-1)

    def _adapt(self, now_s: float) -> None:
        """A round is over. Its quickest piece tells of what stands before each: one that took
        longer may have met a busy machine."""
        if now_s >= self._span_end_s:
            self._least_before_s, self._least_s = self._least_s, math.inf
            self._span_end_s = now_s + LATELY_S
        self._least_s = min(self._least_s, self._round_s)
        if self._round_s > WAITS * min(self._least_s, self._least_before_s):
            self.size = max(LEAST_BYTES, self.size * 3 // 4)
        elif self._is_full:
            self.size = min(MOST_BYTES, self.size + PIECE_BYTES)
