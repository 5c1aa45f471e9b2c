"""Votes in DLedger's words: the table of answers, the order of outcomes, and what pre-votes
protect."""

from __future__ import annotations

import pytest

from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.peer import VoteRequest, VoteResponse, VoteResult
from dledger.raft.roles.leader_elector import VoteOutcome, VoteTally
from dledger.types import NO_TERM, NodeId, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    N0,
    N1,
    N2,
    TRUNCATE,
    answer,
    asked,
    asking,
    beat,
    config,
    elected,
    follow,
    log_of,
    node_with,
    only,
    push,
    sent,
    ticks,
    vote,
    voted,
)

ACCEPT = VoteResult.ACCEPT
SILENT = VoteResult.UNKNOWN


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (vote(2, (1, 1), of=N1), ACCEPT),
        (vote(2, (0, 9)), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (vote(2, (1, 0)), VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
        (vote(9, (0, 9)), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (vote(1, (1, 1)), VoteResult.REJECT_EXPIRED_VOTE_TERM),
        (vote(3, (1, 1)), VoteResult.REJECT_TERM_NOT_READY),
        (vote(3, (1, 1), pre=True), ACCEPT),
        (vote(1, (1, 1), pre=True), VoteResult.REJECT_EXPIRED_VOTE_TERM),
    ],
    ids=str,
)
def test_a_node_of_term_2_that_has_entries_up_to_1_of_term_1_answers(request_, result):
    """The log is looked at before the term, as in DLedger, so a shorter log never makes anybody
    take up a term."""
    assert voted(node_with(0, 1, term=2), request_) is result


def test_a_shorter_log_with_a_high_term_changes_nothing():
    node = node_with(0, 1, term=2)
    assert node.step(vote(9, (0, 9)), 0).hard_state is None
    assert node.term == 2


def test_a_vote_is_saved_with_its_answer_and_given_once():
    node = node_with(0, 1, term=2)
    ready = node.step(vote(2, (1, 1), of=N1), 0)
    assert (ready.hard_state.term, ready.hard_state.voted_for) == (2, N1)
    assert voted(node, vote(2, (5, 9), of=N2)) is VoteResult.REJECT_ALREADY_VOTED
    assert voted(node, vote(2, (1, 1), of=N1)) is ACCEPT, (
        "the same candidate asks again when an answer was lost"
    )


def test_a_vote_survives_a_restart():
    node = node_with(0, 1, term=2, voted_for=N1)
    assert voted(node, vote(2, (1, 1), of=N2)) is VoteResult.REJECT_ALREADY_VOTED


def test_a_later_term_is_taken_up_first_and_voted_in_when_asked_again():
    """DLedger's REJECT_TERM_NOT_READY: the answer has the old term, the voter is in the new one."""
    node = node_with(0, term=2)
    ready = node.step(vote(7, (0, 0)), 0)
    assert only(ready, VoteResponse).result is VoteResult.REJECT_TERM_NOT_READY
    assert only(ready, VoteResponse).term == 2
    assert ready.hard_state.term == 7
    assert voted(node, vote(7, (0, 0))) is ACCEPT


def test_a_follower_of_a_known_leader_says_so():
    node = node_with(0, term=2, voted_for=N1)
    follow(node, 2, N1)
    assert voted(node, vote(2, (0, 0), of=N2)) is VoteResult.REJECT_ALREADY_HAS_LEADER


@pytest.mark.parametrize("pre", [True, False])
def test_a_living_leader_is_not_voted_away_however_high_the_term(pre):
    node = node_with(0, term=2)
    follow(node, 2, N1, now_ms=100)
    assert (
        voted(node, vote(9, (0, 0), of=N2, pre=pre), 1099) is VoteResult.REJECT_ALREADY_HAS_LEADER
    )
    assert node.term == 2
    assert node.leader_id == N1


def test_a_silent_leader_protects_nobody():
    node = node_with(0, term=2)
    follow(node, 2, N1, now_ms=100)
    assert voted(node, vote(3, (0, 0), of=N2, pre=True), 1100) is ACCEPT


def test_a_leader_is_not_voted_away_unless_it_asked_for_that():
    node, now_ms = elected(0)
    assert voted(node, vote(9, (9, 9), pre=True), now_ms) is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert voted(node, vote(9, (9, 9)), now_ms) is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert node.role is Role.LEADER
    assert voted(node, vote(9, (9, 9), transfer=True), now_ms) is VoteResult.REJECT_TERM_NOT_READY
    assert node.role is Role.CANDIDATE


def test_a_pre_vote_changes_nothing_on_the_voter():
    node = node_with(0, term=2)
    assert voted(node, vote(3, (0, 0), of=N1, pre=True)) is ACCEPT
    assert voted(node, vote(3, (0, 0), of=N2, pre=True)) is ACCEPT
    assert (node.term, node.hard_state.voted_for) == (2, None)


def test_a_stranger_and_a_twin_get_no_vote():
    node = node_with(0, term=2)
    for name, result in ((NodeId("n9"), "REJECT_UNKNOWN_LEADER"), (N0, "REJECT_UNEXPECTED_LEADER")):
        ready = node.step(vote(3, (9, 9), of=name), 0)
        assert (ready.messages, node.term) == ((), 2)
        assert any(result in str(fact) for fact in ready.facts)


def test_a_voter_compares_by_what_is_durable():
    """Entries that wait for the disk were never acknowledged: a candidate without them may win."""
    node = node_with(0, term=1)
    node.step(push(APPEND, 1, (0, 0), log_of(0, 1)[1:]), 0)
    assert node.end_index == 1
    assert voted(node, vote(2, (0, 0), of=N2, pre=True), 5000) is ACCEPT
    node.persisted(node.end.position, 5000)
    assert (
        voted(node, vote(2, (0, 0), of=N2, pre=True), 5000) is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    )


def tally(*answers, asked=5, own=True):
    """``answers`` are results, or (result, term of the voter)."""
    full = {N0: (ACCEPT, Term(asked))} if own else {}
    for i, given in enumerate(answers, 1):
        full[NodeId(f"n{i}")] = given if isinstance(given, tuple) else (given, Term(asked))
    return VoteTally(Term(asked), full)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((ACCEPT, SILENT), VoteOutcome.PASSED),
        ((SILENT, SILENT), VoteOutcome.WAIT_TO_REVOTE),
        ((VoteResult.REJECT_TERM_NOT_READY, SILENT), VoteOutcome.REVOTE_IMMEDIATELY),
        (
            (VoteResult.REJECT_ALREADY_VOTED, VoteResult.REJECT_ALREADY_VOTED),
            VoteOutcome.WAIT_TO_VOTE_NEXT,
        ),
        (
            (VoteResult.REJECT_TAKING_LEADERSHIP, VoteResult.REJECT_ALREADY_VOTED),
            VoteOutcome.WAIT_TO_VOTE_NEXT,
        ),
        (
            (VoteResult.REJECT_SMALL_LEDGER_END_INDEX, VoteResult.REJECT_EXPIRED_LEDGER_TERM),
            VoteOutcome.WAIT_TO_REVOTE,
        ),
        ((VoteResult.REJECT_ALREADY_HAS_LEADER, ACCEPT), VoteOutcome.WAIT_TO_REVOTE),
        (((VoteResult.REJECT_EXPIRED_VOTE_TERM, Term(9)), ACCEPT), VoteOutcome.WAIT_TO_VOTE_NEXT),
        (
            ((VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, Term(9)), SILENT),
            VoteOutcome.WAIT_TO_VOTE_NEXT,
        ),
        (
            ((VoteResult.REJECT_EXPIRED_VOTE_TERM, Term(9)), VoteResult.REJECT_ALREADY_HAS_LEADER),
            VoteOutcome.WAIT_TO_VOTE_NEXT,
        ),
        ((ACCEPT, VoteResult.REJECT_TERM_NOT_READY), VoteOutcome.PASSED),
    ],
)
def test_the_outcome_of_a_round_is_decided_in_dledgers_order(answers, outcome):
    """A higher term first, then a known leader, too few answers, too many bigger logs, acceptance,
    not ready."""
    assert tally(*answers).outcome(quorum=2) is outcome


