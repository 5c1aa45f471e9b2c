"""The first 64 bytes of every body that dledger writes; nodes read them without touching the
records.

::

    byte 0      2         3      4       5       6     8          12          16      20
         | "DB" | version | kind | codec | flags | 0 0 | topic id | partition | count |
         20               24           32          40            48
         | schema version | first time | last time | producer id | producer epoch |
         52         56         64
         | reserved | sequence | payload

All numbers are big-endian, times in microseconds since 1970 UTC. ``kind`` DATA: the payload is
Arrow (see ``dledger.records.body.records``); COMMAND: the payload is a command in msgpack (see
``dledger.protocol.wire``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from itertools import islice, pairwise
from typing import Final

from dledger.compiled import compiled
from dledger.errors import ProtocolError
from dledger.interrupts import is_interrupt
from dledger.types import Buffer, slots_dataclass

BODY_HEADER: Final = struct.Struct(">2sBBBBHIIIIqqQIIQ")
BODY_HEADER_SIZE: Final = 64
assert BODY_HEADER.size == BODY_HEADER_SIZE
BODY_MAGIC: Final = b"DB"
BODY_VERSION: Final = 1
_destination: Final = struct.Struct(">5xB2xI28xQ").unpack_from
"""Of the same bytes: flags, topic id, producer id."""
_plain_fields: Final = struct.Struct(">16sIIqqQ").unpack_from
"""Of the same bytes, the fields that tell one plain batch from the next: magic to partition in one
piece, count, schema version, first and last time, and the producer."""

_count: Final = struct.Struct(">16xI").unpack_from


class BodyKind(IntEnum):
    """The kind of a body."""

    DATA = 1
    COMMAND = 2


class Codec(IntEnum):
    """How the Arrow buffers of the payload are compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class Flag(IntFlag):
    """Which optional columns the payload has, and whether offsets wait for a COMMIT."""

    STAGED = 1
    """``producer_id`` is a stage id: the batch gets its offsets from the transaction's COMMIT."""
    HAS_KEYS = 2
    HAS_HEADERS = 4
    HAS_TIMES = 8
    """The records' times differ; otherwise all have the header's ``first_time``."""


# looked up, because calling an enum costs as much as the rest of `decode_header`
_KINDS: Final = {int(kind): kind for kind in BodyKind}
_CODECS: Final = {int(codec): codec for codec in Codec}
_FLAGS: Final = tuple(Flag(flags) for flags in range(16))
_FLAGS_END: Final = len(_FLAGS)


@slots_dataclass()
class BodyHeader:
    """The catalog's view of a body."""

    kind: BodyKind
    topic_id: int = 0
    partition: int = 0
    count: int = 0
    first_time_us: int = 0
    last_time_us: int = 0
    """Smallest and largest record time of the batch."""
    producer_id: int = 0
    """0: no session, a retry may double."""
    producer_epoch: int = 0
    sequence: int = 0
    """Number of the batch in its producer session and topic partition, from 0, +1 each."""
    codec: Codec = Codec.NONE
    flags: Flag = _FLAGS[0]
    schema_version: int = 0


def encode_header(header: BodyHeader) -> bytes:
    """The 64 bytes in front of the payload."""
    return BODY_HEADER.pack(
        BODY_MAGIC,
        BODY_VERSION,
        header.kind,
        header.codec,
        header.flags,
        0,
        header.topic_id,
        header.partition,
        header.count,
        header.schema_version,
        header.first_time_us,
        header.last_time_us,
        header.producer_id,
        header.producer_epoch,
        0,
        header.sequence,
    )


def destination(body: Buffer) -> tuple[int, int, int]:
    """Flags, topic id and producer id of a body that was not looked at yet, and may be none.

    Raises:
        ValueError: it is too short for a header.
    """
    if len(body) < BODY_HEADER_SIZE:
        raise ValueError(f"a body has at least {BODY_HEADER_SIZE} bytes, not {len(body)}")
    found: tuple[int, int, int] = _destination(body)
    return found


@compiled
def plain_batches(bodies: Sequence[Buffer], begin: int) -> list[tuple[int, int]]:
    """(records, newest time in microseconds) of each body from the place ``begin`` on that is a
    batch like the first of them: of the same partition, kind, codec and flags, without producer and
    schema version. What that one is, `decode_header` tells. Empty where there are not two of
    them."""
    found: list[tuple[int, int]] = []
    same = b""
    for body in islice(bodies, begin, None):
        if len(body) < BODY_HEADER_SIZE:
            break
        kind, count, schema_version, _, last_us, producer_id = _plain_fields(body)
        if (found and kind != same) or producer_id or schema_version or not count:
            break
        same = kind
        found.append((count, last_us))
    return found if len(found) > 1 else []


@compiled
def plain_batches_of_run(
    data: Buffer, starts: Sequence[int], begin: int, header_size: int
) -> list[tuple[int, int]]:
    """`plain_batches` of bodies that lie in one piece of bytes, each behind a header of so many;
    see `dledger.protocol.messages.entry_bytes`."""
    found: list[tuple[int, int]] = []
    same = b""
    for start, stop in pairwise(islice(starts, begin, None)):
        if stop - start < header_size + BODY_HEADER_SIZE:
            break
        kind, count, schema_version, _, last_us, producer_id = _plain_fields(
            data, start + header_size
        )
        if (found and kind != same) or producer_id or schema_version or not count:
            break
        same = kind
        found.append((count, last_us))
    return found if len(found) > 1 else []


def record_count(body: Buffer) -> int:
    """How many records a body says that it has; it is as long as a header at least."""
    count: int = _count(body)[0]
    return count


def read_header(body: Buffer) -> BodyHeader:
    """`decode_header` for a caller that was promised a body.

    Raises:
        ProtocolError: this is none.
    """
    try:
        return decode_header(body)
    except ValueError as error:
        if is_interrupt(error):
            raise
        raise ProtocolError(str(error)) from error


def decode_header(body: Buffer) -> BodyHeader:
    """Read the header of a body, leaving the payload alone.

    Raises:
        ValueError: this is no body of dledger's, or of a newer version.
    """
    if len(body) < BODY_HEADER_SIZE:
        raise ValueError(f"a body has at least {BODY_HEADER_SIZE} bytes, not {len(body)}")
    (
        magic,
        version,
        kind,
        codec,
        flags,
        _,
        topic_id,
        partition,
        count,
        schema_version,
        first,
        last,
        producer_id,
        epoch,
        _,
        sequence,
    ) = BODY_HEADER.unpack_from(body)
    if magic != BODY_MAGIC:
        raise ValueError(f"a body starts with {BODY_MAGIC!r}, not {bytes(magic)!r}")
    if version != BODY_VERSION:
        raise ValueError(
            f"body version {version} is newer than this program's {BODY_VERSION}: upgrade dledger"
        )
    if kind not in _KINDS or codec not in _CODECS or flags >= _FLAGS_END:
        raise ValueError(
            f"a body of kind {kind}, codec {codec}, flags {flags}: this program knows none such"
        )
    return BodyHeader(
        _KINDS[kind],
        topic_id,
        partition,
        count,
        first,
        last,
        producer_id,
        epoch,
        sequence,
        _CODECS[codec],
        _FLAGS[flags],
        schema_version,
    )
