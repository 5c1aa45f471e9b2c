"""The callbacks of a connection to its owner, and the buffer that all connections of a thread read
into."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from dledger.protocol.messages.client import AppendRequest

C = TypeVar("C")
"""The class of the connection."""

RECEIVE_BYTES: Final = 1 << 20
"""The receive buffer: one per thread, not per connection, because a read is parsed before the next
one begins."""

OnConnection = Callable[[C], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers(Generic[C]):
    """The callbacks of a connection to its owner.

    ``on_frame`` gets the request id, the message and its payload, which no other code changes or
    reuses; ``on_appends`` gets the ids and payloads of appends that came together with one header,
    in place of it; ``on_batch_end`` comes after the last frame of each read; ``on_close`` comes
    once.
    """

    on_frame: Callable[[C, int, Any, memoryview], None]
    on_appends: Callable[[C, AppendRequest, Sequence[int], Sequence[memoryview]], None] | None = (
        None
    )
    on_close: Callable[[C, Exception | None], None]
    on_open: OnConnection[C] | None = None
    on_batch_end: OnConnection[C] | None = None


class ReceiveBuffer(threading.local):
    """The buffer that all connections of one thread read into, each in its turn; every thread has
    one of its own."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BYTES))

    def grow(self, size: int) -> memoryview:
        """A larger one from now on, for a header that does not fit."""
        self.view = memoryview(bytearray(size))
        return self.view


receive_buffer: Final = ReceiveBuffer()
