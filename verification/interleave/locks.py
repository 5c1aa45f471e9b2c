"""Locks whose operations are switching points, in place of those of `threading`.

`verification.greenlets.other_threading` gives them to the product's modules.
"""

from __future__ import annotations

import linecache
import sys
import threading
from types import FrameType
from typing import Any

from verification.interleave.scheduler import Scheduler, Thread

OUTSIDE = Thread(-1, "nobody", True, None)  # type: ignore[arg-type]
"""Holds what is taken while no thread of the scenario runs."""


class Lock:
    """See `threading.Lock`."""

    reentrant = False

    def __init__(self, scheduler: Scheduler, made_in: FrameType | None = None) -> None:
        self._scheduler = scheduler
        self._made_in = made_in and (made_in.f_code, made_in.f_lineno)
        self._owner: Thread | None = None
        self._depth = 0

    def __str__(self) -> str:
        """As ``FileStore._sync_lock``, from the line in which it was made."""
        if self._made_in is None:
            return type(self).__name__
        code, line = self._made_in
        name = linecache.getline(code.co_filename, line).partition("=")[0].strip()
        return f"{code.co_qualname.partition('.')[0]}.{name.removeprefix('self.')}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.point("acquire", self)
        me = scheduler.current or OUTSIDE
        if self.reentrant and self._owner is me:
            self._depth += 1
            return True
        waited = False
        while self._owner is not None:
            if not blocking or (waited and timeout >= 0):
                return False
            scheduler.block(self, may_time_out=timeout >= 0)
            waited = True
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        scheduler = self._scheduler
        if scheduler.dead:
            self._owner = None
            return
        if self._owner is not (scheduler.current or OUTSIDE):
            raise RuntimeError(f"{self} is released by a thread that does not hold it")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            scheduler.wake(self)
            scheduler.point("release", self)

    def locked(self) -> bool:
        return self._owner is not None

    def _is_owned(self) -> bool:
        return self._owner is (self._scheduler.current or OUTSIDE)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """See `threading.RLock`."""

    reentrant = True


class Event:
    """See `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def __str__(self) -> str:
        return "Event"

    def is_set(self) -> bool:
        self._scheduler.point("look at", self)
        return self._is_set

    def set(self) -> None:
        self._scheduler.point("set", self)
        self._is_set = True
        self._scheduler.wake(self)

    def clear(self) -> None:
        self._scheduler.point("clear", self)
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.point("wait for", self)
        while not self._is_set:
            self._scheduler.block(self, may_time_out=timeout is not None)
            if timeout is not None:
                break
        return self._is_set


class Condition:
    """See `threading.Condition`; `notify` wakes all, which a thread that waits has to bear
    anyway."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = lock or RLock(scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __str__(self) -> str:
        return f"Condition of {self._lock}"

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """False when the time was over; which cannot be told from being woken in vain."""
        lock = self._lock
        depth, lock._owner = lock._depth, None  # no switching point between letting go and waiting
        self._scheduler.wake(lock)
        try:
            self._scheduler.block(self, may_time_out=timeout is not None)
        finally:
            lock.acquire()
            lock._depth = depth
        return timeout is None

    def notify(self, n: int = 1) -> None:
        self._scheduler.wake(self)

    def notify_all(self) -> None:
        self._scheduler.wake(self)


class Threading:
    """Stands for the module `threading` in the product's modules. A call from outside of a schedule
    gets the real objects."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self._thread = threading.get_ident()

    @property
    def _active(self) -> Scheduler | None:
        return self.scheduler if threading.get_ident() == self._thread else None

    def Lock(self) -> Any:
        return threading.Lock() if self._active is None else Lock(self._active, sys._getframe(1))

    def RLock(self) -> Any:
        return threading.RLock() if self._active is None else RLock(self._active, sys._getframe(1))

    def Event(self) -> Any:
        return threading.Event() if self._active is None else Event(self._active)

    def Condition(self, lock: Any = None) -> Any:
        return threading.Condition(lock) if self._active is None else Condition(self._active, lock)

    def get_ident(self) -> int:
        """The number of the schedule's thread, below 0 to be no other's."""
        scheduler = self._active
        thread = None if scheduler is None else scheduler.current
        return threading.get_ident() if thread is None else -1 - thread.number

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)
