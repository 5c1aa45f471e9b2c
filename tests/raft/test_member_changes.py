"""The list of members is replicated state: it changes by entries that are in force when they are
in the log (B26)."""

from __future__ import annotations

from copy import deepcopy

import pytest

from dledger.protocol.messages.membership import MemberRole
from dledger.raft.roles.catch_up import MOST_ROUNDS, CatchUp
from dledger.raft.roles.member_change import Refusal
from dledger.types import Index, NodeId, Role
from tests.raft.members_world import (
    LEARNER,
    OBSERVER,
    VOTER,
    ChangingWorld,
    member,
    with_role,
    without,
)
from tests.raft.raft_bench import N0, N1, N2, N3, N4


def grown(**settings: int) -> ChangingWorld:
    """Three founders and a fourth voter."""
    world = ChangingWorld(3, **settings)
    world.add(N3, 300)
    world.promote(N3)
    return world


def append(world: ChangingWorld, body: bytes = b"x") -> None:
    leader = world.elect()
    assert world.propose(leader, body)
    end = world.node(leader).end_index
    world.run_until(lambda: len(world.committed) > end)


def others(world: ChangingWorld, *names: NodeId) -> list[NodeId]:
    return [name for name in world.members if name not in names]


def test_a_learner_gets_everything_and_counts_for_nothing():
    world = ChangingWorld(3)
    append(world)
    world.add(N3, 300)
    leader = world.elect()
    assert world.node(N3).members == world.node(leader).members
    assert world.node(N3).role is Role.FOLLOWER
    assert set(world.node(leader).voters) == {N0, N1, N2}
    for follower in others(world, leader, N3):
        world.isolate(follower)
    committed = len(world.committed)
    world.propose(leader, b"y")
    world.run(200)
    assert len(world.committed) == committed, "a learner made a majority"


def test_a_promoted_learner_counts_and_may_lead():
    world = grown()
    leader = world.elect()
    world.isolate(next(one for one in others(world, leader, N3)))
    append(world)
    world.heal()
    world.run_until(world.settled)
    world.call(leader, lambda node: node.transfer(N3, world.now_ms))
    world.run_until(lambda: world.leader == N3)
    append(world)


def test_a_list_is_in_force_in_the_log_before_it_is_committed():
    world = ChangingWorld(3)
    world.add(N3, 300)
    leader = world.elect()
    world.run(200)
    for follower in others(world, leader):
        world.cut(leader, follower)
    listed = with_role(world.list_at(leader), N3, VOTER, incarnation=300)
    assert world.change(leader, listed) is None
    assert set(world.node(leader).voters) == {N0, N1, N2, N3}
    assert world.members[leader].disk.membership.changes[-1].members == listed, "durably"


def test_a_cut_undoes_a_list():
    world = ChangingWorld(3)
    world.add(N3, 300)
    leader = world.elect()
    before = world.list_at(leader)
    world.run(200)
    world.isolate(leader)
    assert world.change(leader, with_role(before, N3, VOTER, incarnation=300)) is None
    world.run_until(lambda: world.leader not in {None, leader})
    append(world)
    world.heal()
    world.run_until(world.settled)
    assert world.node(leader).members == before
    assert set(world.node(leader).voters) == {N0, N1, N2}
    world.run(100)
    assert world.members[leader].disk.membership.changes == ()


def test_a_list_survives_restarts_of_all():
    world = grown()
    world.restart(*world.members)
    append(world)
    assert all(set(state.node.voters) == {N0, N1, N2, N3} for state in world.members.values())


def test_a_removed_follower_is_told_asks_for_no_votes_and_disturbs_nobody():
    world = grown()
    leader = world.elect()
    gone = next(one for one in others(world, leader))
    world.remove(gone)
    world.run_until(lambda: world.node(gone).is_removed)
    term = world.node(leader).term
    world.run(10_000)
    assert world.node(leader).role is Role.LEADER
    assert world.node(leader).term == term
    append(world)


def test_a_removed_node_that_was_away_is_told_when_it_returns():
    world = grown()
    leader = world.elect()
    gone = next(one for one in others(world, leader))
    world.crash(gone)
    world.remove(gone)
    world.run(10_000)
    term = world.node(leader).term
    world.start(gone)
    world.run_until(lambda: world.node(gone).is_removed)
    assert (world.leader, world.node(leader).term) == (leader, term)
    world.restart(gone)
    assert world.node(gone).is_removed, "durably"
    assert not world.node(gone)._machine.can_lead


def test_a_removed_node_alone_with_a_minority_elects_nobody():
    world = grown()
    leader = world.elect()
    gone, *rest = others(world, leader)
    world.crash(gone)
    world.remove(gone)
    world.start(gone)
    for one in (leader, *rest[1:]):
        world.isolate(one)
    world.run(10_000)
    assert world.node(gone).role is not Role.LEADER
    assert world.node(rest[0]).role is not Role.LEADER


