"""Votes: how one is given, and how a candidate counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final

from dledger.protocol.messages.peer import VoteRequest, VoteResponse, VoteResult
from dledger.raft.state.raft_state import RaftState
from dledger.types import NO_TERM, NodeId, Term


class VoteOutcome(Enum):
    """The outcome of a vote round; names are DLedger's."""

    WAIT_TO_REVOTE = "ask again for the same term, after a pause"
    REVOTE_IMMEDIATELY = "enough voters only had to learn the term first: ask them again at once"
    PASSED = "a quorum accepted"
    WAIT_TO_VOTE_NEXT = "this term is lost: ask for a later one, after a pause"


SILENT: Final = VoteResult.UNKNOWN


REFUSED_FOR_TERM: Final = (
    VoteResult.REJECT_EXPIRED_VOTE_TERM,
    VoteResult.REJECT_TERM_SMALL_THAN_LEDGER,
)


class VoteTally:
    """The answers of one round, the candidate's own vote among them."""

    def __init__(
        self,
        asked_term: Term,
        answers: Mapping[NodeId, tuple[VoteResult, Term]],
        *,
        pre_vote: bool = True,
    ) -> None:
        count = Counter(result for result, _ in answers.values())
        self.asked_term = asked_term
        self.known_max_term_in_group = max(
            (term for result, term in answers.values() if result in REFUSED_FOR_TERM),
            default=NO_TERM,
        )
        self.already_has_leader = pre_vote and VoteResult.REJECT_ALREADY_HAS_LEADER in count
        """A voter still has a leader: that ends a pre-vote. In the real round, for which a quorum
        has said that it has none, it is one refusal among others; else a voter that has not noticed
        yet would spend term after term."""
        self.valid = len(answers) - count[SILENT]
        self.bigger_ledgers = (
            count[VoteResult.REJECT_EXPIRED_LEDGER_TERM]
            + count[VoteResult.REJECT_SMALL_LEDGER_END_INDEX]
        )
        self.accepted = count[VoteResult.ACCEPT]
        self.not_ready = count[VoteResult.REJECT_TERM_NOT_READY]
        self.already_voted = VoteResult.REJECT_ALREADY_VOTED in count
        """A voter is in the asked term and has voted there: a pre-vote for it can only be lost,
        again and again."""

    def is_decided(self, quorum: int, members: int) -> bool:
        """Whether more answers would change nothing worth waiting for."""
        return (
            self.known_max_term_in_group > self.asked_term
            or self.already_has_leader
            or self.accepted + self.not_ready >= quorum
            or self.valid >= members
        )

    def outcome(self, quorum: int) -> VoteOutcome:
        """DLedger's decision, in DLedger's order."""
        if self.known_max_term_in_group > self.asked_term:
            return VoteOutcome.WAIT_TO_VOTE_NEXT
        if self.already_has_leader:
            return VoteOutcome.WAIT_TO_REVOTE
        # Voters with a longer log will not accept later in this round either. Without them fewer
        # than a quorum have answered, so the same term is asked for again.
        if self.valid < quorum or self.valid - self.bigger_ledgers < quorum:
            return VoteOutcome.WAIT_TO_REVOTE
        if self.accepted >= quorum:
            return VoteOutcome.PASSED
        if self.accepted + self.not_ready >= quorum:
            return VoteOutcome.REVOTE_IMMEDIATELY
        return VoteOutcome.WAIT_TO_VOTE_NEXT


def judge(core: RaftState, request: VoteRequest, now_ms: int) -> VoteResult:
    """This node's answer to ``request``, in DLedger's order; changes nothing.

    The ledger ends are compared by the durable end here: only durable entries were ever
    acknowledged, and a power cut may take the rest away again. REJECT_TERM_SMALL_THAN_LEDGER is
    never said: a node's term is not under its log's.
    """
    if request.local_id in core.known:
        return _judge(core, request, now_ms)
    if core.admission.membership.group_id:
        # This node's log may be behind the entry that made the candidate a member, and the group
        # may need this vote; or the candidate was removed, and is told to ask.
        result = _judge(core, request, now_ms)
        if result in {VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY}:
            return result
    return VoteResult.REJECT_UNKNOWN_LEADER


