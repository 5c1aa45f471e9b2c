"""The fields that a leader writes into a message when it knows the message's place:
DLedgerCommitLog's append hook.

A sender encodes its message with any queue offset, physical offset, store time and store host; they
lie at fixed places and the message keeps its size. None of them is covered by the message's own
checksum, which is the body's.

Both checking and reading back happen for every message on every node, so the common shape, version
1 with IPv4 hosts, is taken apart by one struct; it comes to the same as `lay_out`, which all other
messages go through.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Final

from dledger.checksum import crc32
from dledger.errors import FormatError
from dledger.rocketmq.format.message import (
    BORN_V6,
    CRC_MASK,
    EITHER_V6,
    HEAD,
    INT16,
    INT64,
    MAGIC_V1,
    MAX_TOPIC,
    MIN_MESSAGE,
    STORE_V6,
    check_contents,
    lay_out,
)
from dledger.types import Buffer, slots_dataclass

COMMON_SIZE: Final = MIN_MESSAGE - 3
"""A message of version 1 with IPv4 hosts, up to its body."""
PUT: Final = struct.Struct(">iIIi20xi44xi")
"""The fields that are checked when it is put: size, magic, CRC, queue id, flags, and body size."""
PLACED: Final = struct.Struct(">iI4xi4xqqi16xq20xi")
"""The fields that are read back: size, magic, queue id, queue offset, place, flags, store time, and
body size."""
assert PUT.size == PLACED.size == COMMON_SIZE
MANY: Final = 10_000
"""So many topics' names are remembered."""
LONGEST_TOPIC: Final = MAX_TOPIC[MAGIC_V1]
QUEUE_OFFSET_AT: Final = 20
OFFSETS: Final = struct.Struct(">qq")
"""Queue offset and physical offset, which stand side by side."""
STORED_V4: Final = struct.Struct(">q8s")
STORED_V6: Final = struct.Struct(">q20s")
STORED_AT: Final = 56
"""Store time and store host, where the born host is IPv4; 12 bytes later where it is IPv6."""
STATE: Final = 0xC
NO_UNIT: Final = (0x4, 0xC)
"""Prepared and rolled back in a transaction."""
TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""The names that a broker allows for a topic (TopicValidator); each becomes that of a folder."""
MAPPED: Final = b"\0" * 10 + b"\xff\xff"
"""In front of an IPv4 address where there is room for an IPv6 one."""


@slots_dataclass()
class Unplaced:
    """A message that was put and has no place yet. ``at`` and ``size`` tell where it lies in the
    request."""

    at: int
    size: int
    topic: str
    queue_id: int
    sys_flag: int

    @property
    def has_unit(self) -> bool:
        """Whether a consume queue has a unit for it, which takes a queue offset: prepared and
        rolled back messages of transactions have none."""
        return self.sys_flag & STATE not in NO_UNIT


@slots_dataclass()
class Stored:
    """The place of a committed message, by its own fields. ``queue_offset`` is -1 where it has no
    unit in a consume queue."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int


def check_messages(data: Buffer, most: int) -> list[Unplaced]:
    """The messages that lie one behind the other in a request, each of them sound.

    Raises:
        FormatError: one is not; it says which and why. Or there are more than ``most``.
    """
    view = memoryview(data)
    found: list[Unplaced] = []
    at, size = 0, len(view)
    try:
        while at < size:
            if len(found) == most:
                raise FormatError(f"a request has {most:,} at most; send the rest in another one")
            message = _common(view, at, size) or _unplaced(view, at)
            found.append(message)
            at += message.size
    except FormatError as error:
        raise FormatError(f"message {len(found)} of the request: {error}") from None
    if not found:
        raise FormatError("there is no message in the request")
    return found


