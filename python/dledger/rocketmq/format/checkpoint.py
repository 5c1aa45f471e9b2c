"""The store checkpoint: up to which store time commit log, consume queues and index are on disk."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Final

from dledger.errors import FormatError
from dledger.types import Buffer

CHECKPOINT_SIZE: Final = 4096
FIELDS: Final = struct.Struct(">qqqqq")
TIMES: Final = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
RECOVERY_SLACK_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Times in milliseconds since 1970; the last two are offsets and stand there from RocketMQ 5
    on, 0 before."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @property
    def recovery_timestamp(self) -> int:
        """Where recovery after a crash begins: the earlier of commit log and consume queues, less 3
        s."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_SLACK_MS)

    def encode(self) -> bytes:
        """4096 bytes."""
        return FIELDS.pack(*astuple(self)).ljust(CHECKPOINT_SIZE, b"\0")

    @staticmethod
    def decode(data: Buffer) -> StoreCheckpoint:
        """From a file's bytes.

        Raises:
            FormatError: they are fewer than a checkpoint has.
        """
        if len(data) < FIELDS.size:
            raise FormatError(f"a store checkpoint has {CHECKPOINT_SIZE} bytes, not {len(data)}")
        return StoreCheckpoint(*FIELDS.unpack_from(data))
