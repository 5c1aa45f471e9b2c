"""Reading that goes on behind an exception.

Python ends a generator that an exception comes out of, and its next turn says that nothing is left.
A reader that was interrupted by a signal handler or by ``asyncio.wait_for`` would take that for the
end of the log. These iterators keep the position outside of the generator, and make another one
from there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from dledger import forks

if TYPE_CHECKING:
    from dledger.client.protocol.reading.fetched import FetchedBodies
    from dledger.protocol.messages.fetched import FetchedBatch

T = TypeVar("T")
G = TypeVar("G")


class _Generators(Generic[T, G]):
    """The items of generators, each from behind the last item of the one before it.

    Args:
        make: a generator from an offset on.
        start: the first offset.
        end_of: the offset behind a yielded item.
    """

    def __init__(self, make: Callable[[int], G], start: int, *, end_of: Callable[[T], int]) -> None:
        self._make = make
        self._position = start
        self._end_of = end_of
        self._running: G | None = None
        self._born = forks.generation


class Resuming(_Generators[T, Generator[T, None, None]], Iterator[T]):
    """The items of generators, see `_Generators`."""

    def __next__(self) -> T:
        try:
            # the generator has connections of the parent process
            if self._born != forks.generation:
                self._running, self._born = None, forks.generation
            if self._running is None:
                self._running = self._make(self._position)
            found = next(self._running)
            end = self._end_of(found)
        except StopIteration:
            raise
        except BaseException:
            if not getattr(self._running, "gi_running", False):  # else it is another thread's turn
                self._running = None
            raise
        self._position = end  # no signal handler can come between this and the return
        return found

    def close(self) -> None:
        """Give back the resources of the reader; it is over."""
        if self._running is None:
            self._running = self._make(self._position)
        self._running.close()


class AsyncResuming(_Generators[T, AsyncGenerator[T, None]], AsyncIterator[T]):
    """`Resuming` under asyncio."""

    async def __anext__(self) -> T:
        try:
            if self._running is None:
                self._running = self._make(self._position)
            found = await anext(self._running)
        except StopAsyncIteration:
            raise
        except BaseException:
            if not getattr(self._running, "ag_running", False):  # else it is another task's turn
                self._running = None
            raise
        self._position = self._end_of(found)
        return found

    async def aclose(self) -> None:
        """Give back the resources of the reader; it is over."""
        if self._running is None:
            self._running = self._make(self._position)
        await self._running.aclose()


def behind_body(found: tuple[FetchedBatch, memoryview]) -> int:
    """The offset behind a stored body."""
    return found[0].base_offset + found[0].count


def behind_bodies(found: FetchedBodies) -> int:
    """The offset behind the bodies of an answer."""
    return found.end_offset