def test_a_round_is_open_while_answers_can_still_matter():
    assert not tally(SILENT, SILENT).is_decided(2, 3)
    assert not tally(VoteResult.REJECT_ALREADY_VOTED, SILENT).is_decided(2, 3)
    assert tally(
        VoteResult.REJECT_ALREADY_VOTED, VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    ).is_decided(2, 3)
    assert tally(ACCEPT, SILENT).is_decided(2, 3)


def test_candidate_asks_for_pre_votes_before_it_raises_its_term():
    node = node_with(0, term=4)
    ready, requests, now_ms = asked(node)
    assert [(r.term, r.pre_vote) for r in requests] == [(5, True), (5, True)]
    assert ready.hard_state is None
    assert node.term == 4

    ready = node.step(answer(requests[0], ACCEPT), now_ms)
    assert (ready.hard_state.term, ready.hard_state.voted_for) == (5, N0)
    assert [(r.term, r.pre_vote) for r in sent(ready, VoteRequest)] == [(5, False), (5, False)]

    node.step(answer(sent(ready, VoteRequest)[0], ACCEPT), now_ms)
    assert (node.role, node.term) == (Role.LEADER, 5)


def test_an_isolated_node_keeps_its_term():
    """Nobody answers, so however long it is away it disturbs nobody when it comes back."""
    node = node_with(0, term=4)
    for _ in range(50):
        asked(node)
    assert node.term == 4


