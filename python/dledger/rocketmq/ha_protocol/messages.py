"""The messages of a RocketMQ master and its slaves (HAService of 4.9, DefaultHAService of 5.x).

There is no handshake. The slave sends only 8-byte offsets: how far it has the log. The master is
mute until the first of them, and then sends frames: an 8-byte offset, a 4-byte size, and so many
raw bytes of its commit log. A frame without bytes is a heartbeat. All times here are milliseconds
of a clock that never goes back, handed in by the caller.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from dledger.errors import ConfigError

HEADER: Final = struct.Struct(">qi")
"""Of a frame: where its bytes begin in the log, and how many they are."""
HEADER_SIZE: Final = HEADER.size
REPORT: Final = struct.Struct(">q")
REPORT_SIZE: Final = REPORT.size
MOST_FRAME: Final = 4 * 1024 * 1024 - HEADER_SIZE
"""Bytes in a frame: as many as a real slave's buffer can take beside the header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HASettings:
    """The part of a broker's configuration about HA, under the same names; times in milliseconds,
    sizes in bytes."""

    ha_send_heartbeat_interval: int = 5_000
    """A side that has sent nothing for so long sends a heartbeat, or its offset."""
    ha_housekeeping_interval: int = 20_000
    """A side that has heard nothing for so long ends the connection."""
    ha_transfer_batch_size: int = 32_768
    """Log bytes in a frame of the master."""
    ha_slave_fallbehind_max: int = 256 * 1024 * 1024
    """A sync master does not wait for slaves that are this far behind."""
    slave_timeout: int = 3_000
    """A put waits so long for a slave."""
    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    """Of a commit log file: the same in master and slave."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: give a number above 0")
        if self.ha_transfer_batch_size > MOST_FRAME:
            size = self.ha_transfer_batch_size
            raise ConfigError(f"ha_transfer_batch_size={size}: a slave takes {MOST_FRAME} at most")


DEFAULTS: Final = HASettings()
