"""Members: I17 the incarnations that count change one member at a time, by committed entries, and
for all nodes alike; lists of members that can decide at the same time have majorities that meet,
and at most one change is in flight. A leader is elected by the voters of its list alone.

A group's members are its configuration. The incarnation of each that counts changes: a member that
lost its disk is admitted as another one by an entry of the log. The quorums of before and after
meet because one at a time changes and the one that changes is not counted for that entry (see
`dledger.raft.state.incarnations`). I7 sees that it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dledger.protocol.messages.membership import MemberRole, Membership, fingerprint, ids_of
from dledger.raft.state.quorum_ack_checker import quorum_size
from dledger.raft.state.ready import Fact
from dledger.types import NO_INDEX
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import Memory, WatchedNode

OTHER_ID: Final = "feedfeedfeedfeed"
OTHER_TERM: Final = 1_000_000
"""Id and first term of another group of this name; no term of the group that is watched comes so
far."""
Bound = tuple[tuple[str, int], ...]


class Members:
    """Follows the membership that each node knows."""

    def __init__(self, truth: Truth, members: Iterable[str]) -> None:
        self._truth = truth
        self._members = set(members)
        self.on_change: Callable[[WatchedNode], None] = lambda view: None
        """Told when a node counts others than before, or has another admission in its log."""
        self._voters: dict[int, set[str]] = {NO_INDEX: set(members)}
        """By the entry that says so, as `_bound`."""
        self._bound: dict[int, Bound] = {}
        """By the entry that says so, of those that some node has taken."""

    def changed(self, view: WatchedNode, views: Iterable[WatchedNode]) -> None:
        """A node comes up, or takes others for the group than before."""
        membership, before = view.machine.admission.membership, view.membership
        self._told(view, membership)
        if membership.group_id == OTHER_ID:
            raise Broken("I17", f"{view} has joined another group of this name: {membership}")
        view.membership = membership
        if membership.founded:
            self._majorities_meet(view, membership)
            if membership.index < before.index or (
                membership.index == before.index and _differs(before, membership)
            ):
                raise Broken(
                    "I17", f"{view} knows {membership.bound} by {membership.index}, after {before}"
                )
            if membership.index == NO_INDEX:
                self._founded(view, views)
            else:
                self._admitted(view, membership)
        elif before.founded:
            raise Broken("I17", f"{view} has forgotten who counts, after {before}")
        if membership.removed:
            self._removed(view)
        self.on_change(view)

    def _told(self, view: WatchedNode, membership: Membership) -> None:
        """A node takes part only with a list that its group has had, or that is under way in its
        log. Beside a list of the log one that it was told says no more than whom to ask, and that
        of a node that joins may be any."""
        told = view.machine.config.members
        is_had = set(told) == self._members or fingerprint(told) in membership.former
        joins = view.machine.joins or (view.joins and bool(membership.listed))
        if is_had or joins or view.told_under_way:
            return
        changes = membership.changes if membership.listed else ()
        view.told_under_way = any(set(ids_of(one.members)) == set(told) for one in changes)
        if not view.told_under_way:
            raise Broken(
                "I17",
                f"{view} takes part with {told} for the group's members, which are "
                f"{sorted(self._members)}",
            )

    @property
    def newest(self) -> int:
        """The entry of the newest committed list, as far as any node knows it."""
        return max(self._bound, default=NO_INDEX)

    def admitted(self, node: str, incarnation: int) -> None:
        """An answer says that this node is admitted, and that is what it was all the while: a
        committed list has it so, or the group would never count it."""
        if all((node, incarnation) not in bound for bound in self._bound.values()):
            raise Broken(
                "I17", f"{node} is admitted, says an answer; no list has it as {incarnation}"
            )

    def _removed(self, view: WatchedNode) -> None:
        """A node concludes that it was removed: by a list that was in force since it has its disk,
        and not by an old one."""
        since = view.memory.since
        lists = [dict(bound) for index, bound in self._bound.items() if index >= since]
        if all(view.name in bound for bound in lists):
            raise Broken(
                "I17",
                f"{view} takes itself for removed; each list from entry {since} on has it, since "
                f"when it has its disk",
            )

    def _majorities_meet(self, view: WatchedNode, membership: Membership) -> None:
        """Any majority of the newest committed list and any of the list that this node counts by
        have a node in common, unless this node's list follows an older one: then the logs decide,
        which lack a committed entry. At most one change is in flight."""
        newest = max((at for at in self._voters), default=NO_INDEX)
        committed, voters = self._voters[newest], set(view.machine.voters)
        listed = view.machine.admission.members
        taking = [f"{one.id} for {one.replaces}" for one in listed if one.replaces]
        if len(taking) > 1:
            raise Broken("I17", f"{view} has two replacements under way: {taking}")
        changes = [c for c in membership.changes if c.index > self._truth.committed_index]
        flying = [c for c in changes if c.members and view.log.has(c.position)]
        if len(flying) > 1:
            raise Broken("I17", f"{view} has two lists in flight: {flying}")
        base = flying[0].after if flying else membership.index
        quorums = len(committed) // 2 + 1 + len(voters) // 2 + 1
        if base >= newest and quorums <= len(committed | voters):
            raise Broken("I17", f"{view} counts {voters}, and {committed} by entry {newest}")

    def elected(self, view: WatchedNode, memories: Mapping[str, Memory]) -> None:
        """A majority of the voters of the list that a leader begins with voted for it, and no other
        node counts: none that was removed, and no learner."""
        term, voters = view.machine.term, view.machine.voters
        gave = [
            name
            for name in voters
            for memory in (memories[name], *memories[name].others)
            if name == view.name or memory.votes.get(term) == view.name
        ]
        if len({*gave}) < quorum_size(len(voters)):
            raise Broken("I17", f"{view} leads term {term} by the votes of {gave}, of {voters}")

    @staticmethod
    def of_this_group(view: WatchedNode) -> None:
        """A node's term and log have no term and no entry of another group of this name."""
        term, last = view.machine.term, view.log.end.position
        if max(term, last.term) >= OTHER_TERM:
            raise Broken("I17", f"{view} is at {last} in term {term}, which is another group's")

    @staticmethod
    def fact(view: WatchedNode, fact: Fact, memories: Mapping[str, Memory]) -> None:
        """A leader says that a member has less than it had acknowledged: only where its disk was
        exchanged."""
        if fact.event == "follower_lost_data":
            peer = str(dict(fact.about)["node"])
            if not memories[peer].others:
                raise Broken(
                    "I17",
                    f"{view} takes {peer} for one that lost data, whose disk nobody touched: "
                    f"{fact}",
                )

    def _founded(self, view: WatchedNode, views: Iterable[WatchedNode]) -> None:
        """A group is founded once. A node that founded it and lost its disk before another node
        heard of it may found it again."""
        for other in views:
            if other.membership.index == NO_INDEX and _differs(other.membership, view.membership):
                raise Broken(
                    "I17",
                    f"{view} founds the group as {view.membership}, {other} knows "
                    f"{other.membership}",
                )
        bound = view.membership.bound
        is_past = any(other.membership.index > NO_INDEX for other in views)
        if is_past and self._bound.get(NO_INDEX, bound) != bound:
            raise Broken("I17", f"{view} founds a group that has a later list: {view.membership}")
        self._bound[NO_INDEX] = bound

    def _admitted(self, view: WatchedNode, membership: Membership) -> None:
        index = membership.index
        if index > self._truth.committed_index:
            raise Broken(
                "I17",
                f"{view} counts others by entry {index}; {self._truth.committed_index} is "
                f"committed",
            )
        known = self._bound.setdefault(index, membership.bound)
        if known != membership.bound:
            raise Broken(
                "I17", f"{view} knows {membership.bound} by entry {index}; another node {known}"
            )
        earlier = self._bound.get(
            max((at for at in self._bound if at < index), default=NO_INDEX), ()
        )
        self._voters[index] = voters = _voters_of(membership, self._members)
        others = [one for one in membership.bound if one not in earlier and one[0] in voters]
        if earlier and len(others) not in ((0, 1) if membership.listed else (1,)):
            raise Broken(
                "I17", f"{view} knows {membership.bound} by entry {index}, after {earlier}"
            )


def _differs(one: Membership, other: Membership) -> bool:
    return one.founded and one.bound != other.bound


def _voters_of(membership: Membership, founders: set[str]) -> set[str]:
    voters = {str(one.id) for one in membership.listed if one.role is MemberRole.VOTER}
    return voters or founders