def test_a_candidate_asks_the_ones_that_were_not_ready_again_at_once():
    node, requests, now_ms = asking(0, term=4)
    ready = node.step(answer(requests[0], ACCEPT), now_ms)
    ready = node.step(
        answer(sent(ready, VoteRequest)[0], VoteResult.REJECT_TERM_NOT_READY, term=4), now_ms
    )
    again = sent(ready, VoteRequest)
    assert [(r.remote_id, r.term, r.pre_vote) for r in again] == [(N1, 5, False), (N2, 5, False)]
    node.step(answer(again[0], ACCEPT), now_ms)
    assert node.role is Role.LEADER


def test_a_higher_term_in_an_answer_is_taken_up():
    node, requests, now_ms = asking(0, term=4)
    ready = node.step(answer(requests[0], VoteResult.REJECT_EXPIRED_VOTE_TERM, term=8), now_ms)
    assert (node.term, ready.hard_state.term, node.role) == (8, 8, Role.CANDIDATE)
    _, requests, _ = asked(node)
    assert requests[0].term == 9


def test_a_term_in_which_a_voter_has_voted_already_is_not_asked_for_again():
    """Two of three live: one has the longer log, the other one voted for itself in a later term
    before it was heard of. Nobody but the first can win, and not before it has learned of that
    term."""
    node = node_with(1, 1, term=1)
    other = node_with(1, term=2, voted_for=N1, me=N1)
    asked_terms = []
    for _ in range(4):
        _, requests, now_ms = asked(node)
        request = next(r for r in requests if r.remote_id == N1)
        asked_terms.append((request.term, request.pre_vote))
        ready = node.step(only(other.step(request, 10**9), VoteResponse), now_ms)
        while requests := [r for r in sent(ready, VoteRequest) if r.remote_id == N1]:
            asked_terms.append((requests[0].term, requests[0].pre_vote))
            ready = node.step(only(other.step(requests[0], 10**9), VoteResponse), now_ms)
        if node.role is Role.LEADER:
            break
        node.tick(node.deadline_ms())  # nobody else answers
    assert asked_terms[:3] == [(2, True), (3, True), (3, False)]
    assert (node.role, node.term) == (Role.LEADER, 3)


def test_a_known_leader_makes_a_candidate_wait_longer():
    node, requests, now_ms = asking(0, term=4)
    node.step(answer(requests[0], VoteResult.REJECT_ALREADY_HAS_LEADER), now_ms)
    assert node.deadline_ms() - now_ms >= config().election_ms


def test_quorum_without_leader_is_not_delayed_by_voter_that_has_one():
    """The pre-vote has passed: the real round goes on to its end, in one term."""
    node, requests, now_ms = asking(0, term=4, group=config(5))
    for request in requests[:2]:
        ready = node.step(answer(request, ACCEPT), now_ms)
    real = sent(ready, VoteRequest)
    assert [(r.term, r.pre_vote) for r in real] == [(5, False)] * 4
    node.step(answer(real[2], VoteResult.REJECT_ALREADY_HAS_LEADER), now_ms)
    for request in real[:2]:
        ready = node.step(answer(request, VoteResult.REJECT_TERM_NOT_READY, term=4), now_ms)
    again = sent(ready, VoteRequest)
    for request in again[:2]:
        node.step(answer(request, ACCEPT), now_ms)
    assert (node.role, node.term) == (Role.LEADER, 5)


