"""Virtual time: one scheduler for everything, and the clocks of processes."""

from __future__ import annotations

import asyncio
import asyncio.events
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from verification.invariants.broken import Broken
from verification.sim.rng import MILLION

Action = Callable[..., None]
US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
MOST_AT_ONCE: Final = 1_000_000
"""Events while no time passes; a whole seed has a tenth of them."""
WALL_BASE_US: Final = 1_700_000_000_000_000
_set_running = asyncio.events._set_running_loop


class Scheduler:
    """The queue of the next actions, and the time: integer nanoseconds from 0."""

    __slots__ = ("_heap", "_number", "_soon", "events", "now_ns", "speaker")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        self.speaker = "?"
        """The process that ran last."""
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._soon: deque[tuple[Action, tuple[Any, ...]]] = deque()
        """Actions that are due now: asked for at this very moment, so behind all that the heap has
        for it."""
        self._number = 0

    def at(self, when_ns: int, action: Action, *arguments: Any) -> None:
        """Call ``action(*arguments)`` then, or now if that has passed."""
        if when_ns <= self.now_ns:
            self._soon.append((action, arguments))
        else:
            self._number = number = self._number + 1
            heappush(self._heap, (when_ns, number, action, arguments))

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        if delay_ns <= 0:
            self._soon.append((action, arguments))
        else:
            self._number = number = self._number + 1
            heappush(self._heap, (self.now_ns + delay_ns, number, action, arguments))

    def run(self, until_ns: int) -> None:
        """All events up to that time.

        Raises:
            Broken: they have no end, as of a timer that is set again for the moment at which it
                goes off.
        """
        heap, soon, at_once, now_ns = self._heap, self._soon, 0, self.now_ns
        try:
            while True:
                if soon and not (heap and heap[0][0] <= now_ns):
                    action, arguments = soon.popleft()
                    at_once += 1
                    if at_once > MOST_AT_ONCE:
                        raise Broken(
                            "defect",
                            f"{self.speaker} runs in circles: {at_once} events while no time "
                            f"passes",
                        )
                elif heap and heap[0][0] <= until_ns:
                    now_ns, _, action, arguments = heappop(heap)
                    self.now_ns = now_ns
                    at_once = 0
                else:
                    break
                self.events += 1
                action(*arguments)
            self.now_ns = until_ns
        finally:
            _set_running(None)


class Handle(asyncio.TimerHandle):
    """A callback that is due now or later."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], when: float) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when

    def __repr__(self) -> str:
        return f"<Handle {self._callback}>"

    def __hash__(self) -> int:
        return object.__hash__(self)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class Clock:
    """A process's monotonic clock, fast or slow by up to a tenth, and its wall clock."""

    def __init__(self, scheduler: Scheduler, drift: int = 0, wall_offset_us: int = 0) -> None:
        """``drift`` in millionths."""
        self._scheduler = scheduler
        self._drift = drift
        self._rate = MILLION + drift
        self.wall_offset_us = wall_offset_us

    def local_ns(self) -> int:
        now_ns = self._scheduler.now_ns
        return now_ns * self._rate // MILLION if self._drift else now_ns

    def global_ns(self, local_ns: int) -> int:
        """When the clock will show that."""
        return -(-local_ns * MILLION // self._rate) if self._drift else local_ns

    def wall_us(self) -> int:
        return max(0, WALL_BASE_US + self.local_ns() // 1000 + self.wall_offset_us)
