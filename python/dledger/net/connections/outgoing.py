"""The sending half of a connection: the messages of one turn of the loop leave in one write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from dledger.config import MIB
from dledger.net.connections.buffers import JOIN_BYTES, joined
from dledger.protocol.messages.codes import Code
from dledger.protocol.wire import Message, encode
from dledger.types import Buffer

MOST_PIECES: Final = 512
"""Buffers in one call of the kernel; it takes 1024."""
WRITE_HIGH_BYTES: Final = 1 * MIB
"""Unsent bytes from which a connection counts as slow: one that we accepted is not read from."""


class Outgoing:
    """Frames on their way to the other side."""

    # five thousand idle ones take a third less memory than with a dict each
    __slots__ = (
        "_answered", "_descriptor", "_due", "_ended", "_loop", "_out", "_queued", "_transport",
        "_write_paused", "handed", "holds_answers", "refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._queued = 0
        self._due: asyncio.Handle | None = None
        """`flush` at the end of this turn of the loop."""
        self._descriptor = -1
        self._write_paused = False
        self._ended = False
        """Closed by this side, or gone: a transport may be closing without it, which `flush` looks
        at."""
        self._answered = 0
        """Frames sent."""
        self.refused: dict[Code, int] | None = None
        """Where answers that are no success are counted, if somewhere."""
        self.handed = 0
        """Bytes handed to `send` so far."""
        self.holds_answers = False
        """`hold_answers` was called: what is handed to `send` stays here meanwhile."""

    def _was_sent(self) -> None:
        """Called when the kernel was given all bytes there were, where those had been more than may
        wait."""

    @property
    def closing(self) -> bool:
        """Whether it is closed or about to be: no more bytes can be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes handed to `send` that the kernel has not taken yet."""
        return self._queued + (self._transport.get_write_buffer_size() if self._transport else 0)

    @property
    def takes_no_answers(self) -> bool:
        """Whether the other side has more unsent than it may."""
        return self._write_paused or self._queued > WRITE_HIGH_BYTES

    def send(self, message: Message, request_id: int = 0, payload: Sequence[Buffer] = ()) -> None:
        """Send a frame at the end of this turn of the loop. Its buffers must not change until they
        are sent. Does nothing on a closed connection: its owner hears that from ``on_close``.

        Raises:
            ProtocolError: a field's value has no form on the wire.
        """
        if self.refused is not None:
            code: Code = getattr(message, "code", Code.SUCCESS)
            if code is not Code.SUCCESS:
                self.refused[code] += 1
        self.send_frame(encode(message, request_id, payload))

    def send_frame(self, frame: Sequence[Buffer], count: int = 1) -> None:
        """`send` for a frame that is encoded already, or several of them."""
        if self._ended or self._transport is None:
            return
        self._answered += count
        if not self._out:
            self._due = self._loop.call_soon(self.flush)
        self._out += frame
        size = sum(map(len, frame))
        self._queued += size
        self.handed += size

    def hold_answers(self) -> None:
        """Keep what is handed to `send`, until `release_answers`."""
        self.flush()
        self.holds_answers = True

    def release_answers(self) -> None:
        """Let go of what was kept."""
        self.holds_answers = False
        self.flush()

    def flush(self) -> None:
        """Hand the bytes that `send` has collected to the kernel, now instead of at the end of the
        turn."""
        out, size = self._out, self._queued
        if not out or self.holds_answers:
            return
        self._out, self._queued = [], 0
        if self._due is not None:
            self._due.cancel()
        was_full = size > WRITE_HIGH_BYTES
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pieces: list[Buffer] = [b"".join(out)] if size <= 4 * JOIN_BYTES else joined(out)
        if transport.get_write_buffer_size() == 0:
            pieces = self._write_now(pieces, size)
        if pieces:
            transport.writelines(pieces)
        if was_full:
            self._was_sent()

    def _write_now(self, pieces: list[Buffer], size: int) -> list[Buffer]:
        """Give the kernel what it takes of ``size`` bytes at once, and return the rest. The loop
        itself would write at the end of its turn: behind all other work of the turn, such as a
        write to the disk."""
        if self._descriptor < 0:  # a transport without a socket, or under TLS
            return pieces
        try:
            sent = os.writev(self._descriptor, pieces[:MOST_PIECES])
        except OSError:
            return pieces  # it is full, or broken, which the transport finds out and tells
        if sent == size:
            return []
        for at, piece in enumerate(pieces):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[at + 1 :]]
            sent -= len(piece)
        return []