def test_a_removed_leader_leads_up_to_the_commit_and_hands_over():
    world = grown()
    leader = world.elect()
    term = world.node(leader).term
    assert world.change(leader, without(world.list_at(leader), leader)) is None
    index = world.node(leader).end_index
    assert world.node(leader).role is Role.LEADER
    assert leader not in world.node(leader).leader.acks.watermarks, "it does not count itself"
    world.run_until(lambda: len(world.committed) > index)
    world.run_until(lambda: world.leader not in {None, leader})
    assert world.node(world.elect()).term == term + 1, "handed over, not lost"
    append(world)
    world.run_until(lambda: world.node(leader).is_removed)


def test_an_old_disk_that_returns_is_not_counted():
    """Removed, and added again with a new disk under the same id; then the old machine is back."""
    world = grown()
    leader = world.elect()
    gone = next(one for one in others(world, leader))
    before = deepcopy(world.members[gone].disk)
    world.remove(gone)
    world.add(gone, 900)
    world.promote(gone)
    assert world.node(world.elect()).membership.of(gone) == 900
    world.put(gone, before)
    leader = world.elect()
    world.run(3000)
    follower = world.node(leader).leader.dispatchers[gone]
    assert not follower.counts
    assert not world.node(gone).is_admitted


def test_lists_of_before_found_no_second_group():
    """3 -> 5 -> 3 with other machines; the founders cannot elect anybody."""
    world = ChangingWorld(3)
    for node, incarnation in ((N3, 300), (N4, 400)):
        world.add(node, incarnation)
        world.promote(node)
    for node in (N0, N1):
        world.remove(node)
    world.run(1000)
    append(world)
    for node in (N2, N3, N4):
        world.isolate(node)
    world.restart(N0, N1)
    world.run(10_000)
    assert world.node(N0).role is not Role.LEADER
    assert world.node(N1).role is not Role.LEADER
    world.heal()
    append(world)


def test_a_voter_that_was_away_for_all_changes_catches_up_with_strangers():
    """It knows none of the members of today."""
    world = ChangingWorld(3)
    world.elect()
    world.run_until(world.settled)
    world.run(500)
    away = next(one for one in others(world, world.elect()))
    world.isolate(away)
    for node, incarnation in ((N3, 300), (N4, 400)):
        world.add(node, incarnation)
        world.promote(node)
    for node in others(world, away, N3, N4):
        world.remove(node)
        world.crash(node)
    world.heal()
    world.run_until(lambda: world.node(away).end == world.node(world.elect()).end)
    world.crash(world.elect())
    append(world)


@pytest.mark.parametrize("role", [OBSERVER, LEARNER])
def test_who_is_no_voter_and_was_away_asks_who_the_members_are(role: MemberRole):
    """It asks for no votes, so no voter tells it that its list is too old; and a leader that is not
    in that list is not let in."""
    world = ChangingWorld(3)
    world.add(N3, 300, role)
    world.run_until(world.settled)
    world.crash(N3)
    world.add(N4, 400)
    world.promote(N4)
    world.call(world.elect(), lambda node: node.transfer(N4, world.now_ms))
    world.run_until(lambda: world.leader == N4)
    world.cut(N4, N3)
    world.start(N3)
    world.run_until(lambda: N4 in {one.id for one in world.node(N3).members})


def test_one_node_becomes_three_and_one_again():
    world = ChangingWorld(1)
    for node, incarnation in ((N1, 201), (N2, 202)):
        world.add(node, incarnation)
        world.promote(node)
    world.crash(N0)
    append(world)
    world.start(N0)
    world.run_until(world.settled)
    for node in (N0, N1):
        world.remove(node)
    append(world)
    assert world.elect() == N2


@pytest.mark.parametrize("role", [OBSERVER, LEARNER])
def test_who_is_no_voter_asks_for_no_votes(role: MemberRole):
    world = ChangingWorld(3)
    world.add(N3, 300, role)
    for node in (N0, N1, N2):
        world.crash(node)
    world.run(5000)
    assert world.node(N3).role is Role.CANDIDATE
    assert not [fact for name, fact in world.facts if name == N3 and "ask_votes" in fact]


def refused(world: ChangingWorld, *members: object) -> Refusal | None:
    return world.change(world.elect(), members)  # type: ignore[arg-type]


