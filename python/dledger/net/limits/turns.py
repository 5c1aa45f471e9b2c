"""Work for connections of clients: a little at a time, and the accounts one after the other: those
of principals, or addresses of clients that nobody knows.

The work of appends and reads is bounded by bytes (`dledger.net.limits.inflow`) and by frames of a
turn. Commands and hellos are small and dear: each goes to all nodes, or costs a proof. So only so
many are carried out in a while, of all clients; the rest waits, one of each connection, which is
read no further meanwhile. Where no other client is there that would wait for them, no while is
counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol

from dledger.net.limits.by_address import A, ByAccount


class Clock(Protocol):
    """The part of a loop that the turns need."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class Company(Generic[A]):
    """Whether another asker is there beside one: one whose requests have come within about
    ``lasts_s`` seconds.

    Attributes:
        last: the asker of the last request. A request of the same one need not be noted, so that
        most
            cost a comparison and no clock.
    """

    def __init__(self, lasts_s: float) -> None:
        self.last: A | None = None
        self._lasts_s = lasts_s
        self._is_used = False
        self._until_s = -math.inf
        """Until when another one than ``last`` was, or may have been, there."""

    def note(self, asker: A, now_s: float) -> None:
        """A request has come of another one than ``last``."""
        if self._is_used:
            self._until_s = now_s
        self.last, self._is_used = asker, True

    def is_alone(self, asker: A, now_s: float) -> bool:
        """Whether no other asker is there. A new one beside another one is not alone, for a
        while."""
        if asker is not self.last:
            self.note(asker, now_s)
        return now_s - self._until_s > self._lasts_s

    def forget(self, asker: A) -> None:
        """The connection has ended; its requests still count for a while."""
        if asker is self.last:
            self.last = None


class Pace(NamedTuple):
    """How much is carried out in one while."""

    each: int
    while_s: float
    """Seconds of a while."""


class Turns(Generic[A]):
    """The turns of one kind of work, on one loop: an account has one, then the next account.

    Args:
        pace: how much is carried out in one while.
        on_wait: called with a connection whose work waits: it must be read no further.
        on_done: called when its work has been carried out.
        is_free: whether there is room for more under way, given whether the asker is the only one
            there; `go_on` says that there may be again.
        is_alone: whether no other asker is there beside one: then no while is counted for it.
        clock: the running loop, or a test's.

    Attributes:
        waiting: the work of those that wait, which read no further.
    """

    def __init__(
        self,
        pace: Pace,
        *,
        on_wait: Callable[[A], None],
        on_done: Callable[[A], None],
        is_free: Callable[[bool], bool] = lambda _: True,
        is_alone: Callable[[A], bool] = lambda _: False,
        clock: Clock | None = None,
    ) -> None:
        self._each = self._left = pace.each
        self._while_s = pace.while_s
        self._on_wait = on_wait
        self._on_done = on_done
        self._is_free = is_free
        self._is_alone = is_alone
        self._clock = clock or asyncio.get_running_loop()
        self._until_s = -math.inf
        """The end of this while. A timer runs only while something waits for it."""
        self._asking: ByAccount[A] = ByAccount()
        """Those that wait."""
        self.waiting: dict[A, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._goes_on = False

    def __contains__(self, asker: A) -> bool:
        return asker in self.waiting

    def ask(self, asker: A, work: Callable[[], None]) -> None:
        """Carry it out now, or in its turn. A connection asks no more while its work waits."""
        self._look_at_clock()
        if not self.waiting and self._may(asker):
            self._left = max(0, self._left - 1)
            work()
            return
        self.waiting[asker] = work
        self._asking.add(asker)
        self._arm()
        self._on_wait(asker)

    def forget(self, asker: A) -> None:
        """The connection has ended: its work is not carried out."""
        if self.waiting.pop(asker, None) is not None:
            self._asking.discard(asker)

    def _may(self, asker: A) -> bool:
        is_alone = self._is_alone(asker)
        return (is_alone or self._left > 0) and self._is_free(
            is_alone and len(self._asking.crowds) <= 1
        )

    def go_on(self) -> None:
        """Carry out the work that has its turn."""
        if self._goes_on:  # called by work that has ended at once
            return
        self._goes_on = True
        try:
            self._go_on()
        finally:
            self._goes_on = False

    def _go_on(self) -> None:
        self._look_at_clock()
        while self.waiting:
            asker = self._asking.first()
            if not self._may(asker):
                break
            self._asking.take_first()
            self._left = max(0, self._left - 1)
            work = self.waiting.pop(asker)
            work()
            self._on_done(asker)
        if self.waiting:
            self._arm()

    def _look_at_clock(self) -> None:
        """Begin another while if this one is over."""
        now_s = self._clock.time()
        if now_s >= self._until_s:
            self._left, self._until_s = self._each, now_s + self._while_s

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(
                max(0.0, self._until_s - self._clock.time()), self._next_while
            )

    def _next_while(self) -> None:
        self._timer = None
        self._until_s = -math.inf  # a timer may go off a little before its time by the loop's clock
        self.go_on()

    def close(self) -> None:
        """No more work is carried out."""
        if self._timer is not None:
            self._timer.cancel()
        self._left = self._each = 0
        self.waiting.clear()
        self._asking = ByAccount()
