"""Frames of clients that are handed out in one turn of the loop, over all connections that a
listener accepted.

A small request costs its client next to nothing, and a connection may have thousands of them ready.
Were those of each connection handed out as they come, a few hundred connections would keep all
other clients waiting for seconds, and the group's heartbeats too. So a connection that comes with a
few is served at once, in every turn so many of all together. Further frames wait, and the waiting
connections take turns: the more there are, the fewer frames of all in a while.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

MOST: Final = 512
"""Frames in one turn of the loop, of connections that come, and as many of one that waits alone.
They become one proposal, whose work at each node is the same for many as for few."""
FEW: Final = 16
"""Of one that comes while others wait."""
LEAST: Final = 4
"""In one while, of all that wait, be there ever so many: 2,000 frames a second."""
WHILE_S: Final = 0.002
"""One while, where several wait."""


class FrameSource(Protocol):
    """A connection as the turns see it."""

    def have_turn(self) -> None: ...


class FrameTurns:
    """The turns of one listener."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = MOST
        self._soon = False
        """`_left` is made full again in the next turn."""
        self._waiting: dict[FrameSource, None] = {}
        """The one whose turn is next comes first."""
        self._each = 0
        """Frames of one of the waiting connections, while it has its turn."""
        self._timer: asyncio.Handle | None = None

    @property
    def share(self) -> int:
        """How many frames a connection may hand out now; 0: `wait`."""
        if self._each:
            return self._each
        return min(self._left, FEW if self._waiting else MOST)

    def took(self, frames: int) -> None:
        """So many were handed out."""
        if self._each:
            return
        self._left -= frames
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        self._soon, self._left = False, MOST

    def wait(self, asker: FrameSource) -> None:
        """Its `FrameSource.have_turn` is called in its turn; not in this turn of the loop."""
        self._waiting[asker] = None
        self._begin_next()

    def forget(self, asker: FrameSource) -> None:
        """The connection has ended."""
        self._waiting.pop(asker, None)

    def _begin_next(self) -> None:
        if self._timer is not None:
            return
        if len(self._waiting) > 1:
            self._timer = self._loop.call_later(WHILE_S, self._next)
        else:
            self._timer = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._timer = None
        number = len(self._waiting)
        most = max(LEAST, MOST // max(1, number))
        self._each = max(1, most // max(1, number))
        try:
            for _ in range(min(number, most)):
                asker = next(iter(self._waiting), None)
                if asker is None:
                    break
                del self._waiting[asker]
                asker.have_turn()
        finally:  # whatever becomes of one of them, the others have their turns
            self._each = 0
            if self._waiting:
                self._begin_next()
