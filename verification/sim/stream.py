"""One end of a simulated TCP connection, as asyncio's transports are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from verification.sim.frames import Carrier, FrameHarm
from verification.sim.loop import SimLoop

SOCKET_BYTES: Final = 128 << 10
"""Bytes of a stream that the two systems hold besides the two programs."""


class Signal:
    """An end of a stream."""


FIN: Final = Signal()
RESET: Final = Signal()
Item = bytes | Signal


class SimTransport(asyncio.Transport):
    """See `asyncio.Transport`; the other end is ``peer``."""

    peer: SimTransport

    def __init__(self, network: Carrier, loop: SimLoop, other: str, is_link: bool) -> None:
        super().__init__()
        self.loop = loop
        self.other = other
        """The host at the other end."""
        self.path = (loop.name, other)
        """From and to, as the network's cuts are named."""
        self.is_link = is_link
        """From one node to another: raft's messages."""
        self.arrival_ns = 0
        """The time when the last sent bytes arrive."""
        self.over = False
        """Closed, broken, or its process is gone."""
        self.lost = False
        """Bytes that are still under way from here never arrive."""
        self.doubted = False
        self.protocol: Any = None
        self._network = network
        self._harm = FrameHarm(network, self) if is_link else None
        self._received: deque[Item] = deque()
        self._reading = True
        self._read_due = False
        self._closing = False
        self._flying = 0
        self._high = 64 << 10
        self._write_paused = False
        self._finished = False

    def open(self, factory: Callable[[], Any]) -> None:
        """In the process: make the protocol and tell it."""
        if self.over:
            return
        self.protocol = factory()
        self.protocol.connection_made(self)
        if self._received:
            self._read()

    # --- writing ----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or self.over or not data:
            return
        item = bytes(data)
        self._flying += len(item)
        if self._harm is not None:
            self._harm.send(item)
        else:
            self._network.send(self, item)
        if self._flying - SOCKET_BYTES > self._high and not self._write_paused:
            self._write_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._flying - SOCKET_BYTES if self._flying > SOCKET_BYTES else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._high = high

    def taken(self, size: int) -> None:
        """The other end has read so much, or it will never come."""
        self._flying -= size
        if self.over:
            return
        if self._write_paused and self.get_write_buffer_size() <= self._high // 4:
            self._write_paused = False
            self.loop.call_soon(self._resume_writing)
        if self._closing and not self._finished and self._flying <= SOCKET_BYTES:
            self._finish()

    def owe(self, size: int) -> None:
        """So much more is under way than was written."""
        self._flying += size

    def _resume_writing(self) -> None:
        if not self.over:
            self.protocol.resume_writing()

    # --- reading ----------------------------------------------------------------------------------

    def receive(self, item: Item) -> bool:
        """Take an item from the network; False when the process is gone or the end is closed."""
        if item is RESET:
            self.lose(ConnectionResetError(104, "reset"))
            return False
        if self.over:
            if not self.peer.over:
                self._network.send(self, RESET)
            return False
        self._received.append(item)
        if not self._read_due:
            self._read_due = True
            self.loop.call_soon(self._read)
        return True

    def _read(self) -> None:
        self._read_due = False
        if self.protocol is None:
            return
        while self._received and self._reading and not self.over:
            item = self._received.popleft()
            if isinstance(item, bytes):
                self.peer.taken(len(item))
                self._feed(item)
            else:
                self._at_end()

    def _feed(self, data: bytes) -> None:
        protocol, rest = self.protocol, len(data)
        while rest and not self.over:
            buffer = protocol.get_buffer(rest)
            if rest <= len(buffer):  # nearly always: all at once
                buffer[:rest] = data
                protocol.buffer_updated(rest)
                return
            size = len(buffer)
            buffer[:] = data[:size]
            data, rest = data[size:], rest - size
            protocol.buffer_updated(size)

    def _at_end(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._received and not self._read_due:
                self._read_due = True
                self.loop.call_soon(self._read)

    # --- ending -----------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closing and not self.over:
            self._closing = True
            if self.get_write_buffer_size() == 0:
                self._finish()

    def _finish(self) -> None:
        self._finished = True
        self._network.send(self, FIN)
        self._end(None)

    def abort(self) -> None:
        if not self.over:
            self._network.send(self, RESET)
            self.lost = False
            self._end(None)

    def lose(self, error: Exception) -> None:
        """The connection broke: bytes under way in either direction are gone."""
        self.lost = True
        if not self.over:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._closing = True
        self.over = True
        self._received.clear()
        if self.protocol is not None:
            self.loop.call_soon(self.protocol.connection_lost, error)

    def is_closing(self) -> bool:
        return self._closing or self.over

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.other, 1) if name == "peername" else default
