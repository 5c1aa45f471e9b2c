"""Reading ahead of a program that works on what it has: a thread fetches and decodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from queue import SimpleQueue
from threading import Thread
from typing import Final

import pyarrow as pa

from dledger import forks

AHEAD: Final = 4
"""Batches of a part that wait for the program, of some 1 to 4 MiB each."""
AT_ONCE: Final = 2
"""Parts that are read at once: while one ends at the reader, another one is on its way."""

Batches = Generator[pa.RecordBatch, None, None]


class ReadAhead(Iterator[pa.RecordBatch]):
    """The batches of one part, which are read in a thread from now on; `close` ends it.

    The queues are those in C, which a signal handler's exception leaves whole.
    """

    def __init__(self, batches: Batches) -> None:
        self._found: SimpleQueue[pa.RecordBatch | BaseException] = SimpleQueue()
        self._room: SimpleQueue[bool] = SimpleQueue()
        for _ in range(AHEAD):
            self._room.put(True)
        self._closed = False
        self._born = forks.generation
        self._thread = Thread(
            target=self._read, args=(batches,), name="dledger-read-ahead", daemon=True
        )
        self._thread.start()

    def _read(self, batches: Batches) -> None:
        end: BaseException = StopIteration()
        try:
            with closing(batches):
                for batch in batches:
                    self._room.get()
                    if self._closed:
                        return
                    self._found.put(batch)
        except BaseException as error:  # it is the reader's
            end = error
        finally:
            self._found.put(end)

    def __next__(self) -> pa.RecordBatch:
        forks.check_born_here(self._born, "a scan that has begun")
        found = self._found.get()
        if isinstance(found, BaseException):
            self._found.put(found)  # for who asks again
            raise found
        self._room.put(True)
        return found

    def close(self) -> None:
        """No batch is asked for any more; the thread ends with the one that it waits for."""
        self._closed = True
        self._room.put(True)


def read_ahead(parts: Sequence[Callable[[], Batches]]) -> Batches:
    """The batches of all parts, in order."""
    waiting, running = deque(parts), deque[ReadAhead]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(ReadAhead(waiting.popleft()()))
            yield from running[0]
            running.popleft()
    finally:
        for one in running:
            one.close()
