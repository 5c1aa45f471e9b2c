"""One node's rules that do not depend on its role: which messages it accepts, terms, and how roles
change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dledger.config import GroupConfig
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry_runs import NO_ENTRIES
from dledger.protocol.messages.membership import Member
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MemberRequest,
    MemberResponse,
    PeerMessage,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.roles import leadership_transfer as transfer
from dledger.raft.roles.entry_handler import Follower
from dledger.raft.roles.founding import Founding
from dledger.raft.roles.leader import Leader
from dledger.raft.roles.leader_elector import Candidate, answer_vote
from dledger.raft.roles.leadership_transfer import TransferWatch
from dledger.raft.roles.removal import Removal
from dledger.raft.state.raft_state import RaftState
from dledger.raft.state.ready import IDLE, Ready, RoleChange
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.raft.state.terms import TermWatch
from dledger.types import NO_TERM, Index, NodeId, Role, Term


class Machine(RaftState):
    """A node as a state machine. ``acting`` does the work of the present role; only ``become_*``
    replace it."""

    def __init__(
        self,
        config: GroupConfig,
        node_id: NodeId,
        *,
        saved: SavedState,
        dice: Callable[[int], int],
        now_ms: int,
        options: RaftOptions,
    ) -> None:
        super().__init__(config, node_id, saved=saved, dice=dice, options=options)
        self.transfers = TransferWatch(self)
        self.terms = TermWatch(self)
        # Short, because a pre-vote disturbs no leader; a lone node has no other node to wait for.
        wait_ms = config.vote_interval_ms + dice(2 * config.vote_interval_ms) if self.peers else 0
        self.acting: Candidate | Follower | Leader = Candidate(self, now_ms, wait_ms=wait_ms)
        self.leading: Leader | None = None
        """`acting`, while this node leads."""
        self.removal = Removal(self)
        self.founding = Founding(self, now_ms, removal=self.removal)
        self._told = RoleChange(self.role, self.term, self.leader_id)
        self._told_members = self.admission.reached
        self.admission.on_list = self._relisted

    def become_candidate(self, term: Term, now_ms: int, wait_ms: int | None = None) -> None:
        self._leave()
        if term > self.term:
            self.set_vote(term, None)
        self.role, self.leader_id, self.leader_is_gone = Role.CANDIDATE, None, False
        wait_ms = self.draw(self.config.vote_interval_ms) if wait_ms is None else wait_ms
        self.acting = Candidate(self, now_ms, wait_ms=wait_ms)

    def become_follower(self, term: Term, leader_id: NodeId, now_ms: int) -> None:
        assert leader_id != self.me, "a node does not follow itself"
        self._leave()
        if term > self.term:
            self.set_vote(term, None)
        self.role, self.leader_id = Role.FOLLOWER, leader_id
        self.acting = Follower(self, now_ms)
        self.removal.followed()
        self.transfers.look(now_ms)

    def become_leader(self, now_ms: int) -> None:
        assert self.role is Role.CANDIDATE, f"{self.role.name} cannot become leader"
        assert self.voted_for == self.me, f"leads term {self.term} but voted for {self.voted_for}"
        self.role, self.leader_id = Role.LEADER, self.me
        self.transfers.end()
        self.acting = self.leading = leader = Leader(self, self.transfers, now_ms=now_ms)
        leader.start(now_ms)

    def _relisted(self) -> None:
        voters = self.voters
        self.relist()
        if isinstance(self.acting, Candidate) and set(voters) != set(self.voters):
            self.acting.relisted()
        self.removal.relisted()

    def recount(self) -> None:
        if isinstance(self.acting, Leader):
            self.acting.recount()

    def set_members(
        self,
        index: Index,
        bound: Mapping[NodeId, int],
        listed: tuple[Member, ...],
        former: tuple[int, ...],
        now_ms: int,
    ) -> None:
        admission = self.admission
        known, term = (
            admission.membership,
            self.log.term_at(index) if index <= self.log.committed_index else None,
        )
        is_known = index == known.index and (term is None or known.term == term)
        if index < known.index or is_known or index <= admission.shared_index:
            return
        was = admission.is_admitted
        term = NO_TERM if term is None else term
        admission.bind(index, bound.items(), term, listed, former)
        if admission.is_admitted and not was:
            self.out.fact("admitted", node=self.me, index=index)
        if isinstance(self.acting, Leader):
            self.acting.membership_changed(now_ms)

    def set_faulty(self, runs: Sequence[tuple[Index, Index]], now_ms: int) -> None:
        self.log.faulty = tuple(runs)
        self.admission.damage_known()
        self.recount()
        self.out.fact("faulty", runs=len(runs))
        if not self.can_lead and isinstance(self.acting, Leader):
            self.acting.hand_over(self.peers, now_ms)

    def set_writable(self, writable: bool, now_ms: int) -> None:
        self.writable = writable
        if not writable and isinstance(self.acting, Leader):
            self.acting.hand_over(self.peers, now_ms)

    def campaign(self, now_ms: int, *, transfer: bool = False, again_soon: bool = False) -> None:
        candidate = self.acting
        assert isinstance(candidate, Candidate), f"{self.role.name} asks for no votes"
        candidate.transfer, candidate.again_soon = transfer, again_soon
        if transfer:
            candidate.open_round(Term(self.term + 1), now_ms, pre_vote=False)
        else:
            candidate.tick(now_ms)

    def deadline_ms(self) -> int:
        transfer, founding = self.transfers.ongoing, self.founding
        deadline = self.acting.deadline_ms()
        if self.role is Role.CANDIDATE or founding.settled is not self.admission.membership:
            deadline = min(deadline, founding.deadline_ms())
        return deadline if transfer is None else min(deadline, transfer.deadline_ms)

    def tick(self, now_ms: int) -> None:
        self.founding.tick(now_ms)
        self.transfers.look(now_ms)
        self.acting.tick(now_ms)

    def peer_lost(self, peer: NodeId, now_ms: int) -> None:
        if isinstance(self.acting, Follower) and peer == self.leader_id:
            self.acting.leader_gone(now_ms)

    def peer_found(self, peer: NodeId, now_ms: int) -> None:
        if peer not in self.peers:
            return
        self.founding.ask(peer)
        if not isinstance(self.acting, Follower):
            self.acting.peer_found(peer, now_ms)

    def step(self, message: PeerMessage, now_ms: int) -> None:
        """Take a message in, after checking its group, receiver, sender and term, in that order
        (D6, D14)."""
        is_of_group = message.group == self.tag and self.watch.is_known
        if message.remote_id != self.me or not (
            is_of_group or self.watch.may_hear(message, now_ms)
        ):
            self._refuse(
                message, Code.UNKNOWN_GROUP if message.remote_id == self.me else Code.UNKNOWN_MEMBER
            )
        elif (
            message.term > self.term
            and message.local_id != self.me
            and (message.local_id in self.peers or self._may_be_member(message))
            and self.terms.refuses(message, now_ms)
        ):
            return
        elif type(message) is VoteRequest:
            is_taking = isinstance(self.acting, Candidate) and self.acting.taking_leadership
            answer_vote(self, message, now_ms, is_taking)
        elif message.local_id not in self.peers and not self._may_be_member(message):
            self._refuse(
                message,
                Code.UNEXPECTED_MEMBER if message.local_id == self.me else Code.UNKNOWN_MEMBER,
            )
        elif type(message) is PushEntryResponse:  # the most frequent ones first
            self._on_response(message, now_ms)
        elif type(message) is PushEntryRequest:
            self._on_push(message, now_ms)
        elif isinstance(message, HeartBeatRequest):
            self._answer_beat(message, self._on_heartbeat(message, now_ms))
        elif isinstance(message, LeadershipTransferRequest):
            transfer.on_request(self, message, now_ms)
        elif isinstance(message, MemberRequest):
            self.founding.on_request(message)
        elif isinstance(message, MemberResponse):
            self.founding.on_response(message, now_ms)
        else:
            self._on_response(message, now_ms)

    def _may_be_member(self, message: PeerMessage) -> bool:
        """Whether a sender that is not in the newest list here is heard: one of the list before, or
        one of the group that a list may have of which this log has nothing yet. What it may do to
        this node, term and log decide, as for members. Strangers to the group may ask who is in
        it."""
        return message.local_id != self.me and (
            message.local_id in self.known
            or isinstance(message, MemberRequest | MemberResponse)
            or bool(self.admission.membership.group_id)
        )

    def take(self) -> Ready:
        """The effects of the last call; `IDLE` when it is nothing."""
        out, told, role = self.out, self._told, None
        if told.role is not self.role or told.term != self.term or told.leader_id != self.leader_id:
            self._told = role = RoleChange(self.role, self.term, self.leader_id)
        membership = self.admission.take() if self.admission.unsaved else None
        members = None
        if (reached := self.admission.reached) is not self._told_members:
            self._told_members = members = reached
        if not (
            out.append.runs
            or out.messages
            or out.facts
            or out.save
            or membership
            or members is not None
            or role
            or out.finished
            or out.load
            or out.install
            or out.reads
            or out.transfer
            or out.committed is not None
            or out.truncate_to is not None
        ):
            return IDLE
        ready = Ready(
            hard_state=self.hard_state() if out.save else None,
            membership=membership,
            truncate_to=out.truncate_to,
            append=out.append,
            messages=tuple(out.messages) if out.messages else (),
            committed=out.committed,
            finished=tuple(out.finished) if out.finished else (),
            load=tuple(out.load) if out.load else (),
            install=out.install,
            reads=tuple(out.reads) if out.reads else (),
            role=role,
            members=members,
            transfer=out.transfer,
            facts=tuple(out.facts) if out.facts else (),
        )
        out.save = False
        out.truncate_to = out.committed = out.transfer = out.install = None
        out.append = NO_ENTRIES
        for collected in (
            out.messages,
            out.finished,
            out.load,
            out.reads,
            out.facts,
        ):
            if collected:  # most are empty, at each of several inputs a request
                del collected[:]
        return ready

    def _leave(self) -> None:
        if self.leading is not None:
            self.leading.stop()
            self.leading = None

    def _on_heartbeat(self, request: HeartBeatRequest, now_ms: int) -> Code:
        if request.leader_id != request.local_id:
            return (
                Code.UNKNOWN_MEMBER
                if request.leader_id not in self.known
                else Code.INCONSISTENT_LEADER
            )
        if request.term < self.term:
            return Code.EXPIRED_TERM
        if request.term > self.term:
            self.become_candidate(request.term, now_ms)
            return Code.TERM_NOT_READY
        code = self._follow(request.leader_id, now_ms)
        if (
            code is Code.SUCCESS
            and request.lost
            and request.lost == self.admission.membership.incarnation
        ):
            self.admission.renew(1 + self.dice((1 << 63) - 2))
            self.out.fact("data_lost", node=self.me, leader=request.leader_id)
        return code

    def _follow(self, leader_id: NodeId, now_ms: int) -> Code:
        """The node ``leader_id`` leads the present term: SUCCESS unless another leader of it is
        known."""
        if self.leader_id is None:
            self.become_follower(self.term, leader_id, now_ms)
        if self.leader_id != leader_id:
            self.out.fact(
                "two_leaders_in_a_term", term=self.term, known=str(self.leader_id), claims=leader_id
            )
            return Code.INCONSISTENT_LEADER
        self.heard_leader_ms = now_ms
        self.leader_is_gone = False
        return Code.SUCCESS

    def _on_push(self, request: PushEntryRequest, now_ms: int) -> None:
        if request.leader_id != request.local_id:
            code = (
                Code.UNKNOWN_MEMBER
                if request.leader_id not in self.known
                else Code.INCONSISTENT_LEADER
            )
        elif request.term < self.term:
            code = Code.EXPIRED_TERM
        else:
            if request.term > self.term:  # a node that pushes was elected
                self.become_follower(request.term, request.leader_id, now_ms)
            code = self._follow(request.leader_id, now_ms)
        if code is Code.SUCCESS:
            assert isinstance(self.acting, Follower)
            self.acting.on_push(request)
            if self.is_unlisted:
                self.removal.pushed(request)
        else:
            self.send(
                PushEntryResponse(
                    group=self.tag,
                    local_id=self.me,
                    remote_id=request.local_id,
                    term=self.term,
                    type=request.type,
                    code=code,
                    incarnation=self.admission.membership.incarnation,
                )
            )

    def _answer_beat(self, request: HeartBeatRequest, code: Code) -> None:
        self.send(
            HeartBeatResponse(
                **self.header(request.local_id),
                code=code,
                round=request.round,
                incarnation=self.admission.membership.incarnation,
                durable_index=self.log.durable_index,
                members_index=self.admission.membership.index,
            )
        )

    def _on_response(self, response: PeerMessage, now_ms: int) -> None:
        """An answer counts in its term only; one of a later term ends a leadership."""
        if type(response) is VoteResponse:
            if response.result is VoteResult.REJECT_UNKNOWN_LEADER:
                self.founding.inquire(response.local_id)
            if isinstance(self.acting, Candidate):
                self.acting.on_vote_response(response, now_ms)
        elif response.term > self.term:
            self.out.fact("later_term_seen", term=response.term, node=response.local_id)
            self.become_candidate(response.term, now_ms)
        elif response.term < self.term or (leader := self.leading) is None:
            return
        elif type(response) is PushEntryResponse:
            leader.on_push_response(response, now_ms)
        elif type(response) is HeartBeatResponse:
            leader.on_heartbeat_response(response, now_ms)
        elif type(response) is LeadershipTransferResponse:
            leader.on_transfer_response(response)

    def _refuse(self, message: PeerMessage, code: Code) -> None:
        """The message is for another node, or from no member: answer where an answer helps, and
        leave a trace."""
        self.out.fact(
            "stray",
            message=type(message).__name__,
            group=message.group,
            sender=message.local_id,
            code=code.name,
        )
        if message.group == self.tag and isinstance(message, HeartBeatRequest):
            self._answer_beat(message, code)
