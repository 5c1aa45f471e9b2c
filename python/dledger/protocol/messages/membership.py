"""Which incarnation of each member counts.

A node's incarnation is drawn when its directory is created. A member that comes back with an empty
directory, or with an older copy, is another incarnation: it has forgotten votes and entries that
others count on, so it must not pass for the one that gave them (B27, B30).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from dledger.checksum import crc32
from dledger.errors import ConfigError
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Position, Term

Ancestors = tuple[tuple[str, int], ...]
"""Of a group that was made from copies of others': the id of each one, and the last index that both
share."""

MOST_FORMER: Final = 24
"""Lists of members that a node still knows to have been the group's."""
MOST_LIST_BYTES: Final = 800
"""Of a list, as a node's record has it beside the lists of changes that are under way."""


class MemberRole(IntEnum):
    """A member's part in the group; stored in the log, so these numbers are for ever."""

    VOTER = 0
    """Votes, and counts for every quorum."""
    LEARNER = 1
    """Gets all entries and counts for nothing, until it has caught up and is promoted."""
    OBSERVER = 2
    """Gets all entries and serves reads; never votes."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member as an entry ``ChangeMembers`` lists it."""

    id: NodeId
    host: str
    port: int
    role: MemberRole
    incarnation: int
    """That counts where the role is VOTER; 0: none does."""
    rack: str = ""
    replaces: str = ""
    """The member that it is to take the place of, until it has: so that a command that was
    interrupted goes on, and no second one begins."""


FIRST_FIELDS: Final[dict[type, int]] = {Member: 6}


def fingerprint(members: Iterable[str]) -> int:
    """Of a list of members: 32 bits that tell its ids."""
    return crc32(chr(10).join(sorted(members)).encode())


def ids_of(members: Iterable[Member]) -> tuple[NodeId, ...]:
    return tuple(member.id for member in members)


def voters_of(members: Iterable[Member]) -> set[NodeId]:
    return {member.id for member in members if member.role is MemberRole.VOTER}


def pack_list(members: Iterable[Member]) -> list[tuple[Any, ...]]:
    """A list for JSON."""
    return [
        (m.id, m.host, m.port, int(m.role), m.incarnation, m.rack, *filter(None, [m.replaces]))
        for m in members
    ]


def unpack_list(rows: Iterable[Sequence[Any]]) -> tuple[Member, ...]:
    """The inverse of `pack_list`."""
    return tuple(
        Member(NodeId(node), host, port, MemberRole(role), incarnation, *rack_and_rest)
        for node, host, port, role, incarnation, *rack_and_rest in rows
    )


def check_members(membership: Membership, members: Collection[NodeId]) -> None:
    """``members``: those of the group, as a node was told. They found a group; afterwards the list
    in the log counts, so any list will do that the group has had.

    Raises:
        ConfigError: the group never had this list, as far as this node knows. A quorum of one list
            may share no node with a quorum of the other.
    """
    if fingerprint(members) in membership.former:
        return
    under_way = {fingerprint(ids_of(change.members)) for change in membership.changes}
    if membership.listed and fingerprint(members) in under_way:
        return
    founders = membership.members or tuple(sorted(member for member, _ in membership.bound))
    is_same = set(founders) == set(members) if membership.members else set(founders) <= set(members)
    if not is_same:
        raise ConfigError(
            f"this node's files say that the group's members are {_history(membership, founders)}, "
            f"but it was told that they are {', '.join(sorted(members))}. A majority of the one "
            "need not meet a majority of the other, and records would be lost. Start it with the "
            "list of its files: addresses may be others, a machine is replaced under its id, and "
            "later lists are learned from the others. Where a "
            "group was founded with a wrong list and nothing was written to it, empty the "
            "directories of all of its nodes (docs/operations.md, 'Members')"
        )


def _history(membership: Membership, founders: Collection[NodeId]) -> str:
    first = ", ".join(sorted(founders))
    if not membership.listed:
        return first
    return f"{', '.join(sorted(ids_of(membership.listed)))}, and were {first} at its founding"


def is_outdated(membership: Membership, members: Collection[NodeId]) -> bool:
    """Whether a node was told a list that the group has replaced by another one meanwhile."""
    return bool(membership.listed) and set(members) != set(ids_of(membership.listed))


@dataclass(frozen=True, slots=True)
class Change:
    """An entry ``Admit`` or ``ChangeMembers`` in a log, committed or not. With ``members``, that is
    the list from now on; else ``incarnation`` of ``node`` takes the place of the former one."""

    position: Position
    after: Index
    """The entry of the membership before it; -1: the founding. Known to be committed when this one
    was proposed."""
    node: NodeId
    incarnation: int
    members: tuple[Member, ...] = ()

    @property
    def index(self) -> Index:
        return self.position.index


@dataclass(frozen=True, slots=True)
class Membership:
    """One node's durable knowledge of its group."""

    incarnation: int = 0
    """Its own, 63 bits."""
    index: Index = NO_INDEX
    """The committed entry that says so; -1: the group's founding."""
    bound: tuple[tuple[NodeId, int], ...] = ()
    """Each member with its incarnation. Empty: this node does not know yet that the group was
    founded."""
    changes: tuple[Change, ...] = ()
    """Later ones that its log got, in order of arrival. Some may have been cut: those count whose
    entry is there."""
    term: Term = NO_TERM
    """Of the entry ``index``; -1 where that is the founding, or known by hearsay only."""
    group_id: str = ""
    """Drawn when the group was founded. Empty: not founded, as far as this node knows, or before
    there were ids."""
    ancestors: Ancestors = ()
    members: tuple[NodeId, ...] = ()
    """The ids of all members at the founding, whether they count or not, sorted; empty where the
    group's founding is not known."""
    listed: tuple[Member, ...] = ()
    """The members by the entry ``index``; empty: those of the founding, all of them voters."""
    former: tuple[int, ...] = ()
    """The `fingerprint` of each list that the group has had by an entry, the newest last."""
    removed: bool = False
    """The group has removed this node, for good: it does not start again on this record. A list
    without the node does not say so, as it may be an old one."""

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

    def with_list(self, members: tuple[Member, ...]) -> Membership:
        """These are the members from now on, with the incarnations that the list has."""
        print_ = fingerprint(ids_of(members))
        former = (*(one for one in self.former if one != print_), print_)[-MOST_FORMER:]
        bound = tuple(sorted((member.id, member.incarnation) for member in members))
        return replace(self, listed=members, bound=bound, former=former)

    def with_incarnation(self, node: NodeId, incarnation: int) -> Membership:
        """``node`` counts by this incarnation from now on, if it is in the list."""
        if self.listed and node not in ids_of(self.listed):
            return self
        bound = tuple(sorted({**dict(self.bound), node: incarnation}.items()))
        listed = tuple(
            replace(member, incarnation=incarnation) if member.id == node else member
            for member in self.listed
        )
        return replace(self, listed=listed, bound=bound)
