"""The state that all roles of a node share: its term and vote, its log, its effects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

from dledger.config import GroupConfig
from dledger.errors import ConfigError
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.membership import MemberRole, Membership, check_members
from dledger.protocol.messages.peer import PeerMessage
from dledger.raft.state.group import GroupWatch, drawn_name
from dledger.raft.state.incarnations import Admission
from dledger.raft.state.log import RaftLog
from dledger.raft.state.quorum_ack_checker import quorum_size
from dledger.raft.state.ready import Outbox
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import MAX_TERM, Index, NodeId, Role, Term


class Header(TypedDict):
    """The fields that all messages begin with."""

    group: str
    local_id: NodeId
    remote_id: NodeId
    term: Term


class RaftState(ABC):
    """State and helpers of one node. The roles read and change it; only `Machine` changes the
    role."""

    def __init__(
        self,
        config: GroupConfig,
        node_id: NodeId,
        *,
        saved: SavedState,
        dice: Callable[[int], int],
        options: RaftOptions,
    ) -> None:
        if node_id not in config.members:
            raise ConfigError(
                f"node {node_id!r} is not a member of group {config.group!r}: {config.members}"
            )
        self.config = config
        self.me = node_id
        self.out = Outbox()
        self.term = saved.hard_state.term
        self.voted_for = saved.hard_state.voted_for
        log, membership = RaftLog(saved.log, options.cache_bytes), saved.membership
        if log.end.position.term > self.term:
            # Files of DLedger itself, adopted: no record says for whom this node voted then, so
            # that vote is spent.
            self.term, self.voted_for = log.end.position.term, node_id
        self.log = log
        self.joins = options.joins
        known = (
            _with_members(membership, config, options)
            if membership
            else Admission.of_all(config.members)
        )
        self.admission = Admission(
            node_id,
            known,
            log=log,
            change_of=options.change_of,
        )
        self.peers: tuple[NodeId, ...] = ()
        """All other members of the newest list in the log, in any role."""
        self.voters: tuple[NodeId, ...] = ()
        """By that list."""
        self.relist()
        self.body_of = options.body_of
        self._change_prefix = options.change_prefix
        self.tag = config.group
        """The group, as all messages name it."""
        self.watch = GroupWatch(self, alone=membership is None)
        self.dice = dice
        self.role = Role.CANDIDATE
        self.leader_id: NodeId | None = None
        self.heard_leader_ms = 0
        """When the leader was last heard; means nothing while ``leader_id`` is None."""
        self.leader_is_gone = False
        """The connection from the leader has ended and nothing was heard on another one: its
        process is likely dead."""
        self.is_watched = False
        """Requests wait at this node for entries to be committed."""
        self.writable = True
        self.follows_only = False
        """Asks for no votes in this life."""

    @abstractmethod
    def become_candidate(self, term: Term, now_ms: int, wait_ms: int | None = None) -> None:
        """Follow no leader, in ``term``; ask for votes after ``wait_ms`` (default: a vote
        interval)."""

    @abstractmethod
    def become_follower(self, term: Term, leader_id: NodeId, now_ms: int) -> None:
        """Follow ``leader_id``, the leader of ``term``."""

    @abstractmethod
    def become_leader(self, now_ms: int) -> None:
        """A quorum voted for this node in its term."""

    @abstractmethod
    def campaign(self, now_ms: int, *, transfer: bool = False, again_soon: bool = False) -> None:
        """As a candidate, ask for votes at once; ``transfer``: the leader said so, no pre-vote is
        needed; ``again_soon``: see `Candidate`."""

    @abstractmethod
    def recount(self) -> None:
        """Others count than before."""

    def relist(self) -> None:
        """The newest list in the log is another one, or is committed now."""
        listed, before = self.admission.members, self.admission.membership.listed
        roles = {one.id: one.role for one in listed} or dict.fromkeys(
            self.config.members, MemberRole.VOTER
        )
        self.peers = tuple(member for member in roles if member != self.me)
        self.voters = tuple(one for one, role in roles.items() if role is MemberRole.VOTER)
        self.quorum = quorum_size(len(self.voters))
        was = (
            [one.id for one in before if one.role is MemberRole.VOTER]
            if before
            else self.config.members
        )
        self.may_stand = self.me in self.voters or (
            self.admission.pending is not None and self.me in was
        )
        """A voter of the list before as well, while the newest one is not known to be committed: it
        may be the only one that can bring it to an end."""
        self.own_role = roles.get(self.me)
        """By that list; None: it has this node not at all."""
        self.known = frozenset((*roles, *was, *(one.id for one in before)))
        """The ids of these lists."""
        self.is_unlisted = bool(listed) and self.me not in self.known
        """A committed list has this node not; perhaps an old one, see
        `dledger.raft.roles.removal`."""

    @property
    def may_vote(self) -> bool:
        """Whether this node answers candidates. A learner does, whatever its list knows of its
        incarnation: a candidate counts it only where a later list has made it a voter, and then by
        the incarnation that it says."""
        if self.own_role is MemberRole.OBSERVER:
            return False
        return self.own_role is MemberRole.LEARNER or self.admission.is_admitted

    @property
    def is_removed(self) -> bool:
        """Whether the group has removed this node: it is to end."""
        return self.admission.membership.removed

    @property
    def can_lead(self) -> bool:
        """Whether this node may ask for votes. Not before it is admitted. Not with a damaged entry
        that others may have sound: it votes by the true end of its log, but it could not send that
        entry to a follower (CTRL, FAST'18)."""
        return (
            self.may_stand
            and self.admission.is_admitted
            and not (self.log.faulty and self.peers)
            and not self.follows_only
        )

    @property
    def term_is_spent(self) -> bool:
        """Whether there is no later term to ask for: no election can be held any more."""
        return self.term >= MAX_TERM

    def draw(self, base_ms: int) -> int:
        """A wait from [base, 2 * base), so that nodes seldom do the same at the same time."""
        return base_ms + self.dice(base_ms)

    def header(self, to: NodeId) -> Header:
        return {"group": self.tag, "local_id": self.me, "remote_id": to, "term": self.term}

    def send(self, message: PeerMessage) -> None:
        """Send to a member, or to a node that says it is one: this node's list may be behind. Where
        there is no founding that tells which group that node is of, the message goes into the
        trace."""
        if message.remote_id in self.peers or (
            self.admission.membership.group_id and message.remote_id != self.me
        ):
            self.out.messages.append(message)
        else:
            self.out.fact(
                "stranger_not_answered", stranger=message.remote_id, answer=type(message).__name__
            )

    def set_vote(self, term: Term, voted_for: NodeId | None) -> None:
        """Remember term and vote; they are saved before anything that follows from them is sent
        (D5)."""
        assert term >= self.term, f"term goes back from {self.term} to {term}"
        if term == self.term and voted_for == self.voted_for:
            return
        assert term > self.term or self.voted_for is None, (
            f"second vote in term {term}: {voted_for}"
        )
        self.term, self.voted_for = term, voted_for
        self.out.save = True

    def hard_state(self) -> HardState:
        """As the store must have it. Its commit hint is never above what this very disk has."""
        return HardState(
            self.term, self.voted_for, min(self.log.committed_index, self.log.durable_index)
        )

    def commit_to(self, index: Index) -> bool:
        """Move committedIndex, never back."""
        if index <= self.log.committed_index:
            return False
        self.log.committed_index = index
        self.out.committed = index
        if self.admission.pending is not None and self.admission.settle():
            self.recount()
        return True

    def append(self, entries: Entries) -> None:
        """Put ``entries`` at the end of the log, and have them written."""
        self.log.append(entries)
        before = self.out.append.runs  # there is none, most of the time
        self.out.append = Entries((*before, *entries.runs)) if before else entries
        for run in entries.runs:
            if run.has_body_with(self._change_prefix):  # nearly none has
                if self.admission.note(entries):
                    self.recount()
                break

    def leader_lives(self, now_ms: int) -> bool:
        """Whether a leader was heard within the shortest patience; then no other is helped
        (stickiness, D11)."""
        if self.role is Role.LEADER:
            return True  # it steps down by itself when it loses its quorum
        if self.leader_id is None or self.leader_is_gone:
            return False
        return now_ms - self.heard_leader_ms < self.config.election_ms


def _with_members(membership: Membership, config: GroupConfig, options: RaftOptions) -> Membership:
    """The membership of the record, with the fields that older releases did not have.

    Raises:
        ConfigError: the record names other members than the settings.
    """
    joins = options.joins
    # without a list of the log the settings' list counts, whatever the node was started with
    if not joins and not (options.only_asks and membership.listed):
        check_members(membership, config.members)
    membership = replace(membership, group_id=membership.group_id or drawn_name(config.group))
    if membership.members or joins:
        return membership
    # Of a member that a record of before lacks nothing is known: whether the settings' list is
    # right, the others say.
    is_whole = {member for member, _ in membership.bound} == set(config.members)
    return replace(membership, members=tuple(sorted(config.members))) if is_whole else membership
