"""Messages that move to another place in a log: RocketMQ's append hook."""

from __future__ import annotations

from collections.abc import Callable

from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.format.message import (
    INT64,
    MESSAGE_MAGICS,
    MIN_MESSAGE,
    PAIR,
    PHYSICAL_OFFSET_AT,
)


def place_message(body: bytearray, position: int) -> None:
    """Write into a message where it lies, as RocketMQ's append hook does."""
    INT64.pack_into(body, PHYSICAL_OFFSET_AT, position)


def moved_message(entry_pos: int) -> Callable[[bytearray, int], None]:
    """A hook for the body of an entry that lay at ``entry_pos``: when it is a message that says so,
    it says from now on where it lies then. Any other body stays as it is."""

    def hook(body: bytearray, position: int) -> None:
        if len(body) < MIN_MESSAGE:
            return
        size, magic = PAIR.unpack_from(body)
        says = INT64.unpack_from(body, PHYSICAL_OFFSET_AT)[0]
        if size == len(body) and magic in MESSAGE_MAGICS and says == entry_pos + HEADER_SIZE:
            place_message(body, position)

    return hook
