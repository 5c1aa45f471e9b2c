"""Compressed bodies: zlib by default, LZ4 and ZSTD frames since RocketMQ 5."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from dledger.errors import FormatError
from dledger.rocketmq.format.message import COMPRESSION_SHIFT, Compression, SysFlag

MAX_UNPACKED: Final = 64 << 20
"""Bytes that a body may have when it is unpacked; more is taken for an attack."""
CODECS: Final = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


def compression_flags(kind: Compression) -> int:
    """The bits of ``sysFlag`` for a body that is packed in this way."""
    if kind is Compression.NONE:
        return 0
    return int(SysFlag.COMPRESSED) | kind << COMPRESSION_SHIFT


def compress(body: bytes, kind: Compression) -> bytes:
    """Pack a body."""
    if kind is Compression.NONE:
        return body
    if kind in CODECS:
        packed: bytes = pa.Codec(CODECS[kind]).compress(body, asbytes=True)
        return packed
    return zlib.compress(body)


def unpack(body: bytes, kind: Compression | int, *, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack a body.

    Args:
        body: as stored.
        kind: ``Message.compression``.
        limit: bytes that it may have unpacked; no more than that is ever held.

    Raises:
        FormatError: it is damaged, larger than the limit, or packed in an unknown way.
    """
    if kind == Compression.NONE:
        return body
    if kind in CODECS:
        unpacked, whole = unpack_frame(body, CODECS[Compression(kind)], limit)
    elif kind in (Compression.LEGACY, Compression.ZLIB):
        unpacked, whole = unpack_zlib(body, limit)
    else:
        raise FormatError(
            f"body compression {int(kind)} is not known; 1 is LZ4, 2 ZSTD, 3 and 0 zlib"
        )
    if len(unpacked) > limit:
        raise FormatError(f"a body of {len(body):,} bytes unpacks to more than {limit:,}")
    if not whole:
        raise FormatError(f"the compressed body of {len(body):,} bytes has no end")
    return unpacked


def unpack_zlib(body: bytes, limit: int) -> tuple[bytes, bool]:
    """Up to one byte more than the limit, and whether the stream ended."""
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(body, limit + 1)
    except zlib.error as e:
        raise FormatError(f"the body does not unpack: {e}") from None
    return unpacked, stream.eof


def unpack_frame(body: bytes, codec: str, limit: int) -> tuple[bytes, bool]:
    """The same for the formats that Arrow knows; it raises by itself where a frame has no end."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            return stream.read(limit + 1), True
    except (OSError, pa.ArrowException) as e:
        raise FormatError(f"the body does not unpack: {e}") from None
