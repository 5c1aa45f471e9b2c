"""What a leader writes into a message when it knows the message's place: DLedgerCommitLog's append hook.

A sender encodes its message with any queue offset, physical offset, store time and store host; they lie at fixed places
and the message keeps its size. None of them is covered by the message's own checksum, which is the body's.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from dledger.errors import FormatError
from dledger.rocketmq.hosts import Host
from dledger.rocketmq.message import HEAD, INT64, SysFlag, Transaction, check_contents, lay_out
from dledger.types import Buffer, frozen

__all__ = ["Stored", "Unplaced", "check_messages", "read_stored", "write_place"]

QUEUE_OFFSET_AT: Final = 20
OFFSETS: Final = struct.Struct(">qq")
"""Queue offset and physical offset, which stand side by side."""
STORED_V4: Final = struct.Struct(">q8s")
STORED_V6: Final = struct.Struct(">q20s")
STORED_AT: Final = 56
"""Store time and store host, where the born host is IPv4; 12 bytes later where it is IPv6."""
TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""What a broker lets a topic's name be (TopicValidator); it becomes that of a folder."""
NO_UNIT: Final = (Transaction.PREPARED, Transaction.ROLLBACK)


@frozen()
class Unplaced:
    """A message that was put and has no place yet. ``at`` and ``size`` tell where it lies in the request."""

    at: int
    size: int
    topic: str
    queue_id: int
    sys_flag: int

    @property
    def has_unit(self) -> bool:
        """Whether a consume queue has a unit for it, which takes a queue offset: prepared and rolled back messages of
        transactions have none."""
        return self.sys_flag & Transaction.ROLLBACK not in NO_UNIT


@frozen()
class Stored:
    """What a committed message says of its place. ``queue_offset`` is -1 where it has no unit in a consume queue."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int


def check_messages(data: Buffer) -> list[Unplaced]:
    """The messages that lie one behind the other in a request, each of them sound.

    Raises:
        FormatError: one is not; it says which and why.
    """
    view = memoryview(data)
    found: list[Unplaced] = []
    at = 0
    while at < len(view):
        try:
            layout = lay_out(view, at, len(view) - at)
            check_contents(view, at, layout)
            found.append(_unplaced(view, at, layout.topic, layout.topic_end, layout.end))
        except FormatError as error:
            raise FormatError(f"message {len(found)} of the request: {error}") from None
        at = layout.end
    if not found:
        raise FormatError("there is no message in the request")
    return found


def _unplaced(view: memoryview, at: int, topic: int, topic_end: int, end: int) -> Unplaced:
    _, _, _, queue_id, _, _, _, sys_flag, _ = HEAD.unpack_from(view, at)
    name = str(view[topic:topic_end], "utf-8")
    if not TOPIC.fullmatch(name):
        raise FormatError(f"topic {name[:100]!r}: use 1 to 255 of the characters A-Z a-z 0-9 % | _ -")
    if queue_id < 0:
        raise FormatError(f"queue id {queue_id} is negative")
    return Unplaced(at, end - at, name, queue_id, sys_flag)


def write_place(
    view: memoryview, message: Unplaced, queue_offset: int, physical_offset: int, store_ms: int, host: Host
) -> None:
    """Write place, store time and store host into the message.

    ``host`` is that of the leader and IPv4; a sender that left room for an IPv6 one has it as ``::ffff:a.b.c.d``.
    """
    OFFSETS.pack_into(view, message.at + QUEUE_OFFSET_AT, queue_offset, physical_offset)
    at = message.at + STORED_AT + (12 if message.sys_flag & SysFlag.BORN_HOST_V6 else 0)
    if message.sys_flag & SysFlag.STORE_HOST_V6:
        mapped = Host(b"\0" * 10 + b"\xff\xff" + host.ip, host.port)
        STORED_V6.pack_into(view, at, store_ms, mapped.encode())
    else:
        STORED_V4.pack_into(view, at, store_ms, host.encode())


def read_stored(body: Buffer, physical_offset: int) -> Stored | None:
    """What the body of a committed entry is as a message at ``physical_offset``; None when it is none, or says that it
    lies elsewhere. All nodes come to the same answer: it depends on the bytes alone."""
    if len(body) < HEAD.size or int.from_bytes(body[:4], "big") != len(body):
        return None
    try:
        layout = lay_out(body, 0, len(body))
        topic = str(body[layout.topic : layout.topic_end], "utf-8")
    except (FormatError, UnicodeDecodeError):
        return None
    _, _, _, queue_id, _, queue_offset, says, sys_flag, _ = HEAD.unpack_from(body)
    if says != physical_offset:
        return None
    store_ms = INT64.unpack_from(body, STORED_AT + (12 if sys_flag & SysFlag.BORN_HOST_V6 else 0))[0]
    if sys_flag & Transaction.ROLLBACK in NO_UNIT:
        queue_offset = -1
    return Stored(topic, queue_id, queue_offset, store_ms)
