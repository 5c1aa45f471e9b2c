"""Bytes on a connection: frames, msgpack headers, raw payloads. Pure: bytes in, messages out."""

from dledger.protocol.wire.codec import (
    APPEND_KIND,
    Message,
    decode,
    decode_command,
    encode,
    encode_command,
    pack_append_responses,
)
from dledger.protocol.wire.framing import HELLO_LIMITS, PREFIX_SIZE, Frame, FrameLimits, FrameReader

__all__ = [
    "APPEND_KIND",
    "HELLO_LIMITS",
    "PREFIX_SIZE",
    "Frame",
    "FrameLimits",
    "FrameReader",
    "Message",
    "decode",
    "decode_command",
    "encode",
    "encode_command",
    "pack_append_responses",
]
