"""Bytes of answers that are being read or wait to be sent, over all connections that a listener
accepted, within one budget: `dledger.net.limits.inflow` the other way.

A few small requests can ask for gigabytes. So the work for an answer that may be large begins only
when the budget has room for more; until then it waits, and its connection is read no further. The
accounts have turns, and the connections of each. A connection that takes its answers too slowly
while others wait is closed: it can ask again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from dledger.errors import ProtocolError
from dledger.net.limits import turns
from dledger.net.limits.by_address import ByAccount, HasAccount

LEAST_BYTES_PER_S: Final = 64 << 10
"""The slowest rate at which a connection may take answers while others wait for theirs."""
STALL_S: Final = 0.5
"""Over which that is measured."""
PRESSED_SHARE: Final = 64
"""While an answer waits, another one has at most one in so many bytes of the budget."""
EACH_TURN: Final = 2
"""Waiting answers that are made in one turn of the loop: those in memory go to the kernel in it,
too."""
LOOK_S: Final = 0.02
"""Between two measurements of the sent bytes, while an answer waits."""
GIVEN_BACK_PER_S: Final = 1.0
"""Of the budget: how fast the room of closed connections is given to waiting ones, which may take
none of it either. All of it at once would be a burst of work whenever many are closed, and all
others would wait."""


class SlowTaker(ProtocolError):
    """Answers are taken too slowly."""


class Taker(HasAccount, Protocol):
    """A connection as the budget sees it."""

    handed: int
    """Bytes of answers so far, whether they have left or not."""
    holds_answers: bool
    """This side keeps them back."""

    @property
    def unsent_bytes(self) -> int: ...
    @property
    def closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def fail(self, error: Exception) -> None: ...


A = TypeVar("A", bound=Taker)


class SoonClock(turns.Clock, Protocol):
    """The part of a loop that the budget needs."""

    def call_soon(self, callback: Callable[[], None], /) -> asyncio.Handle: ...


@dataclass(slots=True)
class OutflowWindow:
    """Since when, and from which count on, a taker's progress is measured."""

    at_s: float
    taken: int


class Outflow(Generic[A]):
    """The budget of one listener.

    Args:
        limit: bytes. One answer may go over it, so that one that is larger has its turn, too.
        clock: the running loop, or a test's.

    Attributes:
        used: bytes that are being read or unsent, or more; see `_measure`.
        on_done: called with a connection whose work waited and does no more.
    """

    def __init__(self, limit: int, clock: SoonClock | None = None) -> None:
        self.used = 0
        self.on_done: Callable[[A], None] = lambda taker: taker.resume_reading()
        self._limit = limit
        self._clock = clock or asyncio.get_running_loop()
        self._reading = 0
        self._withheld = 0.0
        """Bytes of closed connections that are not given back yet."""
        self._takers: dict[A, OutflowWindow] = {}
        """Those that may have unsent bytes."""
        self._asking: ByAccount[A] = ByAccount()
        """Those that wait."""
        self._waiting: dict[A, deque[Callable[[], None]]] = {}
        """The work of each."""
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None

    def __contains__(self, taker: object) -> bool:
        """Whether its work waits."""
        return taker in self._waiting

    @property
    def is_full(self) -> bool:
        """Whether a request of now would have to wait."""
        return bool(self._asking) or not self._has_room()

    @property
    def room(self) -> int:
        """Bytes that the next answer may have; 1 at least."""
        most = self._limit // PRESSED_SHARE if self._asking else self._limit - self.used
        return max(1, most)

    def ask(self, taker: A, work: Callable[[], None]) -> None:
        """Do the work for an answer now, or in its turn. It says `begin` before it reads anything,
        and `end`."""
        if not self.is_full:
            work()
            return
        if self._timer is None:
            for one in self._takers:  # no connection had to hurry until now
                self._takers[one] = self._window(one)
            self._timer = self._clock.call_later(LOOK_S, self._look)
        if taker not in self._waiting:
            self._asking.add(taker)
        self._waiting.setdefault(taker, deque()).append(work)
        taker.pause_reading()

    def begin(self, size: int) -> None:
        """So many bytes are going to be read for an answer."""
        self._reading += size
        self.used += size

    def end(self, taker: A, size: int) -> None:
        """They are handed to the connection in this turn of the loop, or there is no answer."""
        self._reading -= size
        if not taker.closing and not (taker in self._takers and taker.unsent_bytes):
            self._takers[taker] = self._window(taker)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._asking and self._soon is None:
            self._soon = self._clock.call_soon(self._go_on)

    def forget(self, taker: A) -> None:
        """The connection has ended."""
        self._takers.pop(taker, None)
        if self._waiting.pop(taker, None) is not None:
            self._asking.discard(taker)

    def _has_room(self) -> bool:
        if self.used >= self._limit:
            self._measure()
        return self.used < self._limit

    def _measure(self) -> None:
        """Bytes sent since the last time count no more: noting each answer when it leaves would
        cost each answer."""
        used = self._reading + int(self._withheld)
        for taker in list(self._takers):
            unsent = taker.unsent_bytes
            if unsent:
                used += unsent
            else:
                del self._takers[taker]
        self.used = used

    def _window(self, taker: A) -> OutflowWindow:
        return OutflowWindow(self._clock.time(), taker.handed - taker.unsent_bytes)

    def _look(self) -> None:
        self._timer = None
        self._withheld = max(0.0, self._withheld - LOOK_S * GIVEN_BACK_PER_S * self._limit)
        self._close_slow_ones()
        self._go_on()
        if self._asking:
            self._timer = self._clock.call_later(LOOK_S, self._look)
        else:
            self._withheld = 0.0

    def _go_on(self) -> None:
        self._soon = None
        self._measure()
        for _ in range(EACH_TURN):
            if not self._asking or self.used >= self._limit:
                return
            self._next()
        self._go_on_soon()

    def _next(self) -> None:
        """The work of the connection whose turn it is; it is behind all others then, as its account
        is."""
        taker = self._asking.take_first()
        waiting = self._waiting[taker]
        work = waiting.popleft()
        if waiting:
            self._asking.add(taker)
        else:
            del self._waiting[taker]
        work()
        if not waiting:
            self.on_done(taker)

    def _close_slow_ones(self) -> None:
        now_s = self._clock.time()
        for taker, window in list(self._takers.items()):
            taken, took_s = taker.handed - taker.unsent_bytes, now_s - window.at_s
            if took_s < STALL_S:
                continue
            is_slow = not taker.holds_answers and taker.unsent_bytes
            if is_slow and taken - window.taken < LEAST_BYTES_PER_S * took_s:
                self._withheld += taker.unsent_bytes
                text = f"{taken - window.taken} bytes of answers were taken in {took_s:.3g} s"
                taker.fail(SlowTaker(f"{text}, and others wait for theirs"))
            else:
                window.at_s, window.taken = now_s, taken