def test_refusals_name_the_reason():
    world = ChangingWorld(3)
    world.add(N3, 300)
    leader = world.elect()
    listed = world.list_at(leader)
    follower, other = (one for one in others(world, leader, N3))
    assert refused(world, *listed) is Refusal.NO_CHANGE
    assert refused(world, *listed, listed[0]) is Refusal.TWICE
    assert refused(world, member(N3, LEARNER)) is Refusal.LAST_VOTER
    assert refused(world, *listed, member(N4, VOTER, 9)) is Refusal.NO_LEARNER
    long = [member(NodeId(f"n{n}"), LEARNER) for n in range(5, 40)]
    assert refused(world, *listed, *long) is Refusal.TOO_LONG
    two = without(without(listed, follower), other)
    assert refused(world, *two) is Refusal.MORE_THAN_ONE_VOTER
    swapped = with_role(without(listed, follower), N3, VOTER, incarnation=300)
    assert refused(world, *swapped) is Refusal.MORE_THAN_ONE_VOTER, "replace in one step"
    again = with_role(listed, follower, VOTER, incarnation=5)
    assert refused(world, *again) is Refusal.INCARNATION
    wrong = with_role(listed, N3, VOTER, incarnation=5)
    assert refused(world, *wrong) is Refusal.NOT_HEARD
    assert world.change(leader, without(listed, N3)) is None
    assert world.change(leader, without(listed, follower)) is Refusal.UNDER_WAY


def test_a_leader_without_a_committed_noop_changes_nothing():
    """The bug of 2015: an uncommitted list of the leader before may be elsewhere."""
    world = grown()
    leader = world.elect()
    world.run_until(world.settled)
    follower = next(one for one in others(world, leader))
    world.crash(leader)
    world.run_until(lambda: world.leader is not None)
    new = world.leader
    assert new is not None
    assert not world.is_open(new)
    listed = without(world.list_at(new), follower if follower != new else leader)
    assert world.change(new, listed) is Refusal.NOOP_NOT_COMMITTED


def test_what_would_leave_no_live_majority_is_refused():
    world = ChangingWorld(3)
    append(world)
    leader = world.elect()
    follower, other = others(world, leader)
    world.crash(other)
    world.run(3000)
    listed = world.list_at(leader)
    assert world.change(leader, without(listed, follower)) is Refusal.NO_LIVE_MAJORITY
    assert world.change(leader, without(listed, other)) is None


def test_a_learner_that_lacks_entries_is_not_promoted():
    world = ChangingWorld(3)
    leader = world.elect()
    world.boot(N3, 300)
    world.changed((*world.list_at(leader), member(N3, LEARNER)))
    world.run_until(lambda: world.has_caught_up(N3))
    world.cut(leader, N3)
    for _ in range(30):
        append(world, b"x" * 50)
    listed = with_role(world.list_at(leader), N3, VOTER, incarnation=300)
    assert world.change(leader, listed) in {Refusal.NOT_CAUGHT_UP, Refusal.NOT_HEARD}
    world.heal()
    world.run_until(lambda: world.has_caught_up(N3))
    world.run(200)
    assert world.change(leader, listed) is None


def test_a_learner_is_near_after_a_round_shorter_than_an_election_time():
    learner = CatchUp(0, Index(100))
    assert not learner.is_near(Index(99), Index(150), 10, 1000), "no round is over"
    learner.acknowledged(Index(100), Index(200), 1500, 1000)
    assert not learner.is_near(Index(100), Index(200), 1600, 1000), "that one was long"
    learner.acknowledged(Index(199), Index(220), 1700, 1000)
    assert not learner.is_near(Index(199), Index(220), 1700, 1000)
    learner.acknowledged(Index(200), Index(230), 1900, 1000)
    assert learner.is_near(Index(200), Index(230), 2800, 1000)
    assert not learner.is_near(Index(229), Index(230), 2900, 1000), "the present one is long"
    assert learner.is_near(Index(230), Index(230), 9000, 1000), "it has all"


def test_after_ten_long_rounds_a_learner_is_too_slow():
    learner = CatchUp(0, Index(0))
    for number in range(1, MOST_ROUNDS + 1):
        assert not learner.is_too_slow
        learner.acknowledged(Index(number), Index(number + 1), 2000 * number, 1000)
    assert learner.is_too_slow


def test_a_learner_that_gains_has_more_than_ten_long_rounds():
    """A large log under load takes many rounds, each shorter than the one before."""
    learner, now_ms, took_ms = CatchUp(0, Index(0)), 0, 200_000
    for number in range(1, 2 * MOST_ROUNDS):
        now_ms, took_ms = now_ms + took_ms, took_ms * 4 // 5
        learner.acknowledged(Index(number), Index(number + 1), now_ms, 1000)
        assert not learner.is_too_slow


def test_removal_is_not_told_before_it_is_committed():
    world = ChangingWorld(3)
    append(world)
    leader = world.elect()
    follower = next(one for one in others(world, leader))
    for other in others(world, leader, follower):
        world.cut(leader, other)
    assert world.change(leader, without(world.list_at(leader), follower)) is None
    index = world.node(leader).end_index
    world.run_until(lambda: world.node(follower).end_index == index)
    assert world.node(follower).members == world.node(leader).members
    assert not world.node(follower).is_removed
