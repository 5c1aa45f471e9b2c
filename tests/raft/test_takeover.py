"""A leader whose connection ends is given up soon, and a leader that lives is not disturbed by
that."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    PushEntryRequest,
    VoteRequest,
    VoteResult,
)
from dledger.types import NodeId, Role
from tests.raft.raft_bench import (
    COMPARE,
    N0,
    N1,
    N2,
    TRUNCATE,
    answer,
    asking,
    beat,
    config,
    elected,
    follow,
    leading,
    node_with,
    only,
    push,
    pushed,
    sent,
    vote,
    voted,
)
from tests.raft.raft_harness import Chaos, World, led

STEP_MS = config().takeover_ms


def orphan(me=N0, leader=N1, *, now_ms=100, **more):
    """A follower of term 5 that heard its leader until ``now_ms``; then the connection ended."""
    node = node_with(0, term=5, me=me, **more)
    follow(node, 5, leader, now_ms)
    node.peer_lost(leader, now_ms)
    return node


def test_a_follower_whose_leader_is_gone_asks_for_votes_soon():
    node = orphan()
    assert 100 + STEP_MS // 2 <= node.deadline_ms() <= 100 + STEP_MS
    requests = sent(node.tick(node.deadline_ms()), VoteRequest)
    assert [(r.term, r.pre_vote) for r in requests] == [(6, True)] * 2, (
        "a pre-vote, which changes nothing"
    )
    assert (node.role, node.term) == (Role.CANDIDATE, 5)


@pytest.mark.parametrize("preferred", [(), (N2,), (N1, N2)])
def test_followers_of_a_leader_that_is_gone_take_turns(preferred):
    """The latest moment of one is before the earliest of the next, and preferred leaders come
    first."""
    group = config(5, preferred_leaders=preferred)
    turns = {}
    for me in (m for m in group.members if m != N1):
        first, last = (orphan(me, N1, group=group, dice=dice).deadline_ms() for dice in (0, 10_000))
        turns[me] = (first, last)
    in_order = sorted(turns, key=lambda me: turns[me])
    for one, following in pairwise(in_order):
        assert turns[one][1] + STEP_MS // 2 <= turns[following][0]
    assert in_order[0] == (N2 if preferred else N0)


def test_the_loss_of_a_connection_never_lengthens_a_wait():
    node = node_with(0, term=5)
    follow(node, 5, N1, 100)
    patience_ms = node.deadline_ms()
    node.peer_lost(N1, patience_ms - 1)
    assert node.deadline_ms() == patience_ms


def test_a_second_loss_in_the_same_silence_does_not_put_the_turn_off():
    node = orphan()
    turn_ms = node.deadline_ms()
    node.peer_lost(N1, turn_ms - 1)
    assert node.deadline_ms() == turn_ms


@pytest.mark.parametrize(
    "sign", [beat(5, of=N1), push(COMPARE, 5, (0, 0), of=N1)], ids=["beat", "push"]
)
def test_a_leader_heard_on_a_new_connection_has_its_whole_time_again(sign):
    node = orphan()
    node.step(sign, 140)
    assert node.deadline_ms() >= 140 + config().election_ms
    assert node.leader_id == N1
    answer = voted(node, vote(6, (0, 0), of=N2, pre=True), 150)
    assert answer is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_a_leader_that_is_gone_does_not_keep_others_from_being_elected():
    """Both voters saw its connection end: nobody has to wait until the old leader could have lost
    its patience."""
    node = orphan()
    assert voted(node, vote(6, (0, 0), of=N2, pre=True), 101) is VoteResult.ACCEPT
    node.step(vote(6, (0, 0), of=N2), 102)
    assert voted(node, vote(6, (0, 0), of=N2), 103) is VoteResult.ACCEPT


def test_a_follower_that_still_has_its_leader_refuses_whoever_lost_it():
    node = node_with(0, term=5)
    follow(node, 5, N1, 100)
    node.peer_lost(N2, 100)
    for pre in (True, False):
        answer = voted(node, vote(6, (0, 0), of=N2, pre=pre), 150)
        assert answer is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert node.deadline_ms() >= 100 + config().election_ms, (
        "the loss of another follower is nothing"
    )


def test_a_follower_without_its_leader_names_nobody():
    """Clients would be sent to the dead one."""
    node = orphan()
    assert node.leader_id is None
    node.step(beat(5, of=N1), 140)
    assert node.leader_id == N1
    node.peer_lost(N1, 150)
    ready = node.step(beat(6, of=N2), 160)
    node.step(beat(6, of=N2), 161)
    assert ready.hard_state.term == 6
    assert node.leader_id == N2


def test_refused_node_without_a_leader_asks_once_more_soon_then_waits():
    """The voter may be about to see the same; if not, the leader lives and this node only lost its
    connection."""
    node = orphan()
    waits = []
    for _ in range(3):
        now_ms = node.deadline_ms()
        requests = sent(node.tick(now_ms), VoteRequest)
        node.step(answer(requests[-1], VoteResult.REJECT_ALREADY_HAS_LEADER), now_ms)
        waits.append(node.deadline_ms() - now_ms)
    assert waits[0] < 2 * config().vote_interval_ms + 1
    assert min(waits[1:]) >= config().election_ms
    assert node.term == 5


def test_without_takeover_ms_a_leader_that_is_gone_is_one_that_is_silent():
    node = orphan(group=config(takeover_ms=0))
    assert node.deadline_ms() >= 100 + config().election_ms
    assert node.leader_id == N1


def test_a_follower_with_a_full_disk_leaves_the_turn_to_others():
    node = node_with(0, term=5)
    node.set_writable(False, 0)
    follow(node, 5, N1, 100)
    node.peer_lost(N1, 100)
    assert node.deadline_ms() >= 100 + config().election_ms
    assert voted(node, vote(6, (0, 0), of=N2, pre=True), 101) is VoteResult.ACCEPT


def test_a_leader_and_a_candidate_wait_for_nobody_and_lose_nobody():
    node, now_ms = elected(0)
    assert not node.peer_lost(N1, now_ms)
    assert node.role is Role.LEADER
    candidate = node_with(0, term=5)
    due_ms = candidate.deadline_ms()
    assert not candidate.peer_lost(N1, 0)
    assert candidate.deadline_ms() == due_ms


def test_a_leader_greets_a_peer_that_is_back_and_asks_again_what_it_has():
    """The heartbeat comes before anybody there loses patience; the question does not wait for
    push_timeout_ms."""
    node, now_ms = leading(0)
    ready = node.peer_found(N1, now_ms + 5)
    assert {beat.remote_id for beat in sent(ready, HeartBeatRequest)} == {N1, N2}
    assert only(ready, PushEntryRequest).type is COMPARE

    node.step(pushed(node, N1, COMPARE, 0), now_ms + 6)
    node.propose([b"x"], now_ms + 7)
    ready = node.peer_found(N1, now_ms + 8)
    assert only(ready, PushEntryRequest).type is COMPARE, "what was under way may be lost"
    ready = node.step(pushed(node, N1, COMPARE, 2), now_ms + 9)
    assert not sent(ready, PushEntryRequest), "it had arrived, and is not sent twice"


def test_a_leader_asks_again_where_the_cut_of_a_follower_was_lost():
    node, now_ms = leading(0, 1)
    longer = pushed(node, N1, COMPARE, 1, end=9)
    assert only(node.step(longer, now_ms), PushEntryRequest).type is TRUNCATE
    assert only(node.peer_found(N1, now_ms + 5), PushEntryRequest).type is COMPARE
    assert only(node.step(longer, now_ms + 6), PushEntryRequest).type is TRUNCATE


def test_a_candidate_asks_a_voter_that_comes_up_during_the_round():
    node, requests, now_ms = asking(0, term=4)
    assert only(node.peer_found(N2, now_ms + 10), VoteRequest) == requests[1]
    node.step(answer(requests[0], VoteResult.REJECT_ALREADY_VOTED), now_ms)
    assert not node.peer_found(N1, now_ms + 20), "it has answered"


def test_candidate_between_rounds_and_follower_do_not_greet_a_peer():
    """The peer has just come up; neither node sends it a message."""
    assert not node_with(0, term=4).peer_found(N1, 0)
    node = node_with(0, term=4)
    follow(node, 4, N1)
    assert not node.peer_found(N1, 10)


def test_a_stranger_that_comes_up_is_told_nothing():
    node, now_ms = elected(0)
    assert not node.peer_found(NodeId("n9"), now_ms)


def test_whoever_takes_over_from_a_leader_that_is_gone_names_itself():
    node = orphan()
    now_ms = node.deadline_ms()
    ready = node.tick(now_ms)
    for _ in range(2):
        ready = node.step(answer(sent(ready, VoteRequest)[0], VoteResult.ACCEPT), now_ms)
    assert node.role is Role.LEADER
    assert node.leader_id == N0


def test_a_killed_leader_is_replaced_within_some_turns():
    for seed in range(50):
        world, victim, *_ = led(World(3 + 2 * (seed % 2), seed))
        world.propose(victim, b"x")
        world.run(200)
        killed_ms = world.now_ms
        world.crash(victim)
        world.run_until(lambda world=world, victim=victim: world.leader not in {None, victim})
        world.elect()
        assert world.now_ms - killed_ms < len(world.config.members) * STEP_MS, f"seed {seed}"


def test_a_leader_whose_machine_is_gone_is_missed_after_an_election_time():
    world, victim, *_ = led(World(3, 1))
    world.crash(victim, is_noticed=False)
    world.run(config().election_ms - config().heartbeat_ms)
    assert world.leader is None
    assert world.elect()


@pytest.mark.parametrize("count", [3, 5])
def test_a_leader_that_a_minority_loses_again_and_again_is_not_disturbed(count):
    """No later term, no other leader, whatever the minority does about its broken connections."""
    for seed in range(10):
        world, leader, *others = led(World(count, seed))
        world.run(500)
        term, minority = world.node(leader).term, others[: (count - 1) // 2]

        def break_again(world=world, leader=leader, minority=minority):
            for member in minority:
                world.reset(leader, member)
            world.after(world.random.randint(50, 400), break_again)

        break_again()
        world.run(20_000)
        assert (world.leader, world.node(leader).term) == (leader, term), f"seed {seed}"
        assert world.counts["resets"] > 50


def lose_for_a_moment(world, leader, member):
    world.call(member, lambda node: node.peer_lost(leader, world.now_ms))
    found = lambda node: node.peer_found(member, world.now_ms)  # noqa: E731
    world.after(25, lambda: world.call(leader, found))


def test_leader_leads_on_after_all_its_connections_broke_for_a_moment():
    """The half step before the first turn is for that, and the greeting with which the leader comes
    back."""
    stayed = 0
    for seed in range(20):
        world, leader, *others = led(World(3, seed, chaos=Chaos(delay_ms=1)))
        world.run(500)
        term = world.node(leader).term
        for member in others:
            lose_for_a_moment(world, leader, member)
        world.run(3000)
        stayed += world.leader == leader and world.node(leader).term == term
    assert stayed == 20
