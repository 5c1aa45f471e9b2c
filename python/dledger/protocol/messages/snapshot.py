"""How a node gets the state of entries of which no member has a copy any more (DLedger:
InstallSnapshot).

The state is one run of bytes, an image: a JSON head, the catalog's snapshot, the log's first entry,
and the rows of the catalog's tables. It is fetched piece by piece, each asked for when the one
before it is written, so that neither side holds more than one of them.
"""

from __future__ import annotations

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import MemberMessage
from dledger.types import Index, slots_dataclass


@slots_dataclass(kw_only=True)
class SnapshotRequest(MemberMessage):
    """Send up to ``max_bytes`` of the image of the state as of entry ``last_included_index`` from
    byte ``offset`` on; -1: begin with an image of the present state."""

    last_included_index: Index
    offset: int
    max_bytes: int


@slots_dataclass(kw_only=True)
class SnapshotResponse(MemberMessage):
    """SUCCESS with a piece: ``crc`` is its CRC-32, ``size`` that of the whole image. NOT_LEADER,
    LEADER_NOT_READY: ask the leader, or later. INDEX_LESS_THAN_LOCAL_BEGIN: that image is not there
    any more, begin with another one."""

    code: Code
    last_included_index: Index
    offset: int
    size: int = 0
    crc: int = 0
    data: bytes = b""


InstallMessage = SnapshotRequest | SnapshotResponse
