"""Which incarnation of a member counts (B26, B27, B30): the first start by itself, and afterwards
only by admission."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from dledger.protocol.messages.membership import Member, MemberRole, Membership
from dledger.protocol.messages.peer import MemberRequest, MemberResponse, VoteRequest
from dledger.raft import RaftNode, Ready
from dledger.types import NO_INDEX, Index, NodeId, Role
from tests.raft.raft_bench import (
    FOUNDED,
    N0,
    N1,
    N2,
    beat_answer,
    events,
    heard,
    message,
    node_with,
    only,
    sent,
    ticks,
    told,
)
from tests.raft.raft_harness import Chaos, World, led, new_group


def known(world: World, member: NodeId) -> dict[NodeId, int]:
    membership = world.members[member].disk.membership
    assert membership is not None
    return dict(membership.bound)


def admit(world: World, member: NodeId) -> None:
    """What `server.admission` does: an entry, and whoever applies it counts the new incarnation
    from then on."""
    leader = world.elect()
    world.run_until(lambda: member in world.node(leader).heard)
    bound = dict(world.node(leader).membership.bound) | {member: world.node(leader).heard[member]}
    assert world.propose(leader, b"admit")
    index = world.node(leader).end_index
    for state in world.members.values():
        world.run_until(lambda node=state.node: node is None or node.committed_index >= index)
    for each, state in world.members.items():
        if state.node is not None:
            world.call(each, lambda node: node.set_members(index, bound, world.now_ms))


def settled_with(world: World, leader: NodeId, *bodies: bytes) -> None:
    """Propose, and wait until all living nodes have it."""
    for body in bodies:
        assert world.propose(leader, body)
    world.run_until(world.settled)


def late_answer(world: World, leader: NodeId, follower: NodeId, round_: int, durable: int) -> None:
    """The follower's answer to that beat arrives at the leader."""
    node = world.node(leader)
    known = {"incarnation": node.membership.of(follower), "durable_index": Index(durable)}
    answer = beat_answer(node, follower, round_, group=node.tag, **known)
    world.call(leader, lambda node: node.step(answer, world.now_ms))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_new_group_founds_itself_and_each_node_remembers_all_members(count):
    world = new_group(count)
    settled_with(world, world.elect(), b"a")
    for member in world.config.members:
        assert known(world, member) == {NodeId(f"n{n}"): 100 + n for n in range(count)}


def test_a_new_group_waits_for_its_last_member_once():
    """Two of three may be what is left of a group of which the third knows more; who is new cannot
    tell."""
    world = new_group()
    world.crash(N2)
    world.run(20_000)
    assert world.leader is None
    assert N2 in world.node(N0).not_heard_yet
    world.start(N2)
    world.elect()
    for member in world.config.members:
        world.crash(member)
    world.start(N0)
    world.start(N1)
    assert world.elect() in {N0, N1}, "from then on two are enough"


@pytest.mark.parametrize("seed", range(30))
def test_a_group_is_founded_through_lost_doubled_late_messages_and_crashes(seed):
    world = new_group(3, seed=seed, chaos=Chaos(loss=0.2, double=0.2, long_delay=0.1, crash=0.01))
    world.run(10_000)
    world.mend()
    world.elect()
    assert len({tuple(known(world, member).items()) for member in world.config.members}) == 1


def test_B27_a_voter_that_lost_its_disk_elects_nobody():
    """n_late misses what the leader and n_wiped acknowledged; with the wiped node's vote it would
    lead without it."""
    world, leader, late, wiped = led(new_group())
    world.isolate(late)
    world.run(500)
    for n in range(5):
        assert world.propose(leader, b"%d" % n)
    world.run_until(lambda: world.node(wiped).committed_index == world.node(leader).end_index)
    world.crash(leader)
    world.heal()
    world.replace(wiped, 900)
    world.run(30_000)
    assert world.leader is None
    world.start(leader)
    assert world.elect() == leader, "the only one that has everything"


def test_B27_wiped_node_catches_up_and_does_not_count_before_admission():
    world, leader, wiped, other = led(new_group())
    settled_with(world, leader, b"a", b"b")
    world.replace(wiped, 900)
    world.run_until(world.settled)
    world.crash(other)
    assert world.node(leader).role is Role.LEADER
    world.run(500)
    assert world.acknowledged(leader, wiped) == -1
    before = world.node(leader).committed_index
    world.propose(leader, b"c")
    world.run(700)
    assert world.node(leader).committed_index == before
    world.run(5_000)
    assert world.leader is None, "no quorum that counts"
    world.start(other)
    settled_with(world, world.elect(), b"d")


