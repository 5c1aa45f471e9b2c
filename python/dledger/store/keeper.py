"""Housekeeping beside the store: a thread that allocates the next file and settles the mark off the append path."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Final

INTERVAL_S: Final = 0.25
"""Pause after each round. It bounds how far behind the durable log the settled mark is, and costs four syncs of a
small file per second at most."""


class Keeping(Enum):
    """Who does the housekeeping."""

    THREAD = "thread"
    """A thread of its own; what a node uses."""
    INLINE = "inline"
    """Whoever gives cause for it: every step in a known order, for tests."""
    MANUAL = "manual"
    """Nobody, until `FileStore.keep` is called, for tests."""


class Keeper:
    """Calls ``work`` soon after `wake`."""

    def __init__(self, work: Callable[[], None], keeping: Keeping) -> None:
        self._work = work
        self._keeping = keeping
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if keeping is Keeping.THREAD:
            self._thread = threading.Thread(target=self._run, name="store-keeper", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        if self._keeping is Keeping.INLINE:
            self._work()
        elif not self._wanted.is_set():
            self._wanted.set()

    def stop(self) -> None:
        """No more rounds; waits for the one that runs."""
        self._stopped.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopped.is_set():
                return
            self._work()
            self._stopped.wait(INTERVAL_S)
