"""How far a group that was made from a copy of another one has the records of that one."""

from __future__ import annotations

from dataclasses import field

from dledger.protocol.messages.client import LeaderResponse
from dledger.types import OfPartitions, slots_dataclass


@slots_dataclass(kw_only=True)
class SharedOffsetsRequest:
    """For every partition of these topics, as far as they are there: the offset behind the last
    record that this group shares with the group ``group_id``, one of its ancestors. Linearizable
    (leader only)."""

    group_id: str
    topics: tuple[str, ...]


@slots_dataclass(kw_only=True)
class SharedOffsetsResponse(LeaderResponse):
    """``offsets``: topic -> partition -> offset; -1 where that cannot be told any more, because
    retention has deleted the records around it. ``log_ids``: topic -> id. UNKNOWN_GROUP: that group
    is no ancestor."""

    offsets: dict[str, OfPartitions] = field(default_factory=dict)
    log_ids: dict[str, str] = field(default_factory=dict)
