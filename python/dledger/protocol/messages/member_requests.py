"""Requests that change who a group's members are."""

from __future__ import annotations

from enum import IntEnum

from dledger.protocol.messages.client import LeaderResponse
from dledger.protocol.messages.membership import MemberRole
from dledger.types import NodeId, slots_dataclass


class MemberAction(IntEnum):
    """What is to be done with a member."""

    ADD = 0
    """As a learner or an observer."""
    PROMOTE = 1
    """A learner becomes a voter, once it has caught up."""
    DEMOTE = 2
    """A voter becomes a learner."""
    REMOVE = 3
    READDRESS = 4
    """It is at another address from now on, with its disk and incarnation."""
    LABEL = 5
    """It stands in another rack from now on, or in none."""


@slots_dataclass(kw_only=True)
class AlterMemberRequest:
    """Change one member; answered when that is committed. What is so already is a success."""

    node_id: NodeId
    action: MemberAction
    host: str = ""
    """Of a member that is added, as the port and role; of one that has moved, as the
    port."""
    port: int = 0
    role: MemberRole = MemberRole.LEARNER
    rack: str = ""
    """Of a member that is added, or labelled; empty: none."""
    timeout_ms: int = 2500
    replaces: str = ""
    """The member that an added one is to take the place of; it gets that one's role."""


@slots_dataclass(kw_only=True)
class AlterMemberResponse(LeaderResponse):
    """SUCCESS: the list is so, and committed."""
