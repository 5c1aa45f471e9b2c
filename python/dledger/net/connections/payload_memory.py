"""Memory that large payloads are received into, used again once nothing refers to a payload.

Fresh memory costs a node a tenth of all that a payload of a megabyte costs it: the memory is
cleared, page by page, before the payload is put there. So what a payload lay in is kept, a little
of it, and the next one of about that size gets it. Nobody says that a payload is done with: it may
be in an entry of the log, in a message under way, in an Arrow array. Each of them holds a view, and
every view of a payload, however it was cut or cast, refers to one object, the loan, which refers to
the memory. The end of the loan gives the memory back; and the memory is lent again only if nothing
else refers to it.
"""

from __future__ import annotations

import mmap as system
import weakref
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from sys import getrefcount
from typing import Any, Final

CAN_LEND: Final = find_spec("_ctypes") is not None
"""An interpreter that was built without libffi has no object to lend memory by."""
KEPT_BYTES: Final = 16 << 20
"""Memory that is kept while no payload lies in it: about as much as comes at once."""
HUGE_BYTES: Final = 2 << 20
"""A huge page: cleared and mapped at once, which 512 pages one by one take several times as long
for as it takes to receive them."""
HUGE_PAGES: Final[int | None] = getattr(system, "MADV_HUGEPAGE", None)
ALONE: Final = 2
"""References to what a list alone refers to, as `getrefcount` has them: its own argument counts."""


@cache
def _loan(size: int) -> Any:
    """The type of objects that lend all of a memory of this size, of which there are few."""
    from ctypes import c_ubyte

    return c_ubyte * size


class PayloadMemory:
    """Memory for payloads of any size, from any thread and to any other."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        # by atomic methods alone: a loan ends in any thread, or as garbage amid any line here
        self._kept: list[mmap] = []

    @property
    def kept(self) -> int:
        """Bytes of memory in which no payload lies."""
        return sum(map(len, self._kept))

    def take(self, size: int) -> memoryview:
        """``size`` bytes to be written, with anything in them."""
        if not CAN_LEND:
            return memoryview(bytearray(size))
        memory = self._find(size)
        loan = _loan(len(memory)).from_buffer(memory)
        weakref.finalize(loan, self._give_back, memory).atexit = False
        return memoryview(loan).cast("B")[:size]

    def _find(self, size: int) -> mmap:
        # in steps of an eighth at most, so that payloads of like sizes follow one another; the
        # system begins at a huge page what has whole ones, of which the last may stay untouched
        step = max(PAGESIZE, 1 << max(size.bit_length() - 4, 0))
        room = _up(size, HUGE_BYTES if size >= HUGE_BYTES else step)
        for _ in range(len(self._kept)):
            try:
                last = [self._kept.pop()]  # a list counts as one reference in each Python
            except IndexError:  # another thread was faster
                break
            if len(last[0]) != room:
                self._kept.insert(0, last[0])
            # a loan among collected garbage has ended, while its views are there for each __del__
            elif getrefcount(last[0]) == ALONE:
                return last[0]
        memory = mmap(-1, room, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        whole = _up(size, step) // HUGE_BYTES * HUGE_BYTES
        if whole and HUGE_PAGES is not None:
            with suppress(OSError):  # a kernel without them
                memory.madvise(HUGE_PAGES, 0, whole)
        return memory

    def _give_back(self, memory: mmap) -> None:
        if len(memory) > self._kept_bytes // 2:
            return  # others would have to go for it
        self._kept.append(memory)
        while self.kept > self._kept_bytes:
            try:
                self._kept.pop(0)
            except IndexError:
                break


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


payload_memory: Final = PayloadMemory()
"""That of this process."""
answer_memory: Final = PayloadMemory(2 * KEPT_BYTES)
"""For what blocking clients read: a program works on some answers while the next ones come."""
