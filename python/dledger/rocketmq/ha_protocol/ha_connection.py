"""HAConnection: the master's side of a connection to one slave, without the socket.

A slave is believed no further than this master can know: an offset counts as an acknowledgement
only for bytes that were sent to that slave over this connection, so that a first report, which a
slave may make up, acknowledges nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from dledger.errors import ProtocolError, Unavailable
from dledger.rocketmq.ha_protocol.messages import DEFAULTS, HEADER, REPORT_SIZE, HASettings
from dledger.types import Buffer

UNKNOWN: Final = -1
NEVER: Final = 2**63


@dataclass(frozen=True, slots=True)
class TransferFrame:
    """Bytes of the log that go to the slave behind one header; none in a heartbeat."""

    offset: int
    size: int

    def header(self) -> bytes:
        """12 bytes."""
        return HEADER.pack(self.offset, self.size)


class HAConnection:
    """One slave. The two sides share what the slave asked for and how far it has got.

    Args:
        now: milliseconds.
    """

    def __init__(self, now: int, settings: HASettings = DEFAULTS) -> None:
        self.slave_request_offset = UNKNOWN
        """The slave's first report: from there it wants the log; below 0 until it has spoken."""
        self.slave_ack_offset = UNKNOWN
        """The slave's last report."""
        self.read_side = ReadSocketService(self, now, settings=settings)
        self.write_side = WriteSocketService(self, now, settings=settings)


class ReadSocketService:
    """Takes the slave's reports. Made by `HAConnection`."""

    def __init__(self, connection: HAConnection, now: int, *, settings: HASettings) -> None:
        self._connection = connection
        self._limit = settings.ha_housekeeping_interval
        self._last_read = now
        self._begun = b""

    def receive(self, data: Buffer, max_offset: int, now: int) -> int:
        """Takes the bytes from the slave, in any pieces; how far it has acknowledged the bytes sent
        to it, or -1.

        Args:
            max_offset: where the master's log ends.

        Raises:
            ProtocolError: it reports bytes that it cannot have; the connection must end.
        """
        whole = self._begun + bytes(data)
        count = len(whole) // REPORT_SIZE
        self._begun = whole[count * REPORT_SIZE :]
        if not count:
            return UNKNOWN
        self._last_read = now
        reports = [one for one in struct.unpack_from(f">{count}q", whole) if one != UNKNOWN]
        if not reports:  # -1: the slave has nothing to say yet
            return UNKNOWN
        connection = self._connection
        if min(reports) < 0:
            raise ProtocolError(f"the slave reports the offset {min(reports)}")
        if max(reports) > max_offset:
            raise ProtocolError(
                f"the slave reports {max(reports)}, behind the end of this log at {max_offset}: "
                "it has followed another master, or this one has lost what it sent"
            )
        if connection.slave_request_offset == UNKNOWN:
            connection.slave_request_offset = reports[0]
        write_side = connection.write_side
        sent = write_side.sent_up_to(max_offset)
        if max(reports) > sent:
            raise ProtocolError(
                f"the slave reports {max(reports)}, but only the log up to {sent} was sent to it"
            )
        connection.slave_ack_offset = reports[-1]
        return reports[-1] if reports[-1] > write_side.begin else UNKNOWN

    def check(self, now: int) -> None:
        """Check whether the slave is there.

        Raises:
            Unavailable: it has reported no offset for the house-keeping interval; the connection
                must end.
        """
        if now - self._last_read >= self._limit:
            raise Unavailable(f"the slave has reported nothing for {self._limit / 1000:g} s")

    def deadline(self) -> int:
        """When the slave must have reported (milliseconds)."""
        return self._last_read + self._limit


class WriteSocketService:
    """Decides the bytes to send to the slave. Made by `HAConnection`."""

    def __init__(self, connection: HAConnection, now: int, *, settings: HASettings) -> None:
        self.next_transfer_from_where = UNKNOWN
        """Behind the last byte that was sent; below 0 until the slave has spoken."""
        self.begin = UNKNOWN
        """Where that began."""
        self._connection = connection
        self._settings = settings
        self._last_write = now

    def sent_up_to(self, max_offset: int) -> int:
        """Where the transfer stands, which the slave's first report decides.

        A slave without a log gets the master's last file only: older ones are left to a copy of the
        store.
        """
        asked = self._connection.slave_request_offset
        if self.next_transfer_from_where == UNKNOWN and asked != UNKNOWN:
            last_file = max_offset - max_offset % self._settings.mapped_file_size_commit_log
            self.begin = self.next_transfer_from_where = asked or last_file
        return self.next_transfer_from_where

    def transfer(
        self, min_offset: int, max_offset: int, room: int, now: int
    ) -> list[TransferFrame]:
        """The frames to send now: log bytes, or a heartbeat where nothing was sent for the
        interval, or none.

        Frames are in order, without a gap, and never go over the end of a commit log file.

        Args:
            min_offset: where the master's log begins; a slave that asks for less gets heartbeats
                only.
            max_offset: where it ends.
            room: how many bytes of the log there may be in all.
        """
        at = self.sent_up_to(max_offset)
        if at == UNKNOWN:
            return []
        frames: list[TransferFrame] = []
        size = self._settings.mapped_file_size_commit_log
        end = min(max_offset, at + room) if at >= min_offset else at
        while at < end:
            take = min(self._settings.ha_transfer_batch_size, end - at, size - at % size)
            frames.append(TransferFrame(at, take))
            at += take
        self.next_transfer_from_where = at
        if not frames and now >= self._heartbeat_due():
            frames.append(TransferFrame(at, 0))
        if frames:
            self._last_write = now
        return frames

    def _heartbeat_due(self) -> int:
        return self._last_write + self._settings.ha_send_heartbeat_interval

    def deadline(self) -> int:
        """When a heartbeat is due (milliseconds)."""
        return NEVER if self.next_transfer_from_where == UNKNOWN else self._heartbeat_due()
