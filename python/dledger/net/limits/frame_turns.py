"""Frames of clients that are handed out in one turn of the loop, over all connections that a
listener accepted.

A small request costs its client next to nothing, and a connection may have thousands of them ready.
Were those of each connection handed out as they come, a few hundred connections would keep all
other clients waiting for seconds, and the group's heartbeats too. So a connection that comes with a
few is served at once, in every turn so many of all together. Further frames wait, and the waiting
connections take turns: the more there are, the fewer frames of all in a while. Where several
principals are connected their accounts have equal parts of a while, and few connections of each are
read in it: each may have a megabyte ready.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from dledger.net.limits.accounts import Accounts
from dledger.net.limits.by_address import ByAccount, HasAccount

MOST: Final = 512
"""Frames in one turn of the loop, of connections that come, and as many of one that waits alone.
They become one proposal, whose work at each node is the same for many as for few."""
FEW: Final = 16
"""Of one that comes while others wait."""
LEAST: Final = 4
"""In one while, of all that wait, be there ever so many: 2,000 frames a second."""
WHILE_S: Final = 0.002
"""One while, where several wait."""


CROWD: Final = 4
"""Connections of one account in one while, on the average, where several principals are there."""


class FrameSource(HasAccount, Protocol):
    """A connection as the turns see it."""

    def have_turn(self) -> None: ...


class FrameTurns:
    """The turns of one listener."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._loop = asyncio.get_running_loop()
        self._left = MOST
        self._soon = False
        """`_left` is made full again in the next turn."""
        self._waiting: ByAccount[FrameSource] = ByAccount()
        self._each = 0
        """Frames of one of the waiting connections, while it has its turn."""
        self._timer: asyncio.Handle | None = None

    @property
    def share(self) -> int:
        """How many frames a connection may hand out now; 0: `wait`."""
        if self._each:
            return self._each
        if self._waiting.crowds:
            return min(self._left, FEW)
        return self._left

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
        self._waiting.add(asker)
        self._begin_next()

    def forget(self, asker: FrameSource) -> None:
        """The connection has ended."""
        self._waiting.discard(asker)

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
        sizes = {account: len(crowd) for account, crowd in self._waiting.crowds.items()}
        is_shared, each = self._accounts.are_many, most // max(1, number)
        connections = min(number, CROWD * len(sizes) if is_shared else most)
        try:
            for _ in range(connections):
                if not self._waiting:
                    break
                asker = self._waiting.take_first()
                if is_shared:
                    each = most // (len(sizes) * sizes.get(asker.account, 1))
                self._each = max(1, each)
                asker.have_turn()
        finally:  # whatever becomes of one of them, the others have their turns
            self._each = 0
            if self._waiting:
                self._begin_next()
