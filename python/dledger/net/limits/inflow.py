"""Bytes of frames that have begun and not ended, over all connections that a listener accepted,
within one budget.

A frame under way costs memory before it can be answered. So a large one gets its buffer only when
the budget has room for all of it, else its connection is read no further until others have ended;
and each must go on arriving, at a least rate, over a shorter time while others wait. Members of the
group are outside of it: the push window bounds their messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from dledger.errors import ProtocolError
from dledger.net.limits.accounts import Accounts
from dledger.net.limits.by_address import ByAccount, HasAccount

LEAST_BYTES_PER_S: Final = 16 << 10
"""A frame that comes slower is given up; a modem of 1996 is faster than half of that."""
LET_IN_BYTES_PER_S: Final = 256 << 20
"""So many bytes of waiting frames get buffers. To make one takes milliseconds: many in a row, on
all nodes at once, would make all clients wait whenever a crowd of large frames ends and the next
one has its turn."""
PRESSED_READ_BYTES: Final = 16 << 10
"""One read of a connection while over half of the budget is used, so that beginnings alone do not
use up the rest; or while its account has much, since whole frames that one read brings ask for no
room."""
MUCH: Final = 4
"""One of several accounts has much when a part of the budget as small as this waits for answers to
it: a read of 1 MiB beyond that leaves room for others."""


class Stalled(ProtocolError):
    """A frame comes too slowly."""


class Sender(HasAccount, Protocol):
    """A connection as the budget sees it."""

    received: int
    """Bytes so far."""

    @property
    def is_kept_waiting(self) -> bool: ...
    @property
    def takes_no_answers(self) -> bool: ...
    def proceed(self) -> None: ...
    def fail(self, error: Exception) -> None: ...


@dataclass(slots=True)
class InflowWindow:
    """Since when, and from which count on, a sender's progress is measured."""

    at_s: float
    received: int
    holds: int = 0


class Inflow:
    """The budget of one listener.

    Args:
        limit: bytes, as many as there are for frames and requests now.
        others: bytes that count beside these: whole requests that wait for their answers.
        stall_s: in which a frame under way must have come on by `LEAST_BYTES_PER_S`.
        pressed_s: the same while a frame waits for room.
        accounts: that share it.
        now_s: a clock that does not go back; the loop's.
    """

    def __init__(
        self,
        limit: Callable[[], int],
        others: Callable[[], int],
        *,
        stall_s: float,
        pressed_s: float,
        accounts: Accounts,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.used = 0
        self._limit = limit
        self._is_pressed = False
        self._others = others
        self._accounts = accounts
        self._stall_s = stall_s
        self._pressed_s = pressed_s
        self._loop = asyncio.get_running_loop()
        self._now_s = now_s or self._loop.time
        self._under_way: dict[Sender, InflowWindow] = {}
        self._used_by: dict[str, int] = {}
        """By account."""
        self.kept_waiting: dict[Sender, int] = {}
        """Connections that wait for room, and for how much."""
        self._order: ByAccount[Sender] = ByAccount()
        """Those in the order of their accounts' turns."""
        self._relief: asyncio.Handle | None = None

    @property
    def limit(self) -> int:
        """Bytes that there are for frames and requests now."""
        return self._limit()

    def presses(self, sender: Sender) -> bool:
        """Whether this connection is to read little at a time (`PRESSED_READ_BYTES`)."""
        if self._is_pressed or not self._accounts.are_many:
            return self._is_pressed
        return self._accounts.held.get(sender.account, 0) > self.limit // MUCH

    def admits(self, sender: Sender, size: int) -> bool:
        """Whether a frame of so many bytes may get its buffer now; if not, `Sender.proceed` is
        called when it may."""
        is_behind = self.kept_waiting and sender not in self.kept_waiting
        if (is_behind and sender.account in self._order.crowds) or not self._fits(sender, size):
            self.kept_waiting[sender] = size
            self._order.add(sender)
            return False
        if self.kept_waiting.pop(sender, None) is not None:
            self._order.discard(sender)
        return True

    def _fits(self, sender: Sender, size: int) -> bool:
        """Whether there is room, and its account has not had its share. A single frame of any size
        is taken: else one over the limit would wait for ever."""
        window = self._under_way.get(sender)
        has = 0 if window is None else window.holds
        used, others = self.used - has, self._others()
        if used == 0:
            return True
        mine = self._used_by.get(sender.account, 0) - has
        mine += self._accounts.held.get(sender.account, 0)
        share = self._accounts.share(self.limit, used + others, len(self._used_by))
        return used + size + others <= self.limit and mine <= share

    def note(self, sender: Sender, holds: int) -> None:
        """So many bytes of frames are here that have not ended or are not taken yet."""
        window = self._under_way.get(sender)
        if window is None:
            if not holds:
                return
            window = self._under_way[sender] = InflowWindow(self._now_s(), sender.received)
        more, window.holds = holds - window.holds, holds
        self.used += more
        mine = self._used_by.get(sender.account, 0) + more
        if mine:
            self._used_by[sender.account] = mine
        else:
            self._used_by.pop(sender.account, None)
        if not holds:
            del self._under_way[sender]
            self.relieved()
        self._is_pressed = self.used > self.limit // 2

    def forget(self, sender: Sender) -> None:
        """The connection has ended."""
        if self.kept_waiting.pop(sender, None) is not None:
            self._order.discard(sender)
        self.note(sender, 0)

    def relieved(self) -> None:
        """There may be room again."""
        if self._relief is None:
            self._relief = self._loop.call_soon(self._let_in)

    def _let_in(self) -> None:
        """The next one: of each account that which came first, and the accounts in turn."""
        self._relief = None
        firsts = [next(iter(crowd)) for crowd in self._order.crowds.values()]
        sender = next((one for one in firsts if self._fits(one, self.kept_waiting[one])), None)
        if sender is None:
            return
        self._order.take(sender)
        size, (waiting, self.kept_waiting) = self.kept_waiting[sender], (self.kept_waiting, {})
        sender.proceed()  # asks again, and is alone now
        waiting.pop(sender, None)
        self.kept_waiting = {**waiting, **self.kept_waiting}
        self._relief = self._loop.call_later(size / LET_IN_BYTES_PER_S, self._let_in)

    def sweep(self) -> None:
        """Give up frames that come too slowly."""
        now = self._now_s()
        patience_s = self._pressed_s if self.kept_waiting else self._stall_s
        for sender, window in list(self._under_way.items()):
            is_ours = sender.is_kept_waiting or (sender.takes_no_answers and not self.kept_waiting)
            came, took_s = sender.received - window.received, now - window.at_s
            if not is_ours and took_s < patience_s:
                continue
            if not is_ours and came < LEAST_BYTES_PER_S * took_s:
                sender.fail(Stalled(f"a frame stalled: {came} bytes of it came in {took_s:.3g} s"))
            else:
                window.at_s, window.received = now, sender.received
        self.relieved()