def test_B27_an_admitted_node_votes_and_counts():
    world, leader, wiped, other = led(new_group())
    settled_with(world, leader, b"a", b"b")
    world.replace(wiped, 900)
    world.run_until(world.settled)
    admit(world, wiped)
    assert known(world, leader)[wiped] == known(world, wiped)[wiped] == 900
    world.crash(other)
    settled_with(world, leader, b"c")
    world.crash(leader)
    world.start(other)
    settled_with(world, world.elect(), b"d")
    world.restart(*world.config.members)
    world.elect()


def test_B26_former_incarnation_is_refused_after_another_was_admitted():
    world, leader, wiped, other = led(new_group())
    settled_with(world, leader, b"a")
    world.crash(wiped)
    found_again = deepcopy(world.members[wiped].disk)
    world.replace(wiped, 900)
    world.run_until(world.settled)
    admit(world, wiped)
    world.put(wiped, found_again)
    world.crash(other)
    world.run(10_000)
    assert world.leader is None
    world.start(other)
    world.elect()


def test_B27_two_wiped_nodes_are_admitted_one_after_the_other():
    world, leader, one, two, *_ = led(new_group(5))
    settled_with(world, leader, b"a")
    world.replace(one, 901)
    world.replace(two, 902)
    world.run_until(world.settled)
    admit(world, one)
    admit(world, two)
    assert known(world, two) == known(world, leader)
    settled_with(world, leader, b"b")


def test_B30_older_directory_copy_is_found_and_becomes_new_incarnation():
    world, leader, old, other = led(new_group())
    settled_with(world, leader, b"a")
    world.crash(old)
    copy = deepcopy(world.members[old].disk)
    world.start(old)
    settled_with(world, leader, *(b"%d" % n for n in range(10)))
    before = world.node(leader).term
    world.put(old, copy)
    world.run_until(lambda: not world.node(old).is_admitted)
    world.run_until(world.settled)
    assert world.node(leader).term == before, "nobody is disturbed"
    assert any("follower_lost_data" in fact for node, fact in world.facts if node == leader)
    assert world.members[old].disk.membership.incarnation not in {102, 101, 100}
    world.crash(other)
    world.run(5_000)
    assert world.leader is None
    world.start(other)
    world.elect()
    admit(world, old)
    assert world.node(old).is_admitted


@pytest.mark.parametrize("seed", range(20))
def test_B30_older_copy_is_found_before_a_push_under_way_fills_it(seed):
    """Its process ended before the last acknowledgement reached the leader, which asks it anew what
    it has, and would fill it before the next heartbeat."""
    world, leader, old, _ = led(new_group(3, seed, heartbeat_ms=300, election_ms=3000))
    settled_with(world, leader, b"a")
    copy = deepcopy(world.members[old].disk)
    settled_with(world, leader, *(b"%d" % n for n in range(10)))
    had = world.node(leader).end_index
    world.run_until(lambda: world.acknowledged(leader, old) == had)
    assert world.propose(leader, b"last")
    world.run_until(lambda: world.node(leader).committed_index > had)
    world.put(old, copy)
    world.run_until(world.settled)
    assert not world.node(old).is_admitted


def test_B30_an_answer_is_compared_with_the_newest_beat_before_it():
    """Beats before that one may be lost with their connection."""
    world, leader, follower, _ = led(new_group())
    settled_with(world, leader, b"a")
    watched = world.node(leader)._machine.acting.dispatchers[follower]
    watched.checks.clear()
    for round_, mark in (10, 1), (11, 1), (12, 4), (14, 6):
        watched.watermark = Index(mark)
        watched.check_in(round_)
    assert [watched.checked_by(round_) for round_ in (9, 13, 13, 14, 15)] == [-1, 4, -1, 6, -1]


def test_B30_a_late_answer_to_an_earlier_beat_is_no_loss():
    world, leader, follower, _ = led(new_group())
    settled_with(world, leader, b"a")
    node = world.node(leader)
    for round_ in range(3):
        late_answer(world, leader, follower, round_, -1)
    settled_with(world, leader, b"b")
    assert world.acknowledged(leader, follower) == node.end_index
    assert world.node(follower).is_admitted


def test_B30_answer_to_beat_before_the_checking_one_is_no_loss():
    """It left the follower before all that the leader had noted was acknowledged, and overtook
    nothing but time."""
    world, leader, follower, _ = led(new_group())
    settled_with(world, leader, b"a", b"b")
    world.isolate(follower)
    node = world.node(leader)
    watched = node._machine.acting.dispatchers[follower]
    world.run_until(lambda: watched.checks)
    check_round, had = watched.checks[0]
    for round_, is_lost in ((check_round - 1, False), (check_round, True)):
        late_answer(world, leader, follower, round_, had - 1)
        assert any("follower_lost_data" in fact for _, fact in world.facts) is is_lost


def lone(me: NodeId = N1, incarnation: int = 101, *terms: int, bound=()) -> RaftNode:
    """A node of a group of three that is not founded yet."""
    return node_with(*terms, membership=Membership(incarnation, NO_INDEX, bound), me=me, dice=7)


