"""Which incarnation of each member counts.

A node's incarnation is drawn when its directory is created. A member that comes back with an empty directory, or with
an older copy, is another incarnation: it has forgotten votes and entries that others count on, so it must not pass for
the one that gave them (B27, B30).
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.types import NO_INDEX, Index, NodeId


@dataclass(frozen=True, slots=True)
class Membership:
    """What one node knows, durably."""

    incarnation: int = 0
    """Its own, 63 bits."""
    index: Index = NO_INDEX
    """The entry that says so; -1: the group's founding."""
    bound: tuple[tuple[NodeId, int], ...] = ()
    """Each member with its incarnation. Empty: this node does not know yet that the group was founded."""

    @property
    def founded(self) -> bool:
        return bool(self.bound)

    def of(self, node: NodeId) -> int | None:
        """The incarnation of ``node`` that counts; None when none does."""
        return next((incarnation for member, incarnation in self.bound if member == node), None)
