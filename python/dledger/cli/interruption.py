"""Ctrl-C where a command can bear it: an append that it ended would leave open what was sent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interruption:
    """Ctrl-C raises within `allowed`; elsewhere it is noted, and only a second one raises."""

    def __init__(self) -> None:
        self.asked = False
        self._allowed = False

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """A wait that may be ended at any point.

        Raises:
            KeyboardInterrupt: at once, where it was asked for before.
        """
        self._allowed = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self._allowed or self.asked:
            self.asked = True
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Handles Ctrl-C within the block, in the main thread; others get none."""
    made = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield made
        return
    before: Any = signal.signal(signal.SIGINT, made._handle)
    try:
        yield made
    finally:
        signal.signal(signal.SIGINT, before)
