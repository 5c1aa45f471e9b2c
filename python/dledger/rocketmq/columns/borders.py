"""Many messages at once: where they and their parts begin, as numpy arrays.

The length of each message leads to the next, so that finding where they begin takes a loop; it is
the only one over messages here, besides the one that compares CRCs. Everything behind it is checked
and taken out a column at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dledger.checksum import crc32
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL
from dledger.rocketmq.format.message import (
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC,
    MIN_MESSAGE,
    PAIR,
)
from dledger.rocketmq.with_numpy import np, npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LEAST_ENTRY: Final = HEADER_SIZE + MIN_MESSAGE
"""Bytes of an entry with a message in it."""


def walk_messages(view: memoryview, at: int, stop: int, most: int) -> list[int]:
    """Positions of messages that follow one another from ``at`` on, by size and magic alone; at
    most ``most``, none at or behind ``stop``."""
    found: list[int] = []
    push, unpack, last = found.append, PAIR.unpack_from, min(stop, len(view) - MIN_MESSAGE + 1)
    while at < last and most:
        size, magic = unpack(view, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < MIN_MESSAGE:
            break
        push(at)
        at += size
        most -= 1
    return found


def walk_entries(
    view: memoryview,
    at: int,
    stop: int,
    most: int,
    *,
    least: int = LEAST_ENTRY,
    last_magic: int = MAGIC_NORMAL,
) -> list[int]:
    """The same for DLedger entries of at least so many bytes."""
    found: list[int] = []
    push, unpack, last = found.append, PAIR.unpack_from, min(stop, len(view) - least + 1)
    while at < last and most:
        magic, size = unpack(view, at)
        if not 1 <= magic <= last_magic or not least <= size < 1 << 31:
            break
        push(at)
        at += size
        most -= 1
    return found


class Fields:
    """Numbers at any byte of a buffer, a whole array of places at once."""

    def __init__(self, view: memoryview) -> None:
        self.size = len(view)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(view, np.uint8)
        self._view = view

    def _take(self, kind: str, places: Ints) -> Ints:
        """Overlapping numbers at every byte, of which numpy picks and swaps only those asked
        for."""
        width = np.dtype(kind).itemsize
        spread: npt.NDArray[Any] = np.ndarray(
            (max(0, self.size - width + 1),), kind, self._view, strides=(1,)
        )
        taken: Ints = spread[places].astype(np.int64)
        return taken

    def int16(self, places: Ints) -> Ints:
        return self._take(">i2", places)

    def int32(self, places: Ints) -> Ints:
        return self._take(">i4", places)

    def int64(self, places: Ints) -> Ints:
        return self._take(">i8", places)


@dataclass
class Rows:
    """Messages that may lie at these positions of a buffer: where their parts are, and which of
    them are sound.

    Where a size is out of bounds, values derived from it mean nothing; ``adds_up`` is False there.
    """

    fields: Fields
    view: memoryview
    at: Ints
    room: Ints
    """Bytes that each message may have: up to the buffer's end, or what its entry says."""

    @cached_property
    def size(self) -> Ints:
        return self.fields.int32(self.at)

    @cached_property
    def end(self) -> Ints:
        return self.at + self.size

    @cached_property
    def sys_flag(self) -> Ints:
        return self.fields.int32(self.at + 36)

    @cached_property
    def born_host_end(self) -> Ints:
        return self.at + 56 + 12 * (self.sys_flag >> 4 & 1)

    @cached_property
    def body(self) -> Ints:
        return self.born_host_end + 32 + 12 * (self.sys_flag >> 5 & 1)

    @cached_property
    def magic(self) -> Ints:
        return self.fields.int32(self.at + 4) & 0xFFFF_FFFF

    @cached_property
    def wide(self) -> Ints:
        """1 for messages of version 2, 0 for version 1."""
        wide: Ints = (self.magic == MAGIC_V2).astype(np.int64)
        return wide

    @cached_property
    def body_end(self) -> Ints:
        return self.body + self.fields.int32(self._within(self.body - 4, 4))

    @cached_property
    def topic(self) -> Ints:
        return self.body_end + 1 + self.wide

    @cached_property
    def topic_end(self) -> Ints:
        place = self._within(self.topic - 1 - self.wide, 2)
        short = self.fields.bytes[place].astype(np.int64)
        sizes: Ints = (
            np.where(self.wide, self.fields.int16(place), short) if self.wide.any() else short
        )
        return self.topic + sizes

    @cached_property
    def properties(self) -> Ints:
        return self.topic_end + 2

    @cached_property
    def adds_up(self) -> Mask:
        """Whether the sizes of the parts give the message's, within the room that it has."""
        properties_end = self.properties + self.fields.int16(self._within(self.topic_end, 2))
        longest = np.where(self.wide, MAX_TOPIC[MAGIC_V2], MAX_TOPIC[MAGIC_V1])
        sound: Mask = (self.magic == MAGIC_V1) | (self.magic == MAGIC_V2)
        sound &= (self.size <= self.room) & (self.topic <= self.end) & (self.properties <= self.end)
        sound &= (self.body <= self.body_end) & (self.topic <= self.topic_end)
        sound &= (self.properties <= properties_end) & (properties_end == self.end)
        return sound & (self.topic_end - self.topic <= longest)

    def placed(self, start: int) -> Mask:
        """Whether each says that it lies where it does; ``start`` is the log's offset of the
        buffer."""
        sound: Mask = self.fields.int64(self.at + 28) == self.at + start
        return sound

    def first_bad_crc(self) -> int:
        """Number of the first message whose body is not the one its CRC was made of, or how many
        there are."""
        stored = self.fields.int32(self.at + 8).tolist()
        view = self.view
        for n, (begin, end, crc) in enumerate(
            zip(self.body.tolist(), self.body_end.tolist(), stored, strict=True)
        ):
            if begin != end and crc32(view[begin:end]) & CRC_MASK != crc:
                return n
        return len(stored)

    def first(self, count: int) -> Rows:
        """The first few of them."""
        if count == len(self.at):
            return self
        return Rows(self.fields, self.view, self.at[:count], self.room[:count])

    def only(self, chosen: Mask) -> Rows:
        """Some of them."""
        return Rows(self.fields, self.view, self.at[chosen], self.room[chosen])

    def _within(self, places: Ints, width: int) -> Ints:
        """Places that can be read at all; a place that is clipped is refused by ``adds_up``."""
        return np.clip(places, 0, self.fields.size - width)
