"""How a client copies a consistent state out of a node: a view that is kept for it, as of one
applied entry, of which it reads the log and the image (`dledger.node.snapshot.image`)."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.protocol.messages.client import Response
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.membership import Ancestors
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Term, slots_dataclass


@slots_dataclass(kw_only=True)
class OpenBackupRequest:
    """Keep the present state of this node, whatever its role, for this client."""


@slots_dataclass(kw_only=True)
class OpenBackupResponse(Response):
    """SUCCESS with a view: it lasts while its connection is open and something is read of it, and
    holds retention back that long. LEADER_NOT_READY: there is no applied entry yet.
    LIMIT_REACHED: so many others are open at this node. UNSUPPORTED: the group's log has no topics
    (``commit_log``)."""

    view: int = -1
    group: str = ""
    group_id: str = ""
    ancestors: Ancestors = ()
    members: tuple[NodeId, ...] = ()
    segment_bytes: int = 0
    index_file_bytes: int = 0
    index: Index = NO_INDEX
    """The state is as of this entry, which is committed."""
    term: Term = NO_TERM
    begin_index: Index = NO_INDEX
    """The first entry of the log; ``begin_pos`` and ``begin_chain`` as in `LogEnd`."""
    begin_pos: int = 0
    begin_chain: int = 0
    end_pos: int = 0
    """Where the node's log ends, in bytes: about as far as the view's."""
    image_bytes: int = 0
    time_ms: int = 0
    """Of the node's clock."""


@slots_dataclass(kw_only=True)
class ReadBackupLogRequest:
    """Entries of a view's log from ``first`` on, about ``max_bytes`` of them."""

    view: int
    first: Index
    max_bytes: int


@slots_dataclass(kw_only=True)
class ReadBackupLogResponse(Response):
    """SUCCESS with at least one entry. OFFSET_OUT_OF_RANGE: the view is not kept any more."""

    entries: Sequence[Entry] = ()


@slots_dataclass(kw_only=True)
class ReadBackupImageRequest:
    """Bytes of a view's image from ``offset`` on, up to ``max_bytes``."""

    view: int
    offset: int
    max_bytes: int


@slots_dataclass(kw_only=True)
class ReadBackupImageResponse(Response):
    """SUCCESS with bytes. OFFSET_OUT_OF_RANGE: the view is not kept any more, or what it is about
    was deleted."""

    data: bytes = b""