def _judge(core: RaftState, request: VoteRequest, now_ms: int) -> VoteResult:
    mine, theirs = core.log.durable, request.ledger_end
    if request.local_id == core.me:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    is_stranger = request.local_id not in core.known
    if not (
        core.may_vote
        and (is_stranger or core.admission.knows(request.local_id, request.incarnation))
    ):
        return VoteResult.REJECT_NOT_ADMITTED
    if theirs.term < mine.term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if theirs.term == mine.term and theirs.index < mine.index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    if request.term < core.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if request.term == core.term:
        if core.leader_id not in {None, request.local_id}:
            return VoteResult.REJECT_ALREADY_HAS_LEADER
        if core.voted_for not in {None, request.local_id}:
            return VoteResult.REJECT_ALREADY_VOTED
    elif core.leader_lives(now_ms) and not request.transfer:
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    # The voter takes the term first; the candidate then asks again, and the vote is of that term.
    elif not request.pre_vote:
        return VoteResult.REJECT_TERM_NOT_READY
    return VoteResult.ACCEPT


def answer_vote(
    core: RaftState, request: VoteRequest, now_ms: int, taking_leadership: bool
) -> None:
    """Answer ``request``, and remember the vote when it is given. A pre-vote changes nothing."""
    result = judge(core, request, now_ms)
    if (
        result is VoteResult.ACCEPT
        and taking_leadership
        and request.ledger_end <= core.log.end.position
    ):
        result = VoteResult.REJECT_TAKING_LEADERSHIP
    answer_term = core.term  # the old one with REJECT_TERM_NOT_READY, as DLedger answers it
    if result is VoteResult.REJECT_TERM_NOT_READY:
        core.become_candidate(request.term, now_ms)
    elif result is VoteResult.ACCEPT and not request.pre_vote:
        core.set_vote(request.term, request.local_id)
    core.out.fact(
        "vote",
        candidate=request.local_id,
        term=request.term,
        pre=int(request.pre_vote),
        result=result.name,
    )
    core.send(
        VoteResponse(
            group=core.tag,
            local_id=core.me,
            remote_id=request.local_id,
            term=answer_term,
            request_term=request.term,
            result=result,
            pre_vote=request.pre_vote,
            incarnation=core.admission.membership.incarnation,
        )
    )