def test_answers_to_another_round_are_not_counted():
    """A late ACCEPT of a pre-vote, or of an earlier term, elects nobody."""
    node, requests, now_ms = asking(0, term=4)
    ready = node.step(answer(requests[0], ACCEPT), now_ms)
    real = sent(ready, VoteRequest)
    node.step(answer(requests[1], ACCEPT), now_ms)
    node.step(answer(vote(4, of=N0, to=N1), ACCEPT), now_ms)
    assert node.role is Role.CANDIDATE
    node.step(answer(real[1], ACCEPT), now_ms)
    assert node.role is Role.LEADER


def test_a_lost_term_is_not_asked_for_again_but_an_unanswered_one_is():
    node, requests, now_ms = asking(0, term=4)
    ready = node.step(answer(requests[0], ACCEPT), now_ms)
    assert sent(ready, VoteRequest)[0].term == 5
    _, requests, now_ms = asked(node)
    assert (requests[0].term, requests[0].pre_vote) == (5, True), (
        "nobody answered: the same term again"
    )
    for request in requests:
        node.step(answer(request, VoteResult.REJECT_ALREADY_VOTED), now_ms)
    _, requests, _ = asked(node)
    assert requests[0].term == 6, "the voters voted for others: a new term"


def test_a_term_that_a_node_led_or_was_restarted_in_is_never_its_own_again():
    """Its entries of that term may be lost or be elsewhere: a second log of the same term would
    contradict them."""
    node, now_ms = elected(0, term=4)
    node.step(vote(6, (9, 9), transfer=True), now_ms)
    assert asked(node)[1][0].term == 7
    restarted = node_with(0, term=5, voted_for=N0)
    assert asked(restarted)[1][0].term == 6


def test_files_with_later_term_than_hard_state_are_adopted_without_vote():
    node = node_with(0, 3, term=-1)
    assert node.term == 3
    assert voted(node, vote(3, (3, 9))) is VoteResult.REJECT_ALREADY_VOTED


def test_a_new_group_elects_soon():
    node = node_with(dice=10_000)
    assert node.deadline_ms() < 3 * config().vote_interval_ms


def test_a_lone_node_leads_at_once_and_commits_when_its_disk_has_it():
    node = node_with(0, group=config(1))
    ready = node.tick(0)
    assert node.role is Role.LEADER
    assert ready.hard_state.term == 1
    assert node.committed_index == -1
    assert node.persisted(ready.append[-1].position, 0).committed == 1


def test_a_candidate_with_a_full_disk_lets_others_go_first():
    node, other = node_with(0), node_with(0)
    node.set_writable(False, 0)
    for each in (node, other):
        asked(each)
        each.tick(each.deadline_ms())  # nobody answers
    assert node.deadline_ms() >= other.deadline_ms() + config().election_ms


def test_node_that_does_not_know_its_log_end_in_file_asks_for_no_votes():
    """It cut behind an entry that it does not hold in memory; as a leader it could not place the
    next one."""
    node = node_with(0, 1, 1, term=5)
    follow(node, 5)
    node.set_writable(False, 0)
    assert node.step(push(TRUNCATE, 5, (0, 0), log_of(0, 5)[1:]), 0).truncate_to == 0
    assert not any(sent(ready, VoteRequest) for _, ready in ticks(node, most=20))
    node.truncated(LogEnd.after(log_of(0)[0]))
    assert asked(node)


def test_a_vote_round_ends_when_nobody_answers():
    node = node_with(0)
    _, _, now_ms = asked(node)
    assert 0 < node.deadline_ms() - now_ms <= 3 * config().vote_interval_ms


def test_a_candidate_follows_whoever_leads_its_term():
    node = node_with(0, term=4)
    asked(node)
    node.step(beat(4, of=N2), 500)
    assert (node.role, node.leader_id) == (Role.FOLLOWER, N2)
    assert node.term > NO_TERM
