"""Memory that large payloads are received into, used again once nothing refers to a payload.

Fresh memory costs a large payload more processor time than all that Python does with it: the system
clears each page, or it is cleared by hand. So what a payload lay in is kept, a little of it, and
the next one of about that size gets it. Nobody says that a payload is done with: it may be in an
entry of the log, in a message under way, in an Arrow array. Each of them holds a view, and every
view of a payload, however it was cut or cast, refers to one object, the loan. Its end gives the
memory back, and nothing else does.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from functools import cache
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import Final

KEPT_BYTES: Final = 16 << 20
"""Memory that is kept while no payload lies in it: about as much as comes at once."""


@cache
def _loan(size: int) -> type[ctypes.Array[ctypes.c_ubyte]]:
    """Objects that lend all of a memory of this size, of which there are few."""
    return ctypes.c_ubyte * size


class PayloadMemory:
    """Memory for payloads of any size, from any thread and to any other."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._kept: deque[mmap] = deque()  # its methods are atomic: a loan ends in any thread

    @property
    def kept(self) -> int:
        """Bytes of memory in which no payload lies."""
        return sum(map(len, tuple(self._kept)))

    def take(self, size: int) -> memoryview:
        """``size`` bytes to be written, with anything in them."""
        memory = self._find(size)
        loan = _loan(len(memory)).from_buffer(memory)
        weakref.finalize(loan, self._give_back, memory).atexit = False
        return memoryview(loan).cast("B")[:size]

    def _find(self, size: int) -> mmap:
        # in steps of an eighth at most, so that payloads of like sizes follow one another
        step = max(PAGESIZE, 1 << max(size.bit_length() - 4, 0))
        room = -(-size // step) * step
        for _ in range(len(self._kept)):
            try:
                memory = self._kept.pop()
            except IndexError:  # another thread was faster
                break
            if len(memory) == room:
                return memory
            self._kept.appendleft(memory)
        return mmap(-1, room, flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def _give_back(self, memory: mmap) -> None:
        if len(memory) > self._kept_bytes // 2:
            return  # others would have to go for it
        self._kept.append(memory)
        while self.kept > self._kept_bytes:
            try:
                self._kept.popleft()
            except IndexError:
                break


payload_memory: Final = PayloadMemory()
"""That of this process."""