class Candidate:
    """Asks for votes, round after round: a pre-vote that changes nothing, and when that passes, the
    real one.

    A term is asked for again only by the very candidate that first asked for it, and never once it
    has led in it or was restarted: entries of one term come from one log.

    ``again_soon``: this node saw the leader's connection end. A voter that still believes in the
    leader may be about to see the same, so it is asked once more after a vote interval and not
    after an election time.
    """

    def __init__(self, core: RaftState, now_ms: int, *, wait_ms: int) -> None:
        self.core = core
        self.next_time_to_request_vote_ms = now_ms + wait_ms
        self.last_outcome = VoteOutcome.WAIT_TO_REVOTE
        self.asked_term = NO_TERM
        self.pre_vote = True
        self.transfer = False
        self.again_soon = False
        self._stood_in: Term | None = None
        self._answers: dict[NodeId, tuple[VoteResult, Term]] = {}
        self._round_ends_ms: int | None = None

    @property
    def need_increase_term_immediately(self) -> bool:
        """Whether the next round asks for a new term: not when this candidate may still win the
        present one."""
        return (
            self._stood_in != self.core.term or self.last_outcome is VoteOutcome.WAIT_TO_VOTE_NEXT
        )

    @property
    def taking_leadership(self) -> bool:
        """Whether the old leader told this node to take over in the present term."""
        return self.transfer and self._stood_in == self.core.term

    def deadline_ms(self) -> int:
        return (
            self.next_time_to_request_vote_ms
            if self._round_ends_ms is None
            else self._round_ends_ms
        )

    def tick(self, now_ms: int) -> None:
        if now_ms < self.deadline_ms():
            return
        if self._round_ends_ms is not None:
            self._close_round(now_ms)
        elif not self.core.log.end_is_known or not self.core.can_lead or self.core.term_is_spent:
            self._pause(now_ms, 0)
        else:
            term = (
                Term(self.core.term + 1) if self.need_increase_term_immediately else self.core.term
            )
            self.open_round(term, now_ms, pre_vote=bool(self.core.peers))

    def open_round(self, term: Term, now_ms: int, *, pre_vote: bool) -> None:
        """Ask all members. A real round saves the new term and the own vote first."""
        core = self.core
        known = (
            self._answers if not pre_vote and self.asked_term == term and not self.pre_vote else {}
        )
        voters = [voter for voter in core.voters if voter != core.me]
        self._answers = dict.fromkeys(voters, (SILENT, NO_TERM))
        # A given vote is durable at its voter and binds it for the term, so a repeated round keeps
        # it. A pre-vote binds no voter, and is asked for again.
        self._answers |= {
            peer: answer for peer, answer in known.items() if answer[0] is VoteResult.ACCEPT
        }
        if core.me in core.voters:
            self._answers[core.me] = (VoteResult.ACCEPT, term)
        self.asked_term, self.pre_vote = term, pre_vote
        if not pre_vote:
            core.set_vote(term, core.me)
            self._stood_in = term
        self._round_ends_ms = (
            now_ms + core.config.vote_interval_ms + core.draw(core.config.vote_interval_ms)
        )
        core.out.fact("ask_votes", term=term, pre=int(pre_vote))
        for peer in voters:
            if self._answers[peer][0] is SILENT:
                self._ask(peer)
        self._count(now_ms)

    def relisted(self) -> None:
        """Others vote than those who were asked: the round says nothing any more."""
        self._answers = {}
        self._round_ends_ms = None

    def on_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        """Count an answer to this very round. A late answer says nothing about it, and an answer of
        a member that does not count is ignored."""
        if not self.core.admission.counts(response.local_id, response.incarnation):
            return
        if (
            self._round_ends_ms is None
            or response.request_term != self.asked_term
            or response.pre_vote is not self.pre_vote
            or response.local_id not in self._answers
            or self._answers[response.local_id][0] is VoteResult.ACCEPT
        ):
            return
        self._answers[response.local_id] = (response.result, response.term)
        self._count(now_ms)

    def peer_found(self, peer: NodeId, now_ms: int) -> None:
        """Ask the members again that could not be reached, as long as the round is open."""
        if self._round_ends_ms is not None and self._answers.get(peer, (None,))[0] is SILENT:
            self._ask(peer)

    def _ask(self, peer: NodeId) -> None:
        core = self.core
        core.send(
            VoteRequest(
                group=core.tag,
                local_id=core.me,
                remote_id=peer,
                term=self.asked_term,
                ledger_end=core.log.end.position,
                pre_vote=self.pre_vote,
                transfer=self.transfer,
                incarnation=core.admission.membership.incarnation,
            )
        )

    def _count(self, now_ms: int) -> None:
        tally = VoteTally(self.asked_term, self._answers, pre_vote=self.pre_vote)
        if tally.is_decided(self.core.quorum, len(self.core.voters)):
            self._close_round(now_ms)

    def _close_round(self, now_ms: int) -> None:
        core, interval = self.core, self.core.config.vote_interval_ms
        tally = VoteTally(self.asked_term, self._answers, pre_vote=self.pre_vote)
        outcome = self.last_outcome = tally.outcome(core.quorum)
        self._round_ends_ms = None
        core.out.fact(
            "vote_round", term=self.asked_term, pre=int(self.pre_vote), outcome=outcome.name
        )
        if outcome is VoteOutcome.PASSED and not core.can_lead:  # damage was found meanwhile
            self._pause(now_ms, 0)
        elif outcome is VoteOutcome.PASSED and self.pre_vote:
            self.last_outcome = VoteOutcome.WAIT_TO_REVOTE
            self.open_round(self.asked_term, now_ms, pre_vote=False)
        elif outcome is VoteOutcome.PASSED:
            core.become_leader(now_ms)
        elif outcome is VoteOutcome.REVOTE_IMMEDIATELY:
            self.open_round(self.asked_term, now_ms, pre_vote=self.pre_vote)
        elif tally.known_max_term_in_group > self.asked_term:
            core.become_candidate(tally.known_max_term_in_group, now_ms)
        elif tally.already_has_leader:
            self._pause(now_ms, 0 if self.again_soon else core.config.election_ms)
            self.again_soon = False
        elif self.pre_vote and tally.already_voted and self.asked_term > core.term:
            # the term is there, so the next one is to be asked for
            core.become_candidate(self.asked_term, now_ms)
        else:
            self._pause(
                now_ms,
                2 * interval
                if tally.valid - tally.bigger_ledgers < core.quorum <= tally.valid
                else 0,
            )

    def _pause(self, now_ms: int, more_ms: int) -> None:
        core = self.core
        if not core.writable:
            more_ms += core.config.election_ms  # a leader with a full disk is only better than none
        self.next_time_to_request_vote_ms = (
            now_ms + core.draw(core.config.vote_interval_ms) + more_ms
        )
        self.transfer = False