def _common(view: memoryview, at: int, end: int) -> Unplaced | None:
    """A sound message of the common shape; None for any other, and for one that is not sound."""
    if end - at < MIN_MESSAGE:
        return None
    size, magic, crc, queue_id, sys_flag, body_size = PUT.unpack_from(view, at)
    if (
        magic != MAGIC_V1
        or sys_flag & EITHER_V6
        or not MIN_MESSAGE <= size <= end - at
        or queue_id < 0
    ):
        return None
    body = at + COMMON_SIZE
    body_end = body + body_size
    stop = at + size
    if (
        body_size < 0
        or body_end + 3 > stop
        or (body_size and crc32(view[body:body_end]) & CRC_MASK != crc)
    ):
        return None
    rest = bytes(view[body_end:stop])
    topic_end = 1 + rest[0]
    if rest[0] > LONGEST_TOPIC or topic_end + 2 > len(rest):
        return None
    if topic_end + 2 + INT16.unpack_from(rest, topic_end)[0] != len(rest):
        return None
    name = topic_name(rest[1:topic_end])
    try:
        rest[topic_end + 2 :].decode()
    except UnicodeDecodeError:
        return None
    return None if name is None else Unplaced(at, size, name, queue_id, sys_flag)


@lru_cache(MANY)
def topic_name(name: bytes) -> str | None:
    """The topic that these bytes name; None where a topic cannot be named so."""
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        return None
    return topic if TOPIC.fullmatch(topic) else None


def _unplaced(view: memoryview, at: int) -> Unplaced:
    layout = lay_out(view, at, len(view) - at)
    check_contents(view, at, layout)
    _, _, _, queue_id, _, _, _, sys_flag, _ = HEAD.unpack_from(view, at)
    name = str(view[layout.topic : layout.topic_end], "utf-8")
    if not TOPIC.fullmatch(name):
        raise FormatError(
            f"topic {name[:100]!r}: use 1 to 255 of the characters A-Z a-z 0-9 % | _ -"
        )
    if queue_id < 0:
        raise FormatError(f"queue id {queue_id} is negative")
    return Unplaced(at, layout.end - at, name, queue_id, sys_flag)


def write_place(
    view: memoryview,
    message: Unplaced,
    queue_offset: int,
    physical_offset: int,
    store_ms: int,
    host: bytes,
) -> None:
    """Write place, store time and store host into the message.

    ``host`` is that of the leader, 8 bytes (`Host.encode`) with an IPv4 address; a sender that left
    room for an IPv6 one has it as ``::ffff:a.b.c.d``.
    """
    OFFSETS.pack_into(view, message.at + QUEUE_OFFSET_AT, queue_offset, physical_offset)
    at, sys_flag = message.at + STORED_AT, message.sys_flag
    if sys_flag & EITHER_V6:
        at += 12 if sys_flag & BORN_V6 else 0
        if sys_flag & STORE_V6:
            STORED_V6.pack_into(view, at, store_ms, MAPPED + host)
            return
    STORED_V4.pack_into(view, at, store_ms, host)


def read_stored(body: Buffer, physical_offset: int) -> Stored | None:
    """The body of a committed entry as a message at ``physical_offset``; None when it is none, or
    says that it lies elsewhere. All nodes come to the same answer: it depends on the bytes
    alone."""
    length = len(body)
    if length < MIN_MESSAGE:
        return None
    size, magic, queue_id, queue_offset, says, sys_flag, store_ms, body_size = PLACED.unpack_from(
        body
    )
    if size != length or says != physical_offset:
        return None
    if magic == MAGIC_V1 and not sys_flag & EITHER_V6:
        topic = COMMON_SIZE + body_size + 1
        if body_size < 0 or topic + 2 > size:
            return None
        topic_size = body[topic - 1]
        topic_end = topic + topic_size
        if topic_size > LONGEST_TOPIC or topic_end + 2 > size:
            return None
        if topic_end + 2 + INT16.unpack_from(body, topic_end)[0] != size:
            return None
    else:
        try:
            layout = lay_out(body, 0, length)
        except FormatError:
            return None
        topic, topic_end = layout.topic, layout.topic_end
        store_ms = INT64.unpack_from(body, STORED_AT + (12 if sys_flag & BORN_V6 else 0))[0]
    try:
        name = str(body[topic:topic_end], "utf-8")
    except UnicodeDecodeError:
        return None
    return Stored(name, queue_id, -1 if sys_flag & STATE in NO_UNIT else queue_offset, store_ms)
