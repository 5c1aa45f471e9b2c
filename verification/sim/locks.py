"""Locks of simulated processes whose threads may be left while they hold one."""

from __future__ import annotations

import threading
from typing import Any

from verification.sim.turns import Running, TurnUnderWay


class SimLock:
    """See `threading.Lock`."""

    reentrant = False

    def __init__(self) -> None:
        self.holder: TurnUnderWay | None = None
        """The turn that holds it; None: it is free, or a loop holds it."""
        self._held = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turn = Running.turn
        if self._held and self.reentrant and self.holder is turn:
            self._held += 1
            return True
        if turn is not None and turn.until is None:
            turn.turns.point()
        if self._held and not blocking:
            return False
        while self._held:
            self._wait(turn)
        self.holder, self._held = turn, 1
        return True

    def _wait(self, turn: TurnUnderWay | None) -> None:
        holder = self.holder
        if turn is not None:
            turn.waits_for = self
            try:
                turn.leave()
            finally:
                turn.waits_for = None
        elif holder is not None:
            holder.turns.wait_for(self)
        else:
            raise RuntimeError("a deadlock: a loop waits for a lock that it holds itself")

    def release(self) -> None:
        turn = self.holder
        self._held -= 1
        if not self._held:
            self.holder = None
            if turn is not None and turn.until is self:
                turn.until = None
                turn.leave()

    def locked(self) -> bool:
        return self._held > 0

    def _is_owned(self) -> bool:
        return self._held > 0 and self.holder is Running.turn

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimRLock(SimLock):
    """See `threading.RLock`."""

    reentrant = True


class SimThreading:
    """Stands for the module `threading` in the product's modules; see
    `verification.greenlets.other_threading`."""

    Lock = SimLock
    RLock = SimRLock

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)
