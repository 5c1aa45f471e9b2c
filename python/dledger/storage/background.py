"""Background tasks of the store: a thread that allocates the next file and settles the mark off the
append path."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from dledger.environment import REAL, Environment, Worker

INTERVAL_S: Final = 0.25
"""Pause after each round. It bounds how far behind the durable log the settled mark is, and costs
four syncs of a small file per second at most."""


class BackgroundState(Enum):
    """Where the background tasks run."""

    THREAD = "thread"
    """A thread of its own, as in a node."""
    INLINE = "inline"
    """The thread that gives cause for them: every step in a known order, for tests."""
    MANUAL = "manual"
    """No thread, until `FileStore.keep` is called, for tests."""


class BackgroundTasks:
    """Calls ``work`` soon after `wake`."""

    def __init__(
        self, work: Callable[[], None], keeping: BackgroundState, *, environment: Environment = REAL
    ) -> None:
        self._work = work
        self._keeping = keeping
        self.is_wanted = False
        """A round will begin that sees all there is to do."""
        self._worker: Worker | None = None
        if keeping is BackgroundState.THREAD:
            self._worker = environment.worker("store-keeper", self._turn, INTERVAL_S)
            self._worker.start()

    def wake(self) -> None:
        """There is something to do."""
        if self._keeping is BackgroundState.INLINE:
            self._work()
        elif self._worker is not None and not self.is_wanted:
            self.is_wanted = True
            self._worker.put(None)

    def stop(self) -> None:
        """No more rounds; waits for the one that runs."""
        if self._worker is not None:
            self._worker.join()

    def _turn(self, jobs: list[Any], last: bool) -> None:
        self.is_wanted = False  # before the work: a later request needs another round
        if not last:
            self._work()
