"""Frames: the 24 bytes in front of every message, and the limits that are checked before anything
is allocated.

::

    byte 0      2         3       4      6          8            12           16            20
         | "DL" | version | flags | kind | reserved | request id | header len | payload len | crc |
         24
         | header | payload

All numbers are big-endian. ``crc`` is the CRC-32 of the 20 bytes before it and of the header, so
that a wrong length is never believed. The header is msgpack (see `dledger.protocol.wire.codec`);
the payload is raw and has its own checksums.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from dledger.checksum import crc32
from dledger.compiled import compiled
from dledger.config import MIB
from dledger.errors import FrameTooLarge, ProtocolError
from dledger.types import Buffer

PREFIX: Final = struct.Struct(">2sBBHHIIII")
PREFIX_SIZE: Final = 24
assert PREFIX.size == PREFIX_SIZE
CHECKED: Final = 20
"""Bytes of the prefix that its CRC covers."""
FRAME_MAGIC: Final = b"DL"
FRAME_VERSION: Final = 1
_HEAD: Final = struct.Struct(">2sBBHHIII")
_fields_at = struct.Struct(">8sIIII").unpack_from
"""The same prefix, with magic to ``reserved`` in one piece."""
_BEGIN: Final = bytes((*FRAME_MAGIC, FRAME_VERSION, 0))
_RESERVED: Final = bytes(2)
_CRC: Final = struct.Struct(">I")
_U32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """The largest frame that is taken."""

    header_bytes: int = 1 * MIB
    payload_bytes: int = 64 * MIB
    """Above the largest push and the largest fetch; a server lowers it to the limit of its group's
    settings."""


HELLO_LIMITS: Final = FrameLimits(header_bytes=64 << 10, payload_bytes=0)
"""Before a connection has said hello."""


class Frame(NamedTuple):
    """One whole frame, its header checked but not decoded."""

    kind: int
    request_id: int
    header: Buffer
    payload: memoryview


def pack_frame(kind: int, request_id: int, header: bytes, payload_len: int) -> bytes:
    """Prefix and header of a frame; the payload goes right behind."""
    if not 0 <= payload_len <= _U32:
        raise FrameTooLarge(f"a payload of {payload_len} bytes does not fit a frame")
    head = _HEAD.pack(
        FRAME_MAGIC, FRAME_VERSION, 0, kind, 0, request_id & _U32, len(header), payload_len
    )
    return head + _CRC.pack(crc32(head + header)) + header


def parse_prefix(data: Buffer, at: int, limits: FrameLimits) -> tuple[int, int, int, int, int]:
    """Read and check the prefix at ``at``: kind, request id, length of header and payload, CRC. To
    check that is the caller's, by `check_crc`, once the header is there.

    Raises:
        ProtocolError: these bytes are no frame of this version.
        FrameTooLarge: a length is over the limit.
    """
    magic, version, flags, kind, reserved, request_id, header_len, payload_len, crc = (
        PREFIX.unpack_from(data, at)
    )
    if magic != FRAME_MAGIC:
        raise ProtocolError(f"a frame starts with {FRAME_MAGIC!r}, not {bytes(magic)!r}")
    if version != FRAME_VERSION:
        raise ProtocolError(
            f"frame version {version}, this program speaks {FRAME_VERSION}: upgrade the older side"
        )
    if flags or reserved:
        raise ProtocolError(f"frame flags {flags:#x} and reserved {reserved:#x} must be 0")
    if header_len > limits.header_bytes:
        raise FrameTooLarge(
            f"a frame header of {header_len} bytes is over the limit of {limits.header_bytes}"
        )
    if payload_len > limits.payload_bytes:
        raise FrameTooLarge(
            f"a frame payload of {payload_len} bytes is over the limit of {limits.payload_bytes}"
        )
    return kind, request_id, header_len, payload_len, crc


def check_crc(prefix: Buffer, header: Buffer, crc: int) -> None:
    """Check the CRC over ``prefix``, the first 20 bytes of a frame, and its header.

    Raises:
        ProtocolError: they do not match it.
    """
    found = crc32(header, crc32(prefix))
    if found != crc:
        raise ProtocolError(
            f"frame CRC is {found:#010x} where the frame says {crc:#010x}: damaged on its way"
        )


_make: Final = partial(tuple.__new__, Frame)
"""A quarter of the time of ``Frame(...)``."""


@compiled
def take_frames(
    view: memoryview,
    at: int,
    most: int,
    largest_header: int,
    largest: int,
    make: Callable[[tuple[int, int, Buffer, memoryview]], Frame],
    frames: list[Frame],
) -> int:
    """Add to ``frames`` those from ``at`` on, up to ``most``, that are whole and sound, with a
    header of up to ``largest_header`` bytes and a payload below ``largest``. Neighbours with equal
    headers get one and the same. Returns where the next one begins, which may be one of another
    version, too large or unsound."""
    size, lead, header, kind = len(view), b"", b"", 0
    while most > 0 and size - at >= PREFIX_SIZE:
        found, request_id, header_len, payload_len, crc = _fields_at(view, at)
        body = at + PREFIX_SIZE + header_len
        end = body + payload_len
        if end > size or header_len > largest_header or payload_len >= largest:
            break
        if found != lead or view[at + PREFIX_SIZE : body] != header:
            if found[:4] != _BEGIN or found[6:] != _RESERVED:
                break
            lead, header = found, bytes(view[at + PREFIX_SIZE : body])
            kind = int.from_bytes(found[4:6], "big")
        if crc32(header, crc32(view[at : at + CHECKED])) != crc:
            break
        payload = memoryview(bytes(view[body:end])) if payload_len else _EMPTY
        frames.append(make((kind, request_id, header, payload)))
        at = end
        most -= 1
    return at


class FrameReader:
    """Bytes in, frames out. Small frames are taken from the fed bytes; each payload is copied once.

    A payload of LARGE bytes or more that is not there yet gets a buffer of its own: the reader's
    owner then receives straight into `wanted`, and says how much with `received`.
    """

    LARGE: Final = 64 << 10

    def __init__(
        self,
        limits: FrameLimits,
        first: FrameLimits | None = None,
        *,
        admits: Callable[[int], bool] | None = None,
        memory: Callable[[int], Buffer] = bytearray,
    ) -> None:
        """``first``: the limits of the first frame alone. ``admits`` is asked before a large
        payload, or a header as large, that is not there yet is waited for: without its consent the
        frame stays in `rest`, as far as it came, and ``refused`` is set. ``memory`` makes the
        buffer of a large payload, of so many bytes."""
        self.refused = False
        self._limits = limits
        self._small = min(self.LARGE, limits.payload_bytes + 1)
        self._first = first
        self._admits = admits
        self._memory = memory
        self.rest: bytes | memoryview = b""
        """Bytes held that are no whole frame yet; the next bytes belong right behind them."""
        self.has_more = False
        """There may be whole frames in `rest` that were not taken yet."""
        self.large: memoryview | None = None
        """The buffer of a large payload that is under way."""
        self._filled = 0
        self.begun: Frame | None = None
        """The frame of that payload: the rest of it is whole."""

    @property
    def in_frame(self) -> bool:
        """Whether half a frame is held."""
        return bool(self.rest) or self.large is not None

    @property
    def held(self) -> int:
        """Bytes of memory that a frame takes which has begun and not ended."""
        return len(self.rest) + (0 if self.large is None else len(self.large))

    @property
    def wanted(self) -> memoryview | None:
        """The part of a large payload that is still to come; None when `feed` wants the next
        bytes."""
        return None if self.large is None else self.large[self._filled :]

    def forget(self) -> None:
        """Let go of the held bytes, and of who is asked for room: the stream has ended."""
        self.rest, self.large, self.begun, self._admits = b"", None, None, None
        self.refused = self.has_more = False

    def received(self, size: int) -> Frame | None:
        """``size`` bytes were put into `wanted`; the frame when that was the last of them."""
        self._filled += size
        if self.large is None or self._filled < len(self.large):
            return None
        frame, self.large, self.begun = self.begun, None, None
        return frame

    def feed(self, data: Buffer) -> list[Frame]:
        """All frames that end in ``data``.

        Raises:
            ProtocolError, FrameTooLarge: garbage; nothing more can be read from this stream.
        """
        frames: list[Frame] = []
        while data and self.large is not None:
            wanted = self.large[self._filled :]
            size = min(len(wanted), len(data))
            wanted[:size] = data[:size]
            data = data[size:]
            if frame := self.received(size):
                frames.append(frame)
        if self.rest:
            data = b"".join((self.rest, data))
            self.rest = b""
        self.parse(memoryview(data), frames)
        return frames

    def parse(self, view: memoryview, frames: list[Frame], most: int = sys.maxsize) -> None:
        """Add the frames in ``view``, which starts at a frame's first byte, with `rest` if there is
        any, to ``frames``, until there are ``most``, and keep the rest. Neighbours with equal
        headers get one and the same."""
        self.rest, self.refused, self.has_more = b"", False, False
        at, size = 0, len(view)
        while True:
            if self._first is None:
                more, limits = most - len(frames) if frames else most, self._limits
                at = take_frames(view, at, more, limits.header_bytes, self._small, _make, frames)
            if size - at < PREFIX_SIZE:
                break
            if len(frames) >= most:
                self.has_more = True
                break
            end = self._parse_one(view, at, frames)
            if end == at:
                break
            at = end
        if at < size and self.large is None:  # read-only bytes need no copy
            self.rest = view[at:] if view.readonly else bytes(view[at:])

    def _parse_one(self, view: memoryview, at: int, frames: list[Frame]) -> int:
        """The frame at ``at``, should it be the first one, large, unsound or not there yet; returns
        where the next one begins, ``at`` itself where this one is to be waited for."""
        size, limits = len(view), self._first or self._limits
        kind, request_id, header_len, payload_len, crc = parse_prefix(view, at, limits)
        body = at + PREFIX_SIZE + header_len
        if body > size:
            self._ask(header_len)
            return at
        end = body + payload_len
        if end > size and payload_len < self.LARGE:
            return at
        header = bytes(view[at + PREFIX_SIZE : body])
        check_crc(view[at : at + CHECKED], header, crc)
        if end > size and not self._ask(payload_len):
            return at
        self._first = None
        if end > size:
            self._start_large(kind, request_id, header, payload_len, view[body:])
            return at
        payload = memoryview(bytes(view[body:end])) if payload_len else _EMPTY
        frames.append(Frame(kind, request_id, header, payload))
        return end

    def keep(self, view: memoryview) -> None:
        """Take no frame out of ``view`` for now. Bytes take less memory than frames."""
        self.rest, self.has_more = view if view.readonly else bytes(view), True

    def _ask(self, size: int) -> bool:
        """Whether to wait for so many bytes."""
        if size >= self.LARGE and self._admits is not None and not self._admits(size):
            self.refused = True
            return False
        return True

    def _start_large(
        self, kind: int, request_id: int, header: bytes, size: int, begin: memoryview
    ) -> None:
        buffer = memoryview(self._memory(size))
        buffer[: len(begin)] = begin
        self.large, self._filled = buffer, len(begin)
        self.begun = Frame(kind, request_id, header, buffer.toreadonly())


_EMPTY: Final = memoryview(b"")
