"""The receiving half of a connection: bytes become frames, and those that are wanted are handed
out.

Small frames are parsed out of one receive buffer, many per read; a large payload is received
straight into a buffer of its own. Frames that are not wanted yet, or have had no turn, stay bytes,
and nothing more is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, cast

from dledger.errors import ProtocolError
from dledger.net.connections.handlers import RECEIVE_BYTES, Handlers, receive_buffer
from dledger.net.connections.outgoing import WRITE_HIGH_BYTES, Outgoing
from dledger.net.connections.payload_memory import payload_memory
from dledger.net.limits.frame_turns import FrameTurns
from dledger.net.limits.inflow import PRESSED_READ_BYTES, Inflow
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import (
    APPEND_KIND,
    HELLO_LIMITS,
    Frame,
    FrameLimits,
    FrameReader,
    decode,
)

TURN_FRAMES: Final = 512
"""Frames of one connection that are handed out in one turn of the loop: then it is the others'
turn."""
TURN_BYTES: Final = 1 << 20
"""Bytes of one client that are taken before it is the others' turn. Where a read fills its buffer,
libuv reads again at once, up to 32 times: megabytes of one connection's commands would be carried
out while all others wait."""


HEAD_BYTES: Final = 4 << 10
"""The first read behind a very large payload. Mostly the head of another one comes, and what is
read of its payload beside it has to be copied; the next read goes straight to its place."""


class Incoming(Outgoing, ABC):
    """Frames on their way from the other side. Every one is a `Connection`, as which its owner
    hears of it.

    Attributes:
        received: bytes so far.
        said_hello: whether an accepted connection has sent its first frame.
        is_member: it is another member's, so no budget of clients applies to it.
    """

    __slots__ = (
        "_accepted", "_after_large", "_asked", "_buffer", "_frames", "_handlers", "_holds",
        "_inflow", "_read_paused", "_reader", "_shared", "_turn_bytes", "_turns", "_waits",
        "account", "is_member", "most_frames", "received", "said_hello",
    )  # fmt: skip

    def __init__(
        self,
        handlers: Handlers[Any],
        limits: FrameLimits,
        *,
        inflow: Inflow | None,
        turns: FrameTurns | None,
    ) -> None:
        """``inflow`` and ``turns`` are those of a port that has accepted the connection."""
        accepted = inflow is not None
        super().__init__()
        self.received = 0
        self.account = "?"
        self.said_hello = not accepted
        self.is_member = False
        self.most_frames: int | None = None
        """That are handed out in one turn, where these are fewer than its turn has."""
        self._handlers = handlers
        self._accepted = accepted
        self._inflow = inflow
        self._turns = turns
        self._reader = FrameReader(
            limits,
            HELLO_LIMITS if accepted else None,
            admits=self._admits if inflow else None,
            memory=payload_memory.take,
        )
        self._buffer = receive_buffer
        self._shared: memoryview | None = None
        """The thread's receive buffer, while this connection reads into it; None: into a large
        payload's own."""
        self._after_large = False
        """The last read went into a payload's buffer that is larger than the receive buffer: to
        copy a smaller payload costs less than another read."""
        self._holds = 0
        """The bytes that `Inflow` has noted."""
        self._frames: list[Frame] = []
        """Parsed and not handed out, because they were not wanted any more; no more than are handed
        out in a turn."""
        self._asked = 0
        self._turn_bytes = 0
        self._read_paused = False
        self._waits = False
        """For its turn."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Close at once because the other side broke the protocol."""

    # asyncio's side

    def get_buffer(self, sizehint: int) -> memoryview:
        reader = self._reader
        if reader.large is not None:
            self._shared, self._after_large = None, len(reader.large) >= RECEIVE_BYTES
            wanted = cast(memoryview, reader.wanted)
            # Of a client no more at once than is its turn: fifty may have megabytes ready.
            return wanted[:TURN_BYTES] if self._accepted and not self.is_member else wanted
        self._shared = buffer = self._buffer.view
        rest = reader.rest
        if not rest:
            if self._after_large:
                return buffer[:HEAD_BYTES]
            if self._inflow is None or self.is_member or not self._inflow.presses(self):
                return buffer  # no budget of clients applies to a member
            return buffer[:PRESSED_READ_BYTES]
        if len(rest) >= len(buffer) // 2:  # a header near its limit
            self._shared = buffer = self._buffer.grow(2 * len(rest))
        buffer[: len(rest)] = rest
        return buffer[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        self._turn_bytes += nbytes
        reader, buffer = self._reader, self._shared
        if buffer is not None:
            self._after_large = False
            self._hand_out(buffer[: nbytes + len(reader.rest) if reader.rest else nbytes])
        elif (frame := reader.received(nbytes)) is not None:
            self._hand_out_large(frame)
        if (
            self._inflow is not None
            and not self.is_member
            and (self._holds or reader.rest or reader.large is not None or self._frames)
        ):
            self._note(self._inflow)
        if self._turn_bytes >= TURN_BYTES:
            self._end_turn()

    def _end_turn(self) -> None:
        """Read on in the loop's next turn."""
        self._turn_bytes = 0
        if self._accepted and not self.is_member and not self._waits and not self.closing:
            self._wait_for_turn()

    # frames

    def _hand_out(self, view: memoryview) -> None:
        """Hand out the frames parsed before and those in ``view``, as many as are wanted and may be
        in this turn."""
        reader, frames, taken = self._reader, self._frames, 0
        turns = None if self.is_member else self._turns
        most = TURN_FRAMES if turns is None else turns.share
        if self.most_frames is not None:
            most = min(most, self.most_frames)
        try:
            held_back = self._held_back
            if not held_back and len(frames) < most:
                reader.parse(view, frames, most)
            else:
                reader.keep(view)
            if (last := len(frames)) > most:
                last = most
            while taken < last and not held_back:
                taken += self._take(frames, taken, last)
                held_back = taken < last and self._held_back
            if taken and self._handlers.on_batch_end is not None:
                self._handlers.on_batch_end(self)
        except ProtocolError as error:
            self.fail(error)
        del frames[:taken]
        if taken and turns is not None:
            turns.took(taken)
        if frames or reader.has_more:
            self._go_on()

    def _hand_out_large(self, frame: Frame) -> None:
        try:
            self._take([frame], 0, 1)
            if self._handlers.on_batch_end is not None:
                self._handlers.on_batch_end(self)
        except ProtocolError as error:
            self.fail(error)
        if self._turns is not None and not self.is_member:
            self._turns.took(1)

    def _take(self, frames: list[Frame], start: int, stop: int) -> int:
        """Hand out the frame at ``start``, and with an append those behind it, up to ``stop``, that
        have the same header; returns how many these are."""
        kind, request_id, header, payload = frames[start]
        message = decode(kind, header, payload)
        if not self.said_hello:
            if not isinstance(message, HelloRequest):
                raise ProtocolError(
                    f"the first frame is {type(message).__name__}, not HelloRequest"
                )
            self.said_hello = True
        end, on_appends = start + 1, self._handlers.on_appends if kind == APPEND_KIND else None
        if on_appends is not None:
            while end < stop and frames[end].header is header:
                end += 1
        self._asked += end - start
        if self._ended:
            return end - start
        if on_appends is None:
            self._handlers.on_frame(self, request_id, message, payload)
        elif end - start == 1:
            on_appends(self, message, (request_id,), (payload,))
        else:
            run = frames[start:end]
            on_appends(self, message, [one.request_id for one in run], [one.payload for one in run])
        return end - start

    def _wait_for_turn(self) -> None:
        self._waits = True
        if self._turns is None or self.is_member:
            self._loop.call_soon(self.have_turn)
        else:
            self._turns.wait(self)
        self._read_or_not()

    def have_turn(self) -> None:
        """Hand out the frames that there was no turn for, and read on."""
        self._waits = False
        if self.closing:
            return
        if self._has_more and not self._held_back:
            self._hand_out(memoryview(self._reader.rest))
            if self._inflow is not None and self._holds:
                self._note(self._inflow)
        self._read_or_not()

    @property
    def _has_more(self) -> bool:
        """Whether something is to be handed out before anything is read."""
        return bool(self._frames) or self._reader.has_more

    @property
    def _held_back(self) -> bool:
        """Whether the owner wants no more, or the other side takes no answers and so may not
        ask."""
        if self._read_paused or self._waits:
            return True
        return self._accepted and (self._write_paused or self._queued > WRITE_HIGH_BYTES)

    def _go_on(self) -> None:
        """Hand out the frames that stayed, in the next turn, if they are wanted now."""
        if self._has_more and not self._held_back and not self.closing:
            self._wait_for_turn()
        else:
            self._read_or_not()

    def _was_sent(self) -> None:
        # nothing more was taken or read because too much was unsent, which the kernel may have at
        # once
        self._go_on()

    # the budget of frames under way

    def _note(self, inflow: Inflow) -> None:
        """Note in the budget the bytes that are here and not taken."""
        holds = 0
        if not self.is_member and not self.closing:
            holds = self._reader.held + sum(
                len(frame.header) + len(frame.payload) for frame in self._frames
            )
        if holds != self._holds:
            self._holds = holds
            inflow.note(self, holds)
        if self._reader.refused:
            self._read_or_not()

    def _admits(self, size: int) -> bool:
        return self.is_member or self._inflow is None or self._inflow.admits(self, size)

    def become_member(self) -> None:
        """It is a member's: no budget of clients applies to its frames, from those right behind its
        hello on."""
        self.is_member = True
        if self._inflow is not None:
            self._inflow.forget(self)
            self._holds = 0
        if self._reader.refused:
            self._loop.call_soon(self.proceed)

    def belong_to(self, account: str) -> None:
        """Its turns and memory are counted for this account from now on."""
        if self._inflow is not None:
            self._inflow.forget(self)
            self._holds = 0
        if self._turns is not None:
            self._turns.forget(self)
        self.account = account
        if self._waits and self._turns is not None:
            self._turns.wait(self)
        if self._inflow is not None:
            self._note(self._inflow)
        if self._reader.refused:
            self._loop.call_soon(self.proceed)

    def proceed(self) -> None:
        """The budget may have room for the frame that it had none for."""
        if self.closing:
            return
        rest, self._reader.refused = self._reader.rest, False
        try:  # also out of turn: else the frame would lose its place among those that wait
            self._reader.parse(memoryview(rest), self._frames, len(self._frames) + 1)
        except ProtocolError as error:
            self.fail(error)
        if self._inflow is not None:
            self._note(self._inflow)
        self._go_on()

    # the owner's side

    @property
    def is_kept_waiting(self) -> bool:
        """Whether it is this side that reads no further."""
        return self._read_paused or self._waits or self._reader.refused

    def pause_reading(self) -> None:
        """Hand out no more frames and take no more from the socket until `resume_reading`."""
        self._read_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """Go on."""
        self._read_paused = False
        self._go_on()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._has_more or self._reader.refused or self._held_back:
            self._transport.pause_reading()  # a no-op when it is paused
        else:
            self._transport.resume_reading()

    def _end_reading(self) -> None:
        """The connection has ended. Its buffers may be large, and go at once, not when this object
        is collected."""
        self._reader.forget()
        self._frames.clear()
        if self._inflow is not None:
            self._inflow.forget(self)
        if self._turns is not None:
            self._turns.forget(self)
