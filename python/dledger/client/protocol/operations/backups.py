"""Operations of a backup at one node, as generators: `dledger.backup` carries them out."""

from __future__ import annotations

from dledger.client.protocol.client_state import ATTEMPT_MS, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.protocol.messages.backup import (
    OpenBackupRequest,
    OpenBackupResponse,
    ReadBackupImageRequest,
    ReadBackupLogRequest,
)
from dledger.protocol.messages.entry_runs import Entries
from dledger.types import Index


def open_view(address: str) -> Operation[OpenBackupResponse]:
    """A view of the present state of the node at ``address``. It lasts as long as the connection,
    which is the first one that the next operation of the same transport takes.

    Raises:
        Unavailable: the node does not answer, or has nothing yet.
        LimitReached: too many backups are under way there.
        ConfigError: the group's log has no topics.
    """
    terms = CallPolicy(what=f"open a backup at {address}", address=address, since="0.2.0")
    answer, _ = yield Request(OpenBackupRequest(), terms, (), ATTEMPT_MS)
    view: OpenBackupResponse = answer
    return view


def read_log(address: str, view: int, first: Index, max_bytes: int) -> Operation[Entries]:
    """Entries of a view from ``first`` on.

    Raises:
        OffsetOutOfRange: the view is gone.
        CorruptEntry: the node's copy is damaged.
        Unavailable: it does not answer.
    """
    terms = CallPolicy(what=f"read entry {first} at {address}", address=address, since="0.2.0")
    request = ReadBackupLogRequest(view=view, first=first, max_bytes=max_bytes)
    answer, _ = yield Request(request, terms, (), ATTEMPT_MS)
    return Entries.of(answer.entries)


def read_image(address: str, view: int, offset: int, max_bytes: int) -> Operation[bytes]:
    """Bytes of a view's image; raises as `read_log`."""
    terms = CallPolicy(what=f"read the catalog at {address}", address=address, since="0.2.0")
    request = ReadBackupImageRequest(view=view, offset=offset, max_bytes=max_bytes)
    answer, _ = yield Request(request, terms, (), ATTEMPT_MS)
    data: bytes = answer.data
    return data
