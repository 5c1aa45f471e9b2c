"""The heartbeat of a consumer group's member, and its answer: which partitions it has."""

from __future__ import annotations

from dataclasses import field

from dledger.protocol.messages.client import LeaderResponse, TopicInfo
from dledger.types import OfPartitions, slots_dataclass


@slots_dataclass(kw_only=True)
class GroupHeartbeatRequest:
    """The member lives. Linearizable: a leader that answers was not replaced before it was asked,
    and each later one waits for the member's whole session time-out."""

    consumer_group: str
    member_id: str
    known_at: int = -1
    """``changed_at`` of the last answer that the member has; the same is not told again."""


@slots_dataclass(kw_only=True)
class GroupHeartbeatResponse(LeaderResponse):
    """``assigned``: partitions (topic id << 32 | number) that the member may read, and the epoch in
    which it was given each; ``revoked``: those that it was given and is to release. Both are empty
    when nothing changed since ``known_at``."""

    epoch: int = -1
    """The group's: it grows with each change of members, topics or partitions."""
    changed_at: int = -1
    """The entry of the group's last change."""
    is_settled: bool = True
    """Every partition that is to be the member's has been released by the one before."""
    assigned: OfPartitions = field(default_factory=dict)
    revoked: tuple[int, ...] = ()
    topics: tuple[TopicInfo, ...] = ()
    """Those of the assigned partitions."""