def answered(node: RaftNode, of: NodeId, incarnation: int, bound=(), **more) -> Ready:
    """The node hears that answer to its question about the founding."""
    question = message(
        MemberRequest, node.node_id, of, -1, incarnation=node.membership.incarnation, nonce=7
    )
    return heard(node, told(question, of, incarnation, bound, term=-1, **more))


def test_a_founding_is_taken_over_from_whoever_knows_it():
    node = lone()
    assert {request.remote_id for request in sent(node.tick(0), MemberRequest)} == {N0, N2}
    ready = answered(node, N2, 102, FOUNDED)
    members = (N0, N1, N2)
    assert ready.membership == Membership(101, NO_INDEX, FOUNDED, group_id="A", members=members)
    assert node.is_admitted


def test_a_member_that_is_reached_anew_is_asked_at_once():
    """What it was asked before its node listened is lost; the next round may be far off."""
    node = lone()
    node.tick(0)
    assert [request.remote_id for request in sent(node.peer_found(N2, 1), MemberRequest)] == [N2]
    answered(node, N2, 102, FOUNDED)
    assert not sent(node.peer_found(N2, 2), MemberRequest), "founded: nothing is left to ask"


def test_node_unknown_to_founding_is_not_admitted_and_does_not_found():
    node = lone(N0, 555)
    ready = answered(node, N2, 102, FOUNDED)
    assert ready.membership == Membership(555, group_id="A", members=(N0, N1, N2)), (
        "it hears that group"
    )
    assert "not_admitted" in events(ready)
    answered(node, N1, 101, is_empty=True)
    assert not node.membership.founded


def test_node_that_does_not_count_reaches_the_members_where_they_are_now():
    """A leader that came later, or moved, has to be let in and answered before it sends a log that
    says where it is."""
    node = lone(N1, 555)
    older, newer = (
        tuple(
            Member(each, each, port, MemberRole.VOTER, number)
            for number, each in enumerate((N0, N1, N2, NodeId("n3")))
        )
        for port in (1, 2)
    )
    question = message(MemberRequest, N1, N2, -1, incarnation=555, nonce=7)
    said = told(question, N2, 102, FOUNDED, term=-1)
    assert heard(node, replace(said, index=Index(7), members=newer)).members == newer
    assert heard(node, replace(said, index=Index(6), members=older)).members is None
    assert not node.is_admitted
    assert not node.membership.listed, "it counts nobody by it"
    assert not sent(node.tick(60_000), VoteRequest)


@pytest.mark.parametrize("late", [{"nonce": 8}, {"asked": 99}])
def test_an_answer_to_a_question_of_an_earlier_life_counts_for_nothing(late):
    node = lone()
    assert answered(node, N2, 102, FOUNDED, **late).membership is None
    founder = lone(N0, 100)
    answered(founder, N1, 101, **late)
    answered(founder, N2, 102)
    assert not founder.membership.founded


def test_founding_of_lost_founder_is_not_taken_after_reply_to_successor():
    """The reply to the successor said that the node knows no founding."""
    node = lone()
    request = message(MemberRequest, N0, N1, -1, incarnation=200, nonce=3)
    assert only(node.step(request, 0), MemberResponse).bound == {}
    assert answered(node, N0, 100, FOUNDED).membership is None
    successor = ((N0, 200), *FOUNDED[1:])
    assert answered(node, N0, 200, successor).membership is not None


@pytest.mark.parametrize("bound", [(), ((N0, 100), (N1, 55), (N2, 102))])
def test_a_node_that_is_not_admitted_asks_for_no_votes(bound):
    node = lone(bound=bound)
    assert not any(sent(ready, VoteRequest) for _, ready in ticks(node, most=30))
    assert (node.role, node.term) == (Role.CANDIDATE, -1)


def test_first_member_alone_founds_after_all_answered_to_know_nothing():
    other, founder = lone(N1, 101), lone(N0, 100)
    for node in (other, founder):
        for peer, incarnation in FOUNDED:
            if peer != node.node_id:
                assert not node.membership.founded
                answered(node, peer, incarnation, is_empty=True)
    assert not other.membership.founded
    assert dict(founder.membership.bound) == dict(FOUNDED)


def test_group_from_before_foundings_does_not_count_empty_member():
    """Most have a log, so the one that has none has lost it."""
    founder = lone(N0, 100, 0, 0)
    answered(founder, N1, 101, is_empty=False)
    answered(founder, N2, 102, is_empty=True)
    assert dict(founder.membership.bound) == {N0: 100, N1: 101}


def test_one_log_that_two_new_nodes_are_to_get_is_founded_with_all_of_them():
    founder = lone(N0, 100, 0, 0)
    answered(founder, N1, 101, is_empty=True)
    answered(founder, N2, 102, is_empty=True)
    assert len(founder.membership.bound) == 3
