"""HAClient: the slave's side of a connection to its master, without the socket.

Log bytes are handed on as they come, whole frames or not, so that only a begun header is kept here.
A master is not believed: its bytes must go on exactly where this log ends, and stay within a commit
log file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.errors import ProtocolError, Unavailable
from dledger.rocketmq.ha_protocol.messages import (
    DEFAULTS,
    HEADER,
    HEADER_SIZE,
    MOST_FRAME,
    REPORT,
    HASettings,
)
from dledger.types import Buffer

MOST_OFFSET: Final = 2**63 - 1


@dataclass(slots=True)
class LogPiece:
    """Bytes of the log in one commit log file, as they lie in the received data."""

    offset: int
    parts: list[memoryview]
    size: int = 0

    def data(self) -> Buffer:
        """All of them in one."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class HAClient:
    """One connection of a slave; made anew for the next one.

    Args:
        max_offset: where the slave's log ends, durable up to there; 0 for a log without a byte,
            which takes any start.
        now: milliseconds.
    """

    def __init__(self, max_offset: int, now: int, *, settings: HASettings = DEFAULTS) -> None:
        self.max_offset = max_offset
        """Behind the last byte that was received."""
        self.frames = 0
        """Heartbeats included."""
        self._settings = settings
        self._fresh = max_offset == 0
        self._durable = max_offset
        self._reported = -1
        self._last_report = now
        self._last_read = now
        self._head = bytearray()
        self._left = 0

    @property
    def within_header(self) -> bool:
        """Whether a header has begun: a connection that ends here ends too soon."""
        return bool(self._head)

    def receive(self, data: Buffer, now: int) -> list[LogPiece]:
        """The bytes from the master, in any pieces, as bytes of the log; views into ``data``.

        Raises:
            ProtocolError: the master breaks the protocol; ``data`` does not count, and the
            connection
                must end.
        """
        view = memoryview(data)
        pieces: list[LogPiece] = []
        piece: LogPiece | None = None
        at, end, size = 0, len(view), self._settings.mapped_file_size_commit_log
        while at < end:
            if not self._left:
                at = self._read_header(view, at, now)
                continue
            take = min(self._left, end - at)
            if piece is None or not self.max_offset % size:
                piece = LogPiece(self.max_offset, [])
                pieces.append(piece)
            piece.parts.append(view[at : at + take])
            piece.size += take
            self.max_offset += take
            self._left -= take
            self._last_read = now
            at += take
        return pieces

    def _read_header(self, view: memoryview, at: int, now: int) -> int:
        """Take up a header, or a part of one; where the rest begins."""
        if not self._head and len(view) - at >= HEADER_SIZE:  # nearly always
            offset, size = HEADER.unpack_from(view, at)
            at += HEADER_SIZE
        else:
            missing = HEADER_SIZE - len(self._head)
            self._head += view[at : at + missing]
            at = min(at + missing, len(view))
            if len(self._head) < HEADER_SIZE:
                return at
            offset, size = HEADER.unpack(self._head)
            self._head.clear()
        self._begin(offset, size)
        self._last_read = now
        self.frames += 1
        return at

    def _begin(self, offset: int, size: int) -> None:
        """A frame begins: is it one that may come here?"""
        file_size = self._settings.mapped_file_size_commit_log
        if self._fresh:
            if offset < 0 or offset % file_size:
                raise ProtocolError(
                    f"the master begins at {offset}, where no commit log file of {file_size} "
                    "bytes begins; give this slave the master's mappedFileSizeCommitLog"
                )
            self._fresh, self.max_offset = False, offset
        elif offset != self.max_offset:
            raise ProtocolError(
                f"the master sends from {offset} but this log ends at {self.max_offset}: it is "
                f"not this master's, or "
                "the master has lost what it sent; compare the two, or follow into an empty store"
            )
        if not 0 <= size <= MOST_FRAME:
            raise ProtocolError(
                f"the master sends a frame of {size} bytes at {offset}; 0 to {MOST_FRAME} may be"
            )
        if offset > MOST_OFFSET - size or offset % file_size + size > file_size:
            raise ProtocolError(
                f"the master's {size} bytes at {offset} go over the end of a commit log file of "
                f"{file_size} bytes; give this slave the master's mappedFileSizeCommitLog"
            )
        self._left = size

    def flushed(self, offset: int) -> None:
        """The slave's log is durable up to there."""
        if offset > self.max_offset:
            raise ValueError(f"flushed up to {offset}, but received only up to {self.max_offset}")
        self._durable = max(self._durable, offset)

    def report(self, now: int) -> bytes:
        """The bytes to send to the master now: an offset at first, when more is durable, at each
        interval; or none."""
        due = now - self._last_report >= self._settings.ha_send_heartbeat_interval
        if self._reported >= self._durable and not due:
            return b""
        self._reported, self._last_report = self._durable, now
        return REPORT.pack(self._durable)

    def check(self, now: int) -> None:
        """Check whether the master is there.

        Raises:
            Unavailable: no whole frame has come from it for the house-keeping interval; the
                connection must end.
        """
        limit = self._settings.ha_housekeeping_interval
        if now - self._last_read >= limit:
            raise Unavailable(f"the master has sent nothing for {limit / 1000:g} s")

    def deadline(self) -> int:
        """When to ask for a report, or check, again if nothing happens before (milliseconds)."""
        return min(
            self._last_report + self._settings.ha_send_heartbeat_interval,
            self._last_read + self._settings.ha_housekeeping_interval,
        )
