"""Assertions that a caller holds the locks that docs/architecture.md asks for; with ``python -O``
they cost nothing."""

from __future__ import annotations

import threading
from typing import Any


def is_held(lock: Any) -> bool:
    """Whether this thread holds the lock; of a lock that does not know its owner, as
    `threading.Lock`: whether any thread does. None stands for a lock that is not there yet, because
    no other thread knows of the object."""
    if lock is None:
        return True
    is_owned = getattr(lock, "_is_owned", None)
    return bool(is_owned() if is_owned is not None else lock.locked())


class Owner:
    """The one thread that may touch something: the first that asks."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: int | None = None

    def is_me(self) -> bool:
        """Whether it is this thread."""
        me = threading.get_ident()
        if self._thread is None:
            self._thread = me
        return self._thread == me
