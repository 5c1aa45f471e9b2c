"""Who counts: votes and acknowledgements are taken only from the voters of the newest list in the
log, by the incarnations that the group was founded with or has admitted.

The rule, with its reasons:

- A node counts another one, and takes part in elections itself, only by the `Membership` that it
  has on its disk.
- The first `Membership` comes from `dledger.raft.roles.founding`. From then on entries ``Admit``
  change it, one at a time: proposed by a leader whose NOOP is committed, while no other one is
  uncommitted.
- An ``Admit`` takes effect in two steps, because the quorums of {0, 1, 2} and {0, 1, 2'} need not
  meet: {0, 2} and {1, 2'} do not. As soon as the entry is in a node's log, the former incarnation
  counts for nothing there (Raft thesis, 4.1: the newest configuration in the log); a cut of the
  entry undoes that. The new incarnation counts when the entry is known to be committed. In between
  before and every quorum of after. So the entry has a majority of members that will never elect a
  log without it, even when the former incarnation comes back with its disk and answers members that
  do not have it.
- The new incarnation votes from when it knows of the entry: by applying it, from another member, or
  by a catalog that it took over. It need not have the entries before it: without one of that
  majority no candidate wins. With that it takes the term of the member that tells it, so that it
  does not vote in a term from before the commit.
- A ``ChangeMembers`` takes effect as a whole as soon as it is in a node's log, and a cut undoes it
  (Raft dissertation, 4.1). Its list has one voter more or less than the one before, so that each
  majority of the one meets each of the other; it gives no voter that stays another incarnation.
- A leader proposes either only behind one that it knows to be committed, and the entry names
  that one. So a log that holds the later one shows that the earlier one is committed.
- A node with an ``Admit`` in its log that may not be committed counts one member less than there
  are. While it has no leader it asks the others whether that entry is committed
  (`dledger.raft.roles.founding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.membership import Ancestors, Change, Member, Membership
from dledger.raft.state.log import RaftLog
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Term

ChangeOf = Callable[[Entry], Change | None]


def no_change(entry: Entry) -> None:
    """The `ChangeOf` of a core whose log has no ``Admit``."""


class Admission:
    """One node's view. The result of `take` must be durable before anything that follows from it is
    sent or written."""

    def __init__(
        self,
        me: NodeId,
        membership: Membership,
        *,
        log: RaftLog,
        change_of: ChangeOf = no_change,
    ) -> None:
        """``change_of``: the change by an entry, told from its bytes alone."""
        self.me = me
        self.membership = membership
        self.on_change: Callable[[], None] = lambda: None
        """Told when `membership` is another one."""
        self.on_list: Callable[[], None] = lambda: None
        """Told when `members` is another list, or is committed."""
        self.members: tuple[Member, ...] = membership.listed
        """The newest list in the log, committed or not; empty: the founding's."""
        self.told: tuple[Member, ...] = ()
        """The list that another member told this one in this life, in which it does not count."""
        self.pending: Change | None = None
        """The change in this log that is not known to be committed."""
        self._log = log
        self._change_of = change_of
        self._held = [change for change in membership.changes if log.may_hold(change.position)]
        """Those of ``membership.changes`` that are in the log, in its order."""
        self._open_cuts = 0
        """Cuts that the store may not have carried out."""
        self.unsaved = False
        """`membership` is to be saved."""
        self.settle()

    @staticmethod
    def of_all(members: Iterable[NodeId]) -> Membership:
        """Each member has incarnation 0 and counts; for a core alone, without a store."""
        return Membership(0, NO_INDEX, tuple((member, 0) for member in members))

    @property
    def is_admitted(self) -> bool:
        """Whether this very node is the incarnation that the group knows, in any role."""
        return self.knows(self.me, self.membership.incarnation)

    @property
    def reached(self) -> tuple[Member, ...]:
        """Where the members are, by the log; while that has no list, by what it was told: to get
        the log it must hear a leader that may have come later, and answer it where it is now."""
        return self.members or self.told

    def of(self, node: NodeId) -> int | None:
        """The incarnation of ``node`` in the newest list; None when it has none there."""
        pending = self.pending
        if pending is None:
            return self.membership.of(node)
        if pending.members:
            return next((one.incarnation for one in pending.members if one.id == node), None)
        return None if pending.node == node else self.membership.of(node)

    def counts(self, node: NodeId, incarnation: int) -> bool:
        return self.of(node) == incarnation

    def knows(self, node: NodeId, incarnation: int) -> bool:
        """As `counts`, or in the list before: that of the members is not known to be over."""
        return self.counts(node, incarnation) or (
            self.pending is not None
            and bool(self.pending.members)
            and self.of(node) is None
            and self.membership.of(node) == incarnation
        )

    @property
    def shared_index(self) -> Index:
        """Entries up to this one are those of the group from whose backup this one was made: they
        do not change its members. -1 in any other group."""
        return Index(max((shared for _, shared in self.membership.ancestors), default=NO_INDEX))

    def found(
        self, bound: Iterable[tuple[NodeId, int]], group_id: str, members: Iterable[NodeId]
    ) -> None:
        """The group begins, as this very node says or has learned."""
        self.join(group_id, self.membership.ancestors, members)
        self.bind(NO_INDEX, bound)

    def join(self, group_id: str, ancestors: Ancestors, members: Iterable[NodeId]) -> None:
        """This node's group is that one, whether the node counts in it or not."""
        self._set(
            replace(
                self.membership,
                group_id=group_id,
                ancestors=ancestors,
                members=tuple(sorted(members)),
            )
        )

    def note(self, entries: Sequence[Entry]) -> bool:
        """``entries`` are at the end of the log now. Whether others count than before."""
        known = max(self.membership.index, self.shared_index)
        changes = [c for c in map(self._change_of, entries) if c is not None and c.index > known]
        if not changes:
            return False
        self._held += changes
        self._record(changes)
        return True

    def repaired(self, entries: Sequence[Entry]) -> None:
        """The content of these damaged entries is known now. One may be a change of a release that
        kept no record of it."""
        changes = [change for entry in entries if (change := self._change_of(entry)) is not None]
        known = max(self.membership.index, self.shared_index)
        news = [c for c in changes if c.index > known and c not in self._held]
        if news:
            self._held = sorted([*self._held, *news], key=lambda change: change.index)
            self._record(news)

    def truncated(self) -> None:
        """The store has carried out a cut. After the last one the changes that were cut need no
        record any more: lists are long, and a record is short."""
        self._open_cuts = max(0, self._open_cuts - 1)
        changes = self.membership.changes
        if not self._open_cuts and any(one.members and one not in self._held for one in changes):
            held = tuple(change for change in changes if change in self._held)
            self._set(replace(self.membership, changes=held))

    def cut(self, after: Index) -> None:
        """Everything behind ``after`` is out of the log."""
        self._open_cuts += 1
        if self._held:
            self._held = [change for change in self._held if change.index <= after]
            self.settle()

    def damage_known(self) -> None:
        """Which entries are damaged has changed: one that could have been a change may be known to
        be none."""
        if self._held:
            self._held = [change for change in self._held if self._log.may_hold(change.position)]
            self.settle()

    def settle(self) -> bool:
        """Take the changes that are known to be committed. Whether there was one."""
        before, was = self.membership, self.pending
        while (change := self._next()) is not None and self._is_committed(change):
            self._take(change)
        self.pending = change
        self.members = (
            change.members if change is not None and change.members else (self.membership.listed)
        )
        if self.membership.listed is not before.listed or _list_of(was) is not _list_of(change):
            self.on_list()
        return self.membership is not before

    def bind(
        self,
        index: Index,
        bound: Iterable[tuple[NodeId, int]],
        term: Term = NO_TERM,
        listed: tuple[Member, ...] = (),
        former: tuple[int, ...] = (),
    ) -> None:
        """From now on these count, by the committed entry ``index``; ``term`` is its, where that is
        known. ``listed`` and ``former`` as in `Membership`."""
        was = self.membership.listed
        membership = replace(self.membership, bound=tuple(sorted(bound)))
        if listed:
            membership = replace(self.membership, former=former).with_list(listed)
        self._bind(index, membership, term)
        self.settle()
        if self.membership.listed is not was:
            self.on_list()

    def renew(self, incarnation: int) -> None:
        """This node is another incarnation from now on."""
        self._set(replace(self.membership, incarnation=incarnation))

    def end(self) -> None:
        """The group has removed this node, for good."""
        self._set(replace(self.membership, removed=True))

    def take(self) -> Membership | None:
        """The membership to be saved, once."""
        unsaved, self.unsaved = self.unsaved, False
        return self.membership if unsaved else None

    def _record(self, changes: Iterable[Change]) -> None:
        # A cut change stays recorded until it is void: the record is on the disk before the cut is.
        recorded = self.membership.changes
        self._set(
            replace(
                self.membership, changes=(*recorded, *(c for c in changes if c not in recorded))
            )
        )
        self.settle()

    def _next(self) -> Change | None:
        """The first change in the log behind the last one that is known to be committed. One that
        names another one before it was void when it was written (two that crossed)."""
        if not self.membership.founded:
            return None
        return next(
            (change for change in self._held if change.after == self.membership.index), None
        )

    def _is_committed(self, change: Change) -> bool:
        # A later change names this one only after its leader knew it to be committed.
        is_below = change.index <= self._log.committed_index and self._log.has(change.position)
        return is_below or any(later.after == change.index for later in self._held)

    def _take(self, change: Change) -> None:
        """The change is committed."""
        membership = (
            self.membership.with_list(change.members)
            if change.members
            else self.membership.with_incarnation(change.node, change.incarnation)
        )
        self._bind(change.index, membership, change.position.term)

    def _bind(self, index: Index, membership: Membership, term: Term) -> None:
        later = tuple(change for change in self.membership.changes if change.index > index)
        self._held = [change for change in self._held if change.index > index]
        self._set(replace(membership, index=index, changes=later, term=term))

    def _set(self, membership: Membership) -> None:
        self.unsaved |= membership != self.membership
        self.membership = membership
        self.on_change()


def _list_of(change: Change | None) -> tuple[Member, ...]:
    return () if change is None else change.members
