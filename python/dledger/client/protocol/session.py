"""A producer session: the numbers that let a retry be recognised. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from dledger.types import Buffer

_AT: Final = 40
_FIELDS: Final = struct.Struct(">QIIQ")
"""Producer id, epoch, reserved, sequence: bytes 40 to 64 of a body's header (see
`dledger.records.body.header`)."""


def stamp(header: Buffer, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The same body header with another place in a session."""
    return bytes(header[:_AT]) + _FIELDS.pack(producer_id, epoch, 0, sequence)


@dataclass(slots=True)
class ProducerSession:
    """An open session and the next number of each (topic id, partition).

    A number is used up only when its batch was taken: a batch that was refused for sure gives it
    back by never having advanced, so that the next one is not out of order.
    """

    producer_id: int
    epoch: int
    next: dict[tuple[int, int], int] = field(default_factory=dict)

    def stamp(self, header: Buffer, topic_id: int, partition: int) -> bytes:
        """The header with the partition's next number."""
        return stamp(header, self.producer_id, self.epoch, self.next.get((topic_id, partition), 0))

    def advance(self, topic_id: int, partition: int) -> None:
        """The batch with the partition's next number was taken."""
        key = (topic_id, partition)
        self.next[key] = self.next.get(key, 0) + 1
