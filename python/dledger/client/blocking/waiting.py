"""Waiting that an exception out of a signal handler may end at any point.

Python runs signal handlers between two bytecodes of the main thread. `threading.Condition` does not
bear an exception there: its lock is left held where it was just taken, and the next thread, here
the loop of all producers, waits for it for ever. This module takes locks by ``with`` on locks
written in C alone, which no handler can come into.
"""

from __future__ import annotations

from _thread import RLock, allocate_lock
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from dledger.client.protocol.results import Appended
from dledger.client.protocol.writing.record_future import RecordHandle, hand_on
from dledger.errors import DLedgerError

T = TypeVar("T")


class Gates:
    """Threads that wait for a condition, and one thread that says when to check it again."""

    def __init__(self) -> None:
        self._closed: deque[Any] = deque()

    def wait(self, reached: Callable[[], bool]) -> None:
        """Return when ``reached()``. It is asked again after each `open` that follows a change that
        makes it true."""
        while not reached():
            gate = allocate_lock()
            gate.acquire()
            self._closed.append(gate)
            if reached():  # it became so before the gate was there to be opened
                return
            gate.acquire()

    def open(self) -> None:
        """Let all waiting threads check again. One thread alone calls this."""
        for _ in range(len(self._closed)):
            self._closed.popleft().release()


class _Lock(RLock):  # type: ignore[misc]
    """The lock of a future, in the place of its condition: no thread waits on it."""

    def notify_all(self) -> None:
        """No thread waits: see `Answer.result`."""


class Answer(Future[T], Generic[T]):
    """A future that an interrupt of a waiting thread cannot harm, and that is never cancelled: its
    work may be done already."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Lock()  # type: ignore[assignment]

    def cancel(self) -> bool:
        """Records that are on their way cannot be called back: False."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """As `concurrent.futures.Future.result`."""
        wait_for(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `concurrent.futures.Future.exception`."""
        wait_for(self, timeout)
        return super().exception(0)


class RecordFuture(RecordHandle):
    """The place of one record, once a quorum has it on disk.

    It is a handle of two fields, and is never cancelled: its record may be stored already. A
    `concurrent.futures.Future` of it is made by `future`, for libraries that need one.
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> Appended:
        """The place; ``timeout`` is in seconds.

        Raises:
            DLedgerError: the append failed.
            TimeoutError: the outcome is not known yet.
            ForkedClient: it is that of the process from which this one was forked.
        """
        batch = self._batch
        if batch.start < 0:
            wait_for(self, timeout)
            if batch.start < 0:
                return self._known_result()
        # of each record that a program asks: with no other call
        offset = batch.start + self._at
        return Appended(batch.topic, batch.partition, offset, offset + 1)

    def exception(self, timeout: float | None = None) -> DLedgerError | None:
        """The error of the append, or None; waits and raises as `result`."""
        wait_for(self, timeout)
        return self._known_exception()

    def future(self) -> Future[Appended]:
        """The same as a `concurrent.futures.Future`."""
        answer: Answer[Appended] = Answer()
        self.add_done_callback(partial(hand_on, answer))
        return answer


def wait_for(future: Answer[Any] | RecordFuture, timeout: float | None) -> None:
    """Return when it is done. Raises `TimeoutError` after ``timeout`` seconds."""
    if future.done():
        return
    gate = allocate_lock()
    gate.acquire()
    future.add_done_callback(lambda _: gate.release())
    if not gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
        raise TimeoutError
