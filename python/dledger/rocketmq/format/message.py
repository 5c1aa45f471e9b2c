"""The message as it lies in a commit log, and the blank that fills a file's end.

::

    byte 0      4       8         12        16     20            28               36
         | size | magic | bodyCRC | queueId | flag | queueOffset | physicalOffset | sysFlag |
         40              48         56               64          72
         | bornTimestamp | bornHost | storeTimestamp | storeHost | reconsumeTimes |
         76                          84
         | preparedTransactionOffset | bodySize | body
         | topicSize | topic | propertiesSize | properties

All numbers are big-endian and signed. A host takes 20 bytes in place of 8 when ``sysFlag`` says
that it is IPv6. ``topicSize`` is one byte in version 1 and two in version 2 (RocketMQ 5.1 and
later, for topics over 127 bytes). ``bodyCRC`` is the CRC-32 of the stored body without its highest
bit. It is the only part that a checksum covers; beyond that, a check can compare the sizes, and
``physicalOffset`` with the place of the message.

The blank has size and magic too, in this order. The padding in DLedger's files has them the other
way round (magic -1, size), and both sizes count to the end of the file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Final

from dledger.checksum import crc32
from dledger.errors import FormatError
from dledger.rocketmq.format.hosts import LOCALHOST, Host, OffsetId
from dledger.rocketmq.format.properties import MAX_PROPERTIES, keys_of, parse_properties
from dledger.types import Buffer

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194
DLEDGER_BLANK_MAGIC: Final = -1
BLANK_SIZE: Final = 8
"""Bytes that stay behind the last message of a file at least, so that a blank fits."""
MIN_MESSAGE: Final = 91
"""Bytes of a message of version 1 with two IPv4 hosts and nothing in it."""
MAX_BODY: Final = 4_194_304
"""The largest body a broker takes (maxMessageSize)."""
MAX_TOPIC: Final = {MAGIC_V1: 127, MAGIC_V2: 32_767}
PHYSICAL_OFFSET_AT: Final = 28
MOST_HEAD: Final = 112
"""Bytes before the body of a message at most: with two IPv6 hosts."""
CRC_MASK: Final = 0x7FFF_FFFF

MESSAGE_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
PAIR: Final = struct.Struct(">iI")
"""The first bytes of a message or a blank, size and magic; an entry's are magic and size."""
HEAD: Final = struct.Struct(">iIiiiqqiq")
HEAD_SIZE: Final = HEAD.size
TIMES: Final = struct.Struct(">iqi")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
INT16: Final = struct.Struct(">h")


class SysFlag(IntFlag):
    """The flags that the broker and its clients set on a message."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEEDS_UNWRAP = 0x40
    INNER_BATCH = 0x80


# Plain numbers: operators of flags are ten times slower, and ~ and | forget the other bits of a
# negative number.
BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
EITHER_V6: Final = BORN_V6 | STORE_V6
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x7


class TransactionType(IntEnum):
    """Where a message stands in a transaction (bits 2 and 3 of ``sysFlag``)."""

    NONE = 0
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12


class Compression(IntEnum):
    """How a compressed body was packed (bits 8 to 10 of ``sysFlag``); old clients, which know zlib
    only, leave 0."""

    NONE = -1
    LEGACY = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


@dataclass(frozen=True, slots=True)
class Message:
    """One message as stored. ``body`` may be compressed, see ``compression``; ``properties`` is the
    text as it came."""

    topic: str
    body: bytes = b""
    properties: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    """Milliseconds since 1970."""
    born_host: Host = LOCALHOST
    store_timestamp: int = 0
    """Milliseconds since 1970."""
    store_host: Host = LOCALHOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1
    body_crc: int | None = None
    """None: computed when it is encoded."""

    @property
    def compression(self) -> Compression | int:
        """How the body is packed; a plain number is a kind that no version knows."""
        if not self.sys_flag & SysFlag.COMPRESSED:
            return Compression.NONE
        kind = self.sys_flag >> COMPRESSION_SHIFT & COMPRESSION_MASK
        return Compression(kind) if kind <= Compression.ZLIB else kind

    @property
    def transaction(self) -> TransactionType:
        return TransactionType(self.sys_flag & TransactionType.ROLLBACK)

    @property
    def offset_id(self) -> OffsetId:
        """The broker's id of this message."""
        return OffsetId(self.store_host, self.physical_offset)

    def property_map(self) -> dict[str, str]:
        """The properties as a map; the later of two with one name."""
        return parse_properties(self.properties)

    def has_key(self, topic: str, key: str) -> bool:
        """Whether it is of this topic, and found by this key in an index."""
        return self.topic == topic and key in keys_of(self.property_map())

    def moved(self, physical_offset: int) -> Message:
        """The same message at another place in the log, as DLedger's append hook makes it."""
        return replace(self, physical_offset=physical_offset)


