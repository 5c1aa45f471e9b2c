"""Consume queues: for each message of a topic's queue, where it lies in the commit log.

A unit has 20 bytes (place, size, tags code); its place in the file is the message's queue offset.
Where a queue begins above 0, fillers stand before its first unit. RocketMQ 5's batch consume queue
has units of 46 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import takewhile
from typing import Any, Final

from dledger.types import Buffer

UNIT: Final = struct.Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
BATCH_UNIT: Final = struct.Struct(">qiqqqhii")


@dataclass(frozen=True, slots=True)
class ConsumeQueueUnit:
    """One message of a queue."""

    physical_offset: int
    size: int
    tags_code: int
    """Hash of the tags, or, in the topic of delayed messages, when to deliver it (milliseconds
    since 1970)."""

    @property
    def is_message(self) -> bool:
        """Whether recovery takes it for a message; where it does not, the queue ends."""
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_filler(self) -> bool:
        return self == FILLER


FILLER: Final = ConsumeQueueUnit(0, 0x7FFF_FFFF, 0)
"""Stands before the first unit of a queue that does not begin at a file's start."""


@dataclass(frozen=True, slots=True)
class BatchUnit:
    """One inner batch of a queue (RocketMQ 5)."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    """Queue offset of the batch's first message."""
    batch_size: int
    compacted_offset: int = -1
    reserved: int = 0


def encode_units(units: Iterable[ConsumeQueueUnit]) -> bytes:
    """Units one behind the other."""
    return b"".join(UNIT.pack(u.physical_offset, u.size, u.tags_code) for u in units)


def decode_units(data: Buffer) -> list[ConsumeQueueUnit]:
    """Every whole unit of a file, the zeros behind the last one too; ``encode_units`` gives the
    same bytes again."""
    return [ConsumeQueueUnit(*fields) for fields in _whole(UNIT, data)]


def sound_units(data: Buffer, first_offset: int = 0) -> list[tuple[int, ConsumeQueueUnit]]:
    """The messages of a file, as recovery finds them: (queue offset, unit) up to the first unit
    that is none.

    Args:
        data: a file's bytes.
        first_offset: queue offset of its first unit, which is its name divided by 20.
    """
    units = enumerate(decode_units(data), first_offset)
    messages = takewhile(lambda unit: unit[1].is_message, units)
    return [(offset, unit) for offset, unit in messages if not unit.is_filler]


def encode_batch_units(units: Iterable[BatchUnit]) -> bytes:
    """Units of a batch consume queue one behind the other."""
    return b"".join(BATCH_UNIT.pack(*astuple(u)) for u in units)


def decode_batch_units(data: Buffer) -> list[BatchUnit]:
    """Every whole unit of a batch consume queue's file."""
    return [BatchUnit(*fields) for fields in _whole(BATCH_UNIT, data)]


def _whole(form: struct.Struct, data: Buffer) -> Iterator[tuple[Any, ...]]:
    """The fields of each whole unit."""
    view = memoryview(data)
    return form.iter_unpack(view[: len(view) - len(view) % form.size])
