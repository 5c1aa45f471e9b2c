"""How a node gets a sound copy of entries that its own disk does not give back any more.

Any member may be asked, whether there is a leader or not, and for entries that are not known to be
committed as well: the asker's own checksums in front of and behind the gap tell whether an answer
belongs there.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.peer import MemberMessage
from dledger.types import Index, slots_dataclass


@slots_dataclass(kw_only=True)
class RepairRequest(MemberMessage):
    """Send the entries ``first`` to ``last``, or as many of them from ``first`` on as fit
    ``max_bytes`` (but at least one)."""

    first: Index
    last: Index
    max_bytes: int


@slots_dataclass(kw_only=True)
class RepairResponse(MemberMessage):
    """SUCCESS with entries from ``first`` on; INDEX_LESS_THAN_LOCAL_BEGIN, INDEX_OUT_OF_RANGE or
    CORRUPT_ENTRY with none."""

    first: Index
    last: Index
    code: Code
    entries: Sequence[Entry] = ()


RepairMessage = RepairRequest | RepairResponse