def message_size(message: Message) -> int:
    """Bytes of the encoded message."""
    hosts = 12 * (message.born_host.is_v6 + message.store_host.is_v6)
    topic, properties = len(message.topic.encode()), len(message.properties.encode())
    return MIN_MESSAGE + hosts + (message.version == 2) + len(message.body) + topic + properties


def encode_message(message: Message) -> bytes:
    """The bytes in a commit log. The bits of ``sys_flag`` for IPv6 follow the hosts.

    Raises:
        ValueError: topic, body or properties are longer than the format or a broker allows.
    """
    topic, properties = message.topic.encode(), message.properties.encode()
    if message.version not in (1, 2):
        raise ValueError(f"messages have version 1 or 2, not {message.version}")
    magic = MAGIC_V1 if message.version == 1 else MAGIC_V2
    for what, size, limit in (
        ("topic", len(topic), MAX_TOPIC[magic]),
        ("body", len(message.body), MAX_BODY),
        ("properties", len(properties), MAX_PROPERTIES),
    ):
        if size > limit:
            raise ValueError(
                f"the {what} has {size:,} bytes; {limit:,} are allowed in version {message.version}"
            )
    sys_flag = int(message.sys_flag) & ~EITHER_V6
    sys_flag |= BORN_V6 if message.born_host.is_v6 else 0
    sys_flag |= STORE_V6 if message.store_host.is_v6 else 0
    crc = crc32(message.body) & CRC_MASK if message.body_crc is None else message.body_crc
    head = message_size(message), magic, crc, message.queue_id, message.flag
    place = message.queue_offset, message.physical_offset
    times = message.reconsume_times, message.prepared_transaction_offset
    parts = (
        HEAD.pack(*head, *place, sys_flag, message.born_timestamp),
        message.born_host.encode(),
        INT64.pack(message.store_timestamp),
        message.store_host.encode(),
        TIMES.pack(*times, len(message.body)),
        message.body,
        bytes((len(topic),)) if message.version == 1 else INT16.pack(len(topic)),
        topic,
        INT16.pack(len(properties)),
        properties,
    )
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of one message begin and end, as byte positions in the buffer."""

    body: int
    body_end: int
    topic: int
    topic_end: int
    properties: int
    end: int


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The extent of a message by its first 112 bytes."""

    size: int
    body: int
    """Where the body begins, as a byte position in the buffer."""
    body_size: int
    wide: bool
    """Version 2: the topic's size has two bytes."""


def read_head(view: Buffer, at: int, room: int) -> MessageHead:
    """Size and body of the message at ``at``, which has at most ``room`` bytes; the buffer must
    hold the first ``MOST_HEAD`` of these.

    Raises:
        FormatError: magic or sizes cannot be.
    """
    if room < MIN_MESSAGE:
        raise FormatError(f"{room} bytes are too few for a message")
    size, magic, *_, sys_flag, _ = HEAD.unpack_from(view, at)
    if magic not in MAX_TOPIC:
        raise FormatError(f"magic {magic:08x} is no message's")
    if not MIN_MESSAGE <= size <= room:
        raise FormatError(
            f"size {size:,} is not between {MIN_MESSAGE} and the {room:,} bytes that are left"
        )
    end = at + size
    body = at + MIN_MESSAGE - 3 + 12 * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))
    wide = magic == MAGIC_V2
    body_size = INT32.unpack_from(view, body - 4)[0] if body <= end else -1
    tail = end - body - body_size - 3 - wide
    if body_size < 0 or not 0 <= tail <= MAX_TOPIC[magic] + MAX_PROPERTIES:
        raise FormatError(f"body size {body_size:,} does not fit a message of {size:,} bytes")
    return MessageHead(size, body, body_size, wide)


