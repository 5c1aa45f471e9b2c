"""The frame of an append's success, which a leader sends for each of them: packed without the
general way. `decode` takes it as any other.

Its numbers have a fixed width, so that all but three fields of it are always the same.
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.checksum import crc32
from dledger.protocol.messages.client import AppendResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.wire.framing import pack_frame
from dledger.protocol.wire.message_numbers import KINDS

_prefix = struct.Struct(">8sI8s").pack
"""Up to the CRC: what stands in front of the request id, the id, and what stands behind it."""
_crc = struct.Struct(">I").pack
_header = struct.Struct(">5sBqBq").pack
"""An array of code, message and leader, and two 64-bit integers."""
_FIELDS: Final = bytes((0x95, 0xCC, Code.SUCCESS, 0xA0, 0xA0))
_INT64: Final = 0xD3
_ANY: Final = pack_frame(
    KINDS[AppendResponse], 0, _header(_FIELDS, _INT64, 0, _INT64, 0), payload_len=0
)
_BEFORE: Final = _ANY[:8]
_BEHIND: Final = _ANY[12:20]


def pack_append_response(request_id: int, base_offset: int, index: int) -> bytes:
    """The frame of ``AppendResponse(code=SUCCESS, base_offset=base_offset, index=index)``."""
    prefix = _prefix(_BEFORE, request_id, _BEHIND)
    header = _header(_FIELDS, _INT64, base_offset, _INT64, index)
    return prefix + _crc(crc32(header, crc32(prefix))) + header
