"""Reading ahead of a program that works on what it has: a thread fetches and decodes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from queue import SimpleQueue
from threading import Thread
from typing import Final

import pyarrow as pa

from dledger import forks

AHEAD: Final = 8
"""Batches that wait for the program, of some 1 to 4 MiB each."""

Batches = Generator[pa.RecordBatch, None, None]


class ReadAhead(Iterator[pa.RecordBatch]):
    """Batches that are read in a thread from now on; `close` ends it.

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


def read_ahead(batches: Batches) -> Batches:
    """The same batches; they are read in a thread from the first one that is taken to the end of
    this generator."""
    ahead = ReadAhead(batches)
    try:
        yield from ahead
    finally:
        ahead.close()
