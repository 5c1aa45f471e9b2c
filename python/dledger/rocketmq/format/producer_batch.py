"""The body that a producer sends with many messages at once (request 320): items one behind the
other.

::

    | size | magic 0 | bodyCRC 0 | flag | bodySize | body | propertiesSize (16 bits) | properties |

The broker makes a message of its own of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dledger.errors import FormatError
from dledger.rocketmq.format.properties import MAX_PROPERTIES
from dledger.types import Buffer

HEAD: Final = struct.Struct(">iiiii")
INT16: Final = struct.Struct(">h")
MIN_ITEM: Final = HEAD.size + INT16.size


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a producer's batch; producers send ``magic`` and ``body_crc`` as zero."""

    body: bytes
    properties: str = ""
    flag: int = 0
    magic: int = 0
    body_crc: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of the request.

    Raises:
        ValueError: the properties of an item are over 32,767 bytes.
    """
    parts = []
    for item in items:
        properties = item.properties.encode()
        if len(properties) > MAX_PROPERTIES:
            raise ValueError(
                f"properties of {len(properties):,} bytes; a message holds {MAX_PROPERTIES:,}"
            )
        size = MIN_ITEM + len(item.body) + len(properties)
        parts += [
            HEAD.pack(size, item.magic, item.body_crc, item.flag, len(item.body)),
            item.body,
            INT16.pack(len(properties)),
            properties,
        ]
    return b"".join(parts)


def decode_batch(data: Buffer) -> list[BatchItem]:
    """All items of a request's body.

    Raises:
        FormatError: the sizes do not add up; it names the byte.
    """
    view, items, at = memoryview(data), [], 0
    while at < len(view):
        left = len(view) - at
        if left < MIN_ITEM:
            raise FormatError(f"batch, byte {at}: {left} bytes are too few for a message")
        size, magic, crc, flag, body_size = HEAD.unpack_from(view, at)
        if not MIN_ITEM <= size <= left or not 0 <= body_size <= size - MIN_ITEM:
            raise FormatError(
                f"batch, byte {at}: size {size} and body size {body_size} with {left} bytes left"
            )
        body, end = at + HEAD.size, at + size
        properties = body + body_size + INT16.size
        if INT16.unpack_from(view, properties - INT16.size)[0] != end - properties:
            raise FormatError(f"batch, byte {at}: the properties do not end where the message does")
        try:
            text = bytes(view[properties:end]).decode()
        except UnicodeDecodeError:
            raise FormatError(f"batch, byte {at}: the properties are not UTF-8") from None
        items.append(BatchItem(bytes(view[body : body + body_size]), text, flag, magic, crc))
        at = end
    return items
