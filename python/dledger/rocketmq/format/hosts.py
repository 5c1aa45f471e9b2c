"""Addresses in a message, and the two kinds of message ids that are made of them.

A host is 4 or 16 address bytes and the port as 32 bits. The *offset id* is the broker's: its host
and the message's place in its commit log. The *unique id* is the client's (property ``UNIQ_KEY``);
the store does not look into it.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import astuple, dataclass
from typing import Final

from dledger.errors import FormatError

PORT: Final = struct.Struct(">i")
PLACE: Final = struct.Struct(">iq")
UNIQUE: Final = struct.Struct(">HIIH")
ID: Final = re.compile("[0-9a-fA-F]{32}(?:[0-9a-fA-F]{24})?")


@dataclass(frozen=True, slots=True)
class Host:
    """An address: ``ip`` has 4 bytes or 16, the port is a signed 32-bit number as Java writes
    it."""

    ip: bytes
    port: int

    def __post_init__(self) -> None:
        if len(self.ip) not in (4, 16):
            raise ValueError(f"an address has 4 bytes or 16, not {len(self.ip)}")

    @property
    def is_v6(self) -> bool:
        return len(self.ip) == 16

    @staticmethod
    def of(address: str, port: int) -> Host:
        """From text such as ``10.0.0.1`` or ``fd00::1``."""
        return Host(ipaddress.ip_address(address).packed, port)

    def encode(self) -> bytes:
        """8 bytes, or 20."""
        return self.ip + PORT.pack(self.port)

    @staticmethod
    def decode(data: bytes) -> Host:
        """From 8 bytes or 20.

        Raises:
            FormatError: it has another length.
        """
        if len(data) not in (8, 20):
            raise FormatError(f"a host has 8 bytes or 20, not {len(data)}")
        return Host(data[:-4], *PORT.unpack(data[-4:]))

    def __str__(self) -> str:
        text = str(ipaddress.ip_address(self.ip))
        return f"[{text}]:{self.port}" if self.is_v6 else f"{text}:{self.port}"


LOCALHOST: Final = Host(b"\x7f\0\0\x01", 0)


@dataclass(frozen=True, slots=True)
class OffsetId:
    """The broker's message id: upper-case hex of host and physical offset, 32 characters or 56."""

    host: Host
    physical_offset: int

    def __str__(self) -> str:
        return (self.host.ip + PLACE.pack(self.host.port, self.physical_offset)).hex().upper()

    @staticmethod
    def parse(text: str) -> OffsetId:
        """From its text, in either case.

        Raises:
            FormatError: it is no such id.
        """
        data = _id_bytes(text, "an offset message id")
        port, offset = PLACE.unpack(data[-12:])
        return OffsetId(Host(data[:-12], port), offset)


@dataclass(frozen=True, slots=True)
class UniqueId:
    """The Java client's message id: its address, process, class loader, milliseconds since the
    month began (in the client's time zone), and a counter. Other clients may put anything there:
    ``parse`` then says so."""

    ip: bytes
    process: int
    loader: int
    elapsed_ms: int
    counter: int

    def __str__(self) -> str:
        _, *numbers = astuple(self)
        return (self.ip + UNIQUE.pack(*numbers)).hex().upper()

    @staticmethod
    def parse(text: str) -> UniqueId:
        """From its text.

        Raises:
            FormatError: it does not have the length that the Java client gives it, or is not
                hexadecimal.
        """
        data = _id_bytes(text, "a Java client's message id")
        return UniqueId(data[:-12], *UNIQUE.unpack(data[-12:]))


def _id_bytes(text: str, what: str) -> bytes:
    """Bytes of an id in plain hexadecimal digits; ``bytes.fromhex`` alone would let blanks pass."""
    if not ID.fullmatch(text):
        raise FormatError(f"{what} has 32 or 56 hexadecimal digits, not {text!r}")
    return bytes.fromhex(text)
