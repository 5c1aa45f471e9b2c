"""Background work of a simulated process that waits for its disk."""

from __future__ import annotations

from typing import Any

from verification.sim.scheduler import Action, Scheduler


class DiskWaits:
    """Actions that follow work on the disk: when its time is over, or when a slow disk is quick
    again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[int, tuple[Action, tuple[Any, ...]]] = {}
        self._last = 0

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Do it in that time, or at the next `hurry`."""
        self._last += 1
        self._waiting[self._last] = action, arguments
        self._scheduler.after(delay_ns, self._over, self._last)

    def hurry(self) -> None:
        """End all waits now: they have taken long enough."""
        waiting, self._waiting = self._waiting, {}
        for action, arguments in waiting.values():
            self._scheduler.after(0, action, *arguments)

    def _over(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            action, arguments = waiting
            action(*arguments)