def lay_out(view: Buffer, at: int, room: int) -> Layout:
    """Follow the sizes of the message at ``at``, which has at most ``room`` bytes.

    Raises:
        FormatError: magic or sizes cannot be.
    """
    head = read_head(view, at, room)
    size, body, wide = head.size, head.body, head.wide
    end = at + size
    topic = body + head.body_size + 1 + wide
    topic_size = INT16.unpack_from(view, topic - 2)[0] if wide else view[topic - 1]
    properties = topic + topic_size + 2
    if not 0 <= topic_size <= MAX_TOPIC[MAGIC_V2 if wide else MAGIC_V1] or properties > end:
        raise FormatError(f"topic size {topic_size} does not fit a message of {size:,} bytes")
    properties_size = INT16.unpack_from(view, properties - 2)[0]
    if properties_size < 0 or properties + properties_size != end:
        raise FormatError(
            f"properties size {properties_size} does not end where the message's {size:,} bytes do"
        )
    return Layout(body, body + head.body_size, topic, properties - 2, properties, end)


def check_contents(view: Buffer, at: int, layout: Layout) -> None:
    """Check the parts behind the sizes: the body's CRC, and that topic and properties are text.

    Raises:
        FormatError: one of them is not as it was written.
    """
    stored = INT32.unpack_from(view, at + 8)[0]
    if layout.body_end > layout.body:
        actual = crc32(view[layout.body : layout.body_end]) & CRC_MASK
        if actual != stored:
            raise FormatError(
                f"the body's CRC is {actual:08x}, the message says {stored & 0xFFFF_FFFF:08x}"
            )
    for what, begin, end in (
        ("topic is", layout.topic, layout.topic_end),
        ("properties are", layout.properties, layout.end),
    ):
        try:
            bytes(view[begin:end]).decode()
        except UnicodeDecodeError:
            raise FormatError(f"the {what} not UTF-8") from None


def decode_message(data: Buffer, at: int = 0, *, check: bool = True) -> Message:
    """The message at byte ``at``; the bytes behind it do not matter.

    Args:
        check: compare the body with its CRC. Without, a damaged body comes back as it is.

    Raises:
        FormatError: the bytes there are no message; it says why.
    """
    view = memoryview(data)
    layout = lay_out(view, at, len(view) - at)
    if check:
        check_contents(view, at, layout)
    _, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = HEAD.unpack_from(
        view, at
    )
    born_end = at + HEAD_SIZE + (20 if sys_flag & SysFlag.BORN_HOST_V6 else 8)
    store_end = layout.body - TIMES.size
    reconsumed, prepared, _ = TIMES.unpack_from(view, store_end)
    try:
        topic = bytes(view[layout.topic : layout.topic_end]).decode()
        properties = bytes(view[layout.properties : layout.end]).decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"topic or properties are not UTF-8: {e}") from None
    return Message(
        topic=topic,
        body=bytes(view[layout.body : layout.body_end]),
        properties=properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=Host.decode(bytes(view[at + HEAD_SIZE : born_end])),
        store_timestamp=INT64.unpack_from(view, born_end)[0],
        store_host=Host.decode(bytes(view[born_end + 8 : store_end])),
        reconsume_times=reconsumed,
        prepared_transaction_offset=prepared,
        version=1 if magic == MAGIC_V1 else 2,
        body_crc=crc,
    )


def encode_blank(remaining: int) -> bytes:
    """The 8 bytes that close a commit log file with ``remaining`` bytes left; the bytes behind them
    do not count."""
    return struct.pack(">iI", remaining, BLANK_MAGIC)


def encode_dledger_blank(remaining: int) -> bytes:
    """The same for DLedger's data file, where magic comes first."""
    return struct.pack(">ii", DLEDGER_BLANK_MAGIC, remaining)
