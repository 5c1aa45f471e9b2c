"""One event loop in a thread of its own for a process: where the blocking client's pipelines live."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from dledger.net.loop import loop_factory

T = TypeVar("T")


class Background:
    """A running loop. It ends with the process."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._main, name="dledger-client", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def here(self) -> bool:
        """Whether the caller is on the loop's thread and must not wait for it."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for the result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """End the loop; what is on it is forgotten."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(1)


_lock = threading.Lock()
_background: Background | None = None


def background() -> Background:
    """This process's loop; a forked child gets its own."""
    global _lock, _background
    if _background is not None and _background.pid == os.getpid():
        return _background
    if _background is not None:  # forked: the parent's lock may have been held
        _lock, _background = threading.Lock(), None
    with _lock:
        if _background is None:
            _background = Background()
            atexit.register(_background.stop)
        return _background
