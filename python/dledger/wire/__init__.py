"""Bytes on a connection: frames, msgpack headers, raw payloads. Pure: bytes in, messages out."""

from dledger.wire.codec import Message, decode, decode_command, encode, encode_command
from dledger.wire.framing import HELLO_LIMITS, PREFIX_SIZE, Frame, FrameReader, Limits

__all__ = [
    "HELLO_LIMITS",
    "PREFIX_SIZE",
    "Frame",
    "FrameReader",
    "Limits",
    "Message",
    "decode",
    "decode_command",
    "encode",
    "encode_command",
]
