"""How far a term may jump, and where terms end: no message can take away the terms that elections
need."""

from __future__ import annotations

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import (
    LeadershipTransferResponse,
    MemberRequest,
    VoteRequest,
    VoteResult,
)
from dledger.raft.raft_node import RaftNode
from dledger.types import MAX_TERM, TERM_JUMP, Index, Position, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    INSTALL,
    N0,
    N1,
    N2,
    answer,
    asked,
    beat,
    beat_answer,
    events,
    follow,
    following,
    lead,
    log_of,
    message,
    node_with,
    push,
    pushed,
    sent,
    take_over,
    ticks,
    vote,
)

WIRE_MAX = (1 << 63) - 1


def state(node: RaftNode) -> tuple[object, ...]:
    return node.term, node.role, node.leader_id, node.hard_state, node.end, node.membership


def absurd_messages(term: int):
    """One message of each kind that says ``term``, to a node that leads term 5 or follows its
    leader."""
    bench = node_with(5, term=5)
    yield vote(term, end=(5, 9))
    yield vote(term, end=(5, 9), pre=True)
    yield vote(term, end=(5, 9), transfer=True)
    yield answer(vote(6, of=N0, to=N1), VoteResult.REJECT_EXPIRED_VOTE_TERM, term=term)
    yield beat(term)
    yield beat_answer(bench, N1, 1, term=term)
    yield push(APPEND, term, previous=(5, 0), entries=log_of(5, term)[1:])
    yield push(INSTALL, term, previous=(term, 50), commit=50)
    yield pushed(bench, N1, APPEND, 0, term=term)
    yield take_over(N1, term, 0)
    yield message(LeadershipTransferResponse, N1, N0, term, code=Code.SUCCESS)
    yield message(MemberRequest, N1, N0, term, incarnation=0, nonce=1)


@pytest.mark.parametrize("term", [5 + TERM_JUMP + 1, MAX_TERM, MAX_TERM + 1, WIRE_MAX])
def test_message_of_an_absurd_term_changes_nothing_and_is_reported(term):
    """The report names the node from which the message came."""
    for absurd in absurd_messages(term):
        node = node_with(5, term=5)
        follow(node, 5, leader=N2)
        before = state(node)
        ready = node.step(absurd, 0)
        assert state(node) == before, absurd
        assert (ready.hard_state, ready.messages) == (None, ())
        assert events(ready) == ["term_refused"], absurd
        assert dict(ready.facts[0].about)["node"] == "n1"
        assert node.refused_terms[N1].term == term


def test_leader_and_candidate_keep_their_roles_at_an_absurd_term():
    leader = node_with(5, term=5)
    _, now_ms = lead(leader)
    for absurd in absurd_messages(WIRE_MAX):
        leader.step(absurd, now_ms)
    assert (leader.role, leader.term) == (Role.LEADER, 6)
    candidate = node_with(5, term=5)
    _, requests, now_ms = asked(candidate)
    refusal = answer(requests[0], VoteResult.REJECT_EXPIRED_VOTE_TERM, term=WIRE_MAX)
    candidate.step(refusal, now_ms)
    assert candidate.term == 5


def test_a_node_that_was_away_for_years_follows_the_term_that_it_finds():
    node = node_with(5, term=5)
    follow(node, 5 + TERM_JUMP)
    assert (node.role, node.term) == (Role.FOLLOWER, 5 + TERM_JUMP)


def test_push_with_entries_of_a_later_term_than_its_leaders_is_not_taken():
    node = following(5)
    ready = node.step(push(APPEND, 5, previous=(5, 0), entries=log_of(5, WIRE_MAX)[1:]), 0)
    assert not ready.append
    assert node.end.position == Position(Term(5), node.end_index)


def test_state_that_begins_in_a_later_term_is_not_taken_over():
    """The term of the node itself is what the first entry of the state is compared with."""
    node = following(5)
    ready = node.step(push(INSTALL, 5, previous=(6, 50), commit=50), 0)
    assert ready.install is None
    assert node.install_mode(Position(Term(6), Index(50))) is None


@pytest.mark.parametrize("term", [MAX_TERM, WIRE_MAX])
def test_a_node_whose_term_is_spent_asks_for_no_votes_and_says_so(term):
    """A later term would have no room on the wire, so no election can be held: only `dledger
    reset-term` helps."""
    node = node_with(5, term=term)
    facts, requests = [], []
    for _, ready in ticks(node, most=50):
        facts += events(ready)
        requests += sent(ready, VoteRequest)
    assert requests == []
    assert facts.count("term_spent") == 1
    assert node.term == term
    assert node.term_is_spent


def test_leader_of_the_last_term_leads_on_and_no_node_takes_over():
    node = node_with(5, term=MAX_TERM - 1)
    lead(node)
    assert node.term == MAX_TERM
    follower = node_with(5, term=MAX_TERM)
    follow(follower, MAX_TERM)
    ready = follower.step(take_over(N1, MAX_TERM, 0), 0)
    assert not sent(ready, VoteRequest)
    assert follower.role is Role.FOLLOWER


def test_what_is_refused_is_told_once_in_a_while_and_counted_always():
    node = node_with(5, term=5)
    told = sum(len(node.step(beat(WIRE_MAX), now_ms).facts) for now_ms in range(0, 25_000, 10))
    assert told == 3
    assert node.refused_terms[N1].messages == 2500
