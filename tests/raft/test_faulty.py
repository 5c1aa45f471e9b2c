"""A node that knows of damaged entries on its disk: it votes with its whole log, and does not lead
(CTRL, FAST'18)."""

from __future__ import annotations

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    PushEntryResponse,
    VoteRequest,
    VoteResult,
)
from dledger.raft import SafetyViolation
from dledger.types import Index, Position, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    COMPARE,
    N1,
    N2,
    answer,
    asked,
    catches_up,
    config,
    elected,
    follow,
    leading,
    log_of,
    node_with,
    only,
    push,
    pushed,
    sent,
    take_over,
    ticks,
    vote,
    voted,
)
from tests.raft.raft_harness import World, acceptance, led

RUN = ((Index(1), Index(1)),)


def damaged(*terms, **more):
    node = node_with(*terms, **more)
    node.set_faulty(RUN, 0)
    return node


def test_B8_a_damaged_node_asks_for_no_votes_until_it_is_repaired():
    node = damaged(0, 0, 0, committed=2)
    assert not any(sent(ready, VoteRequest) for _, ready in ticks(node, most=20))
    assert (node.role, node.term) == (Role.CANDIDATE, 0)
    node.set_faulty((), node.deadline_ms())
    assert asked(node)


def test_B8_a_damaged_node_votes_by_the_true_end_of_its_log():
    node = damaged(0, 0, 0, committed=2)
    short, whole = vote(0, (0, 1), pre=True), vote(0, (0, 2))
    assert voted(node, short) is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert voted(node, whole) is VoteResult.ACCEPT, "somebody sound may lead, with its help"


@pytest.mark.parametrize("pre_vote", [True, False])
def test_B8_a_round_that_is_won_after_damage_was_found_counts_for_nothing(pre_vote):
    node = node_with(0, 0, 0)
    ready, requests, now_ms = asked(node)
    if not pre_vote:
        ready = node.step(answer(requests[0], VoteResult.ACCEPT), now_ms)
        requests = sent(ready, VoteRequest)
    node.set_faulty(RUN, now_ms)
    ready = node.step(answer(requests[0], VoteResult.ACCEPT), now_ms)
    assert not sent(ready, VoteRequest)
    assert node.role is Role.CANDIDATE


def test_B8_a_damaged_follower_refuses_to_take_over():
    node = damaged(0, 0, 0)
    follow(node, 0)
    ready = node.step(take_over(N1, 0, 2), 0)
    assert only(ready, LeadershipTransferResponse).code is Code.TAKE_LEADERSHIP_FAILED
    assert node.role is Role.FOLLOWER


def test_B8_leader_that_finds_damage_hands_over_when_a_peer_is_near():
    node, now_ms = leading(0, 0, group=config(3, max_transfer_lag=1))
    node.set_faulty(RUN, now_ms)
    assert acceptance(node, 1) is Code.SUCCESS, "nobody is near yet"
    catches_up(node, N1, 2, now_ms)
    requests: list[LeadershipTransferRequest] = []
    for now_ms, ready in ticks(node, most=50):
        requests += sent(ready, LeadershipTransferRequest)
        node.step(pushed(node, N1, APPEND, 2), now_ms)
    assert requests
    assert requests[0].remote_id == N1


@pytest.mark.parametrize("living", [(N1, N2), (N1,)])
def test_B8_a_leader_with_damage_nobody_can_mend_yields_to_a_quorum(living):
    """Else nothing is ever committed again. A quorum that can elect one of its own has to be there,
    for this node does not vote for a shorter log; while it is not, this one goes on and serves what
    it can."""
    node, now_ms = elected(0, 0, 0, 0)
    node.set_faulty(((Index(2), Index(2)),), now_ms)
    for peer in living:
        node.step(pushed(node, peer, COMPARE, 1), now_ms)
    end_ms = now_ms + 5 * config().election_ms
    for now_ms, _ in ticks(node, *living):
        if now_ms >= end_ms or node.role is not Role.LEADER:
            break
    assert (node.role is Role.CANDIDATE) == (len(living) == 2)
    assert node.end_index == 4, "it cuts nothing by itself"


def test_B8_a_leader_goes_on_with_damage_that_a_quorum_has_passed():
    node, now_ms = elected(0, 0, 0, 0)
    node.set_faulty(((Index(2), Index(2)),), now_ms)
    node.step(pushed(node, N2, COMPARE, 1), now_ms)
    catches_up(node, N1, 4, now_ms)
    for _ in ticks(node, N1, N2, most=50):
        assert node.role is Role.LEADER


def test_a_node_alone_leads_with_damage_because_nobody_else_could():
    node = damaged(0, 0, 0, group=config(1))
    while node.role is not Role.LEADER:
        node.tick(node.deadline_ms())


def test_committed_damaged_entry_of_unknown_term_is_as_leader_says():
    """Its header may be gone, so its term here is a guess: no reason to halt."""
    node = node_with(0, 0, 5, committed=2, term=5)
    follow(node, 5)
    with pytest.raises(SafetyViolation):
        node.step(push(COMPARE, 5, (5, 1)), 0)
    node = node_with(0, 0, 5, committed=2, term=5)
    node.set_faulty(RUN, 0)
    follow(node, 5)
    ready = node.step(push(COMPARE, 5, (5, 1)), 0)
    assert sent(ready, PushEntryResponse)[0].code is Code.SUCCESS
    with pytest.raises(SafetyViolation):
        node.step(push(COMPARE, 5, (5, 0)), 0)


@pytest.mark.parametrize("term", [0, 3, 5])
def test_a_repaired_entry_brings_its_true_term(term):
    node = node_with(0, 0, 5, term=5)
    truth = log_of(0, term, 5)
    node.repaired(truth[1:2])
    assert [node.term_at(Index(at)) for at in range(3)] == [0, term, 5]
    node.check()
    assert truth[1].position == Position(Term(term), Index(1))


def test_B8_a_group_whose_most_complete_node_is_damaged_waits_for_it():
    """n2 alone has what was acknowledged, but damaged; n1 lacks it. Neither may lead before n2 is
    repaired."""
    world, leader, damaged_one, behind = led(World(3, seed=5))
    world.isolate(behind)
    for number in range(5):
        world.propose(leader, b"%d" % number)
    world.run_until(lambda: world.node(damaged_one).durable_index == world.node(leader).end_index)
    world.crash(leader)
    world.heal()
    world.node(damaged_one).set_faulty(((Index(2), Index(2)),), world.now_ms)
    world.run(20_000)
    assert world.leader is None
    world.node(damaged_one).set_faulty((), world.now_ms)
    assert world.elect() == damaged_one
