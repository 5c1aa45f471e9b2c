"""One event loop in a thread of its own for a process: where the blocking client's pipelines
live."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - registers for forks, and a loop's making, which they wait for, loads it
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dledger.client.blocking.waiting import Answer
from dledger.errors import ConfigError
from dledger.forks import fork_lock
from dledger.net.loop import loop_factory

T = TypeVar("T")


class Background:
    """A running loop. It ends with the process."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self.pid = os.getpid()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="dledger-client", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def here(self) -> bool:
        """Whether the caller is on the loop's thread and must not wait for it."""
        return threading.current_thread() is self._thread

    @property
    def alive(self) -> bool:
        """Whether it runs, and in this process."""
        return self.pid == os.getpid() and not self.loop.is_closed()

    def check_elsewhere(self) -> None:
        """Before waiting for the loop.

        Raises:
            ConfigError: this is the loop's own thread.
        """
        if self.here:
            raise ConfigError(
                "this is a future's callback, which runs on the thread that all answers come "
                "through, and that would wait for itself: hand the call to a thread of your own, "
                "as a concurrent.futures executor has them (Producer.append does not wait here, "
                "and may be called)"
            )

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run on the loop and wait for the result. An interrupt of the waiting thread leaves the
        work going on.

        Raises:
            ConfigError: as `check_elsewhere`.
        """
        self.check_elsewhere()
        return self.start(work).result()

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Answer[T]:
        """Run on the loop; the future has the result."""
        answer: Answer[T] = Answer()
        self.loop.call_soon_threadsafe(lambda: self._start(work, answer))
        return answer

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]], answer: Answer[T]) -> None:
        try:
            task = self.loop.create_task(work())
        except Exception as error:
            answer.set_exception(error)
            return
        self._tasks.add(task)  # the loop itself holds a task only weakly

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                answer.set_exception(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task.add_done_callback(ended)

    def stop(self) -> None:
        """End the loop; its work is forgotten."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(1)


_lock = fork_lock()
_background: Background | None = None


def background() -> Background:
    """This process's loop; a forked child gets its own."""
    global _background
    pid = os.getpid()
    if _background is not None and _background.pid == pid:
        return _background
    with _lock:
        if _background is None or _background.pid != pid:
            _background = Background()
            atexit.register(_background.stop)
        return _background
