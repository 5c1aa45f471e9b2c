"""`RaftNode`: one member of a group, pure. It does no input or output: the caller calls it, then
carries out what the call returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec

from dledger.config import GroupConfig
from dledger.errors import NotLeader
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, HardState, LogEnd
from dledger.protocol.messages.membership import Change, Member, Membership
from dledger.protocol.messages.peer import PeerMessage
from dledger.raft.member_state import Machine
from dledger.raft.promises import check_promises
from dledger.raft.roles.leader import Leader
from dledger.raft.roles.leader_elector import Candidate
from dledger.raft.roles.member_change import check_change
from dledger.raft.roles.snapshot_install import InstallMode, install_mode
from dledger.raft.state.group import Stranger
from dledger.raft.state.ready import ReadDone, Ready, SafetyViolation, TransferDone
from dledger.raft.state.saved_state import DEFAULT_OPTIONS, RaftOptions, SavedState
from dledger.raft.state.terms import Refused
from dledger.types import NO_INDEX, Buffer, Index, NodeId, Position, Role, Term

P = ParamSpec("P")


class RaftNode:
    """One node of a Raft group in DLedger's words.

    Every call takes the time in milliseconds of a clock that never goes back (D10) and returns what
    is to be done now; see `Ready` for the order. Calls come one at a time. After a
    `SafetyViolation` every call raises it again.
    """

    def __init__(
        self,
        config: GroupConfig,
        node_id: NodeId,
        *,
        saved: SavedState,
        dice: Callable[[int], int],
        now_ms: int,
        options: RaftOptions = DEFAULT_OPTIONS,
    ) -> None:
        """``dice(n)`` is a number from [0, n).

        Raises:
            ConfigError: ``node_id`` is not a member of the group.
            SafetyViolation: the log ends before what is known to be committed.
        """
        self._machine = Machine(
            config, node_id, saved=saved, dice=dice, now_ms=now_ms, options=options
        )
        self.log = self._machine.log
        """To be read alone."""
        self.deadline_ms: Callable[[], int] = self._machine.deadline_ms
        """When `tick` should be called next."""
        self._halted: SafetyViolation | None = None

    # ---- inputs

    def follow_only(self) -> None:
        """The catalog is lost here, so this node could not lead: it asks for no votes in this life.
        It votes and counts as ever, for which the log is enough."""
        self._machine.follows_only = True

    def set_watched(self, watched: bool) -> None:
        """Requests wait at this node for entries to be committed, or do not any more. The leader
        hears of it with this node's next answer, and then of each commit without delay."""
        self._machine.is_watched = watched

    def tick(self, now_ms: int) -> Ready:
        """Time has passed. Calling more often than at ``deadline_ms`` is harmless."""
        return self._run(self._machine.tick, now_ms)

    def step(self, message: PeerMessage, now_ms: int) -> Ready:
        """A message has arrived, from whomever, however late or often.

        Raises:
            SafetyViolation: a leader contradicts a committed entry; stop the node (D7).
        """
        return self._run(self._machine.step, message, now_ms)

    def peer_lost(self, peer: NodeId, now_ms: int) -> Ready:
        """The last connection from ``peer`` has ended. A kernel closes a dead process's connections
        at once, so a follower then waits ``takeover_ms`` for its leader, not ``election_ms``. Only
        a hint: it may be false."""
        return self._run(self._machine.peer_lost, peer, now_ms)

    def peer_found(self, peer: NodeId, now_ms: int) -> Ready:
        """A connection with ``peer`` is open again, in either direction. A message sent before may
        be lost, so those that matter are sent again now. Only a hint: it may be false, or come too
        often."""
        return self._run(self._machine.peer_found, peer, now_ms)

    def propose(self, bodies: Sequence[Buffer], now_ms: int, magic: int = MAGIC_NORMAL) -> Ready:
        """Append one entry per body. Ask `Leader.can_accept` first.

        Raises:
            NotLeader: this node does not lead; nothing was done.
            ValueError: a body does not fit a file of the group's segment size; nothing was done.
        """
        return self._run(self._leading().propose, bodies, magic, now_ms)

    def propose_members(self, members: tuple[Member, ...], now_ms: int) -> Ready:
        """Append the entry that makes ``members`` the group's list. It is in force with this call,
        and done when that entry, the last one of the log now, is committed.

        Raises:
            NotLeader: this node does not lead; nothing was done.
            MembersRefused: the change is not possible, or not now; nothing was done.
        """
        leader, body_of = self._leading(), self._machine.body_of
        assert body_of is not None, "this core was not told how such an entry is written"
        check_change(leader, members, now_ms)
        body = body_of(self._machine.admission.membership.index, members)
        return self._run(leader.propose, [body], MAGIC_NORMAL, now_ms)

    def check_members(self, members: tuple[Member, ...], now_ms: int) -> None:
        """Raises what `propose_members` would, and does nothing."""
        check_change(self._leading(), members, now_ms)

    def persisted(self, position: Position, now_ms: int, generation: int | None = None) -> Ready:
        """Everything up to ``position`` is durable; that of an entry cut meanwhile is ignored.

        ``generation``: this node's `generation` when the sync began. A sync that began before a cut
        says nothing about entries written again in the same place, so with it such a call is
        ignored too.
        """
        is_news = generation in {None, self.log.generation} and self.log.persisted(position)
        acting = self._machine.acting
        if not is_news or isinstance(acting, Candidate):
            return self._run(lambda: None)
        return self._run(acting.on_persisted, now_ms)

    def truncated(self, end: LogEnd) -> None:
        """The store has carried out ``truncate_to`` and ends there now (where its next entry
        goes)."""
        self.log.truncated(end)
        self._machine.admission.truncated()

    def loaded(self, peer: NodeId, entries: Sequence[Entry], now_ms: int) -> Ready:
        """The answer to a `Load`; no entries when they cannot be read."""
        return self._run(lambda: self.leader.loaded(peer, entries, now_ms) if self.leader else None)

    def read_index(self, token: int, now_ms: int) -> Ready:
        """Ask how far a linearizable read must have applied; answered in ``Ready.reads``, now or
        later (D8)."""
        return self._run(self._read_index, token)

    def transfer(self, to: NodeId | None, now_ms: int) -> Ready:
        """Hand leadership to ``to`` (None: the follower nearest to the end); answered in
        ``Ready.transfer`` within an election time. Appends are refused with LEADER_TRANSFERRING
        meanwhile."""
        return self._run(self._transfer, to, now_ms)

    def set_writable(self, writable: bool, now_ms: int) -> Ready:
        """The disk is full, or not any more (D12): a leader then refuses appends with DISK_FULL and
        hands over, a follower refuses pushes, a candidate lets others go first."""
        return self._run(self._machine.set_writable, writable, now_ms)

    def use_settings(self, settings: Mapping[str, Any]) -> None:
        """Fields of `GroupConfig` that have these values from now on: limits, time-outs of pushes
        and acknowledgements, preferred leaders. Those that elections rest on never change."""
        self._machine.config = replace(self._machine.config, **settings)

    def set_members(
        self,
        index: Index,
        bound: Mapping[NodeId, int],
        now_ms: int,
        listed: tuple[Member, ...] = (),
        former: tuple[int, ...] = (),
    ) -> Ready:
        """The entry ``index``, which is committed and applied, says which incarnations count from
        now on; ``listed`` and ``former`` as in `Membership`."""
        return self._run(self._machine.set_members, index, bound, listed, former, now_ms)

    def refused(self, peer: NodeId, index: Index, listed: tuple[Member, ...]) -> Ready:
        """``peer``, a member, takes no connection from this node, which is in no list of its log;
        ``listed`` are the members by the committed entry ``index``."""
        return self._run(self._machine.removal.refused, peer, index, listed)

    def set_faulty(self, runs: Sequence[tuple[Index, Index]], now_ms: int) -> Ready:
        """These entries (first and last of each run) are damaged on this disk, and no others: until
        they are repaired this node asks for no votes, and hands over if it leads. A node without
        peers goes on: no other copy exists."""
        return self._run(self._machine.set_faulty, runs, now_ms)

    def repaired(self, entries: Sequence[Entry]) -> None:
        """Entries that were damaged are sound again; `set_faulty` names those left."""
        for entry in entries:
            self.log.correct(entry.index, entry.term)
        self._machine.admission.repaired(entries)
        self._machine.recount()

    def forget(self, begin_index: Index) -> None:
        """Retention moved ledgerBeginIndex."""
        self.log.forget(begin_index)

    # ---- questions

    def install_mode(self, first: Position) -> InstallMode | None:
        """How a state whose log begins at the committed entry ``first`` may take the place of this
        node's now; None when it may not. A caller that acts on it must stop using this node and
        rebuild one from disk.

        Raises:
            SafetyViolation: it contradicts a committed entry; stop the node (D7).
        """
        return install_mode(self._machine, first)

    def term_at(self, index: Index) -> Term | None:
        """Term of an entry; None when it is not in the log."""
        return self.log.term_at(index)

    @property
    def node_id(self) -> NodeId:
        return self._machine.me

    @property
    def role(self) -> Role:
        return self._machine.role

    @property
    def term(self) -> Term:
        return self._machine.term

    @property
    def term_is_spent(self) -> bool:
        """Whether there is no later term to ask for: no election can be held any more."""
        return self._machine.term_is_spent

    @property
    def refused_terms(self) -> dict[NodeId, Refused]:
        """The members whose terms were absurdly far ahead in this life."""
        return self._machine.terms.refused

    @property
    def leader_id(self) -> NodeId | None:
        """The leader, as far as this node knows: None while the connection from its leader has
        ended."""
        return None if self._machine.leader_is_gone else self._machine.leader_id

    @property
    def leader(self) -> Leader | None:
        """The state of this node's leadership, while it leads: what it accepts, and which
        proposals wait for their quorum. To be read alone; inputs are this class's methods."""
        return self._machine.leading

    @property
    def hard_state(self) -> HardState:
        return self._machine.hard_state()

    @property
    def begin_index(self) -> Index:
        return self.log.begin_index

    @property
    def end_index(self) -> Index:
        return self.log.end_index

    @property
    def end(self) -> LogEnd:
        return self.log.end

    @property
    def committed_index(self) -> Index:
        return self.log.committed_index

    @property
    def durable_index(self) -> Index:
        return self.log.durable_index

    @property
    def generation(self) -> int:
        """How often the log was cut in this life; see `persisted`."""
        return self.log.generation

    @property
    def noop_index(self) -> Index:
        """On a leader, where its term opened: once that is applied it knows all that was ever
        acknowledged. Else -1."""
        return NO_INDEX if (leader := self.leader) is None else leader.noop_index

    @property
    def watermarks(self) -> dict[NodeId, Index]:
        """On a leader, how far each member's durable log matches its own; else empty."""
        if self.leader is None:
            return {}
        followers = self.leader.dispatchers
        others = {peer: followers[peer].watermark for peer in self._machine.peers}
        return {self.node_id: self.log.durable_index, **others}

    @property
    def membership(self) -> Membership:
        """This node's incarnation, and those that it counts."""
        return self._machine.admission.membership

    @property
    def members(self) -> tuple[Member, ...]:
        """The newest list in the log, committed or not; empty: that of the settings, all voters."""
        return self._machine.admission.members

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """By `members`."""
        return self._machine.voters

    @property
    def is_removed(self) -> bool:
        """Whether the group has removed this node, by a list in force: it is to end."""
        return self._machine.is_removed

    @property
    def is_admitted(self) -> bool:
        """Whether it may vote and lead."""
        return self._machine.admission.is_admitted

    @property
    def tag(self) -> str:
        """The group, as messages name it; see `group_tag`."""
        return self._machine.tag

    @property
    def strangers(self) -> dict[NodeId, Stranger]:
        """The members by name that spoke for another group, or for another list of members, in this
        life."""
        return self._machine.watch.strangers

    @property
    def change(self) -> Change | None:
        """The change of the counted incarnations in this log that is not known to be committed: at
        most one at a time."""
        return self._machine.admission.pending

    def is_known(self, members_index: Index) -> bool:
        """On a leader, whether a quorum has durably saved the membership of that entry."""
        return self.leader is not None and self.leader.is_known(members_index)

    @property
    def awaits_founding(self) -> bool:
        """Whether it was told of no founding of its group yet."""
        return self._machine.founding.is_awaited

    @property
    def not_heard_yet(self) -> tuple[NodeId, ...]:
        """Of a founding that is awaited: the members that this node has not heard of."""
        return self._machine.founding.missing if self.awaits_founding else ()

    @property
    def heard(self) -> dict[NodeId, int]:
        """On a leader, the incarnation of each other member that has answered it; else empty."""
        followers = {} if self.leader is None else self.leader.dispatchers
        return {
            peer: one.incarnation for peer, one in followers.items() if one.incarnation is not None
        }

    def check(self) -> None:
        """Raise AssertionError if a promise is broken. Tests call it after every step."""
        check_promises(self._machine)

    # ---- inside

    def _leading(self) -> Leader:
        if (leader := self._machine.leading) is None:
            whom = self.leader_id or ""
            raise NotLeader(f"{self.node_id} does not lead; ask {whom or 'again later'}", whom)
        return leader

    def _run(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> Ready:
        if self._halted is not None:
            raise self._halted
        try:
            call(*args, **kwargs)
        except SafetyViolation as violation:
            self._halted = violation
            raise
        return self._machine.take()

    def _read_index(self, token: int) -> None:
        if self.leader is None:
            self._machine.out.reads.append(ReadDone(token, Code.NOT_LEADER, NO_INDEX))
        else:
            self.leader.read_index(token)

    def _transfer(self, to: NodeId | None, now_ms: int) -> None:
        if self.leader is None:
            self._machine.out.transfer = TransferDone(to or self.node_id, Code.NOT_LEADER)
        else:
            self.leader.transfer(to, now_ms)
