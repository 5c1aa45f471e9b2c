"""Which incarnation of each member counts.

A node's incarnation is drawn when its directory is created. A member that comes back with an empty directory, or with
an older copy, is another incarnation: it has forgotten votes and entries that others count on, so it must not pass for
the one that gave them (B27, B30).
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Position, Term


@dataclass(frozen=True, slots=True)
class Change:
    """An entry ``Admit`` in a log, committed or not: ``incarnation`` of ``node`` takes the place of the former one."""

    position: Position
    after: Index
    """The entry that said before it who counts; -1: the founding. Known to be committed when this one was proposed."""
    node: NodeId
    incarnation: int

    @property
    def index(self) -> Index:
        return self.position.index


@dataclass(frozen=True, slots=True)
class Membership:
    """What one node knows, durably."""

    incarnation: int = 0
    """Its own, 63 bits."""
    index: Index = NO_INDEX
    """The committed entry that says so; -1: the group's founding."""
    bound: tuple[tuple[NodeId, int], ...] = ()
    """Each member with its incarnation. Empty: this node does not know yet that the group was founded."""
    changes: tuple[Change, ...] = ()
    """Later ones that its log got, in order of arrival. Some may have been cut: those count whose entry is there."""
    term: Term = NO_TERM
    """Of the entry ``index``; -1 where that is the founding, or known by hearsay only."""

    @property
    def founded(self) -> bool:
        return bool(self.bound)

    @property
    def position(self) -> Position:
        """The committed entry that says so, where this node has seen it."""
        return Position(self.term, self.index)

    def of(self, node: NodeId) -> int | None:
        """The incarnation of ``node`` in ``bound``; None when it has none."""
        return next((incarnation for member, incarnation in self.bound if member == node), None)
