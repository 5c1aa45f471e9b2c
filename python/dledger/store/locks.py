"""Assertions that a caller holds the locks that docs/architecture.md asks for; with ``python -O`` they cost nothing."""

from __future__ import annotations

from typing import Any


def is_held(lock: Any) -> bool:
    """Whether this thread holds the lock; of a lock that does not know its owner, as `threading.Lock`: whether any
    thread does. None stands for a lock that is not there yet, because nobody else knows of the object."""
    if lock is None:
        return True
    is_owned = getattr(lock, "_is_owned", None)
    return bool(is_owned() if is_owned is not None else lock.locked())
