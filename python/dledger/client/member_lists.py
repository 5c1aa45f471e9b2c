"""The list of members, as the nodes' answers to a status have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ListedMember(NamedTuple):
    """One member of the list."""

    role: str
    """VOTER, LEARNER or OBSERVER."""
    rack: str | None
    """Where it stands; None: nobody has said."""


def listed_members(states: Iterable[Mapping[str, Any]]) -> dict[str, ListedMember]:
    """By name, as the leader has them; without a leader, all that any node names.

    Args:
        states: of each node, as `Client.status` gives it.
    """
    told = [said for said in states if "error" not in said]
    leader = max(told, key=_authority, default={})
    if _authority(leader)[0] and "member_roles" in leader:
        told = [leader]
    # nodes of an older release tell no roles: all of their members vote
    roles = {str(name): "VOTER" for said in told for name in said.get("members", ())}
    racks: Mapping[str, str] = {}
    for said in sorted(told, key=_authority):
        roles |= said.get("member_roles", {})
        racks = said.get("member_racks", racks)
    return {name: ListedMember(role, racks.get(name)) for name, role in roles.items()}


def _authority(said: Mapping[str, Any]) -> tuple[bool, int]:
    """The newest leader has the last word."""
    return said.get("role") == "LEADER", int(said.get("term", -1))
