"""Followers that catch up are held back by a limit, and by rests while appends wait; those that are
near never are, nor what a commit may need."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.config import GroupConfig
from dledger.protocol.messages.codes import Code
from dledger.raft.roles import fill_pace
from dledger.raft.roles.catch_up import CatchUp
from dledger.raft.roles.fill_pace import (
    GAIN,
    LULL_MS,
    MOST_REST_MS,
    REST,
    TURN_BYTES,
    FillPace,
    Turn,
)
from dledger.types import Index, NodeId
from tests.raft.members_world import LEARNER, ChangingWorld, member
from tests.raft.raft_bench import (
    APPEND,
    COMMIT,
    COMPARE,
    N1,
    N2,
    N3,
    beat_answer,
    catches_up,
    config,
    lead,
    log_of,
    pushed,
    started,
    summary_of,
)
from tests.raft.raft_harness import Chaos

LIMIT = 64 << 10
BODY = 4000
IN_ORDER = Chaos(delay_ms=0)
"""A push that another one overtakes is asked for again, which takes longer than rests do."""


def world_with(entries: int, **settings: int) -> ChangingWorld:
    """Three voters with a log of so many bodies."""
    world = ChangingWorld(3, **settings)
    append(world, entries)
    return world


def append(world: ChangingWorld, entries: int) -> int:
    """Append so many bodies; the milliseconds until all of it is committed and known."""
    leader, began_ms = world.elect(), world.now_ms
    for _ in range(entries):
        assert world.propose(leader, b"x" * BODY)
    end = world.node(leader).end_index
    world.run_until(lambda: len(world.committed) > end)
    return world.now_ms - began_ms


def join_ms(world: ChangingWorld) -> int:
    """How long a new learner takes until it has the log."""
    began_ms = world.now_ms
    world.add(N3, 300)
    return world.now_ms - began_ms


def lacks(world: ChangingWorld, member: NodeId) -> int:
    """Entries that a member has not got."""
    leader = world.leader
    assert leader is not None
    return world.node(leader).end_index - world.node(member).end_index


def with_one_away(limit: int) -> tuple[ChangingWorld, NodeId, NodeId]:
    """A voter that was away while much was appended, and the other follower."""
    world = world_with(1, catch_up_bytes_per_s=limit)
    leader = world.elect()
    away, other = world.others(leader)
    world.crash(away)
    append(world, 200)
    return world, away, other


def test_a_learner_is_filled_at_the_limit():
    entries = 100
    free_ms = join_ms(world_with(entries))
    limited_ms = join_ms(world_with(entries, catch_up_bytes_per_s=LIMIT))
    wanted_ms = entries * BODY / LIMIT * 1000
    assert free_ms < wanted_ms / 2
    assert 0.9 * wanted_ms < limited_ms < 1.1 * wanted_ms + free_ms


def test_a_limit_counts_from_when_it_is_set_and_until_it_is_reset():
    world = world_with(100)
    leader = world.elect()
    world.node(leader).use_settings({"catch_up_bytes_per_s": LIMIT})
    world.boot(N3, 300)
    world.changed((*world.list_at(leader), member(N3, LEARNER)))
    world.run(1000)
    assert lacks(world, N3) > 50
    world.node(leader).use_settings({"catch_up_bytes_per_s": 0})
    world.run(1000)
    assert lacks(world, N3) == 0


def test_a_limit_does_not_slow_appends():
    assert append(world_with(1, catch_up_bytes_per_s=LIMIT), 100) == append(world_with(1), 100)


def test_a_voter_that_was_away_is_held_while_a_quorum_is_there():
    world, away, other = with_one_away(LIMIT)
    world.start(away)
    world.run(3000)
    assert lacks(world, away) > 100
    world.crash(other)
    world.run(3000)
    assert lacks(world, away) == 0, "no quorum without it, and it was held back"


def test_two_far_voters_are_not_both_held():
    """Each alone is not needed while the other one counts; appends need one of them."""
    config = GroupConfig(catch_up_bytes_per_s=LIMIT)
    log = SimpleNamespace(end_index=90, committed_index=10)
    voters = {NodeId("n0"), NodeId("n1"), NodeId("n2")}
    core: Any = SimpleNamespace(log=log, config=config, me="n0", voters=voters, quorum=2)
    one, other = (
        SimpleNamespace(counts=True, watermark=10, heard_ms=0, catch_up=CatchUp(0, 90), turn=Turn())
        for _ in range(2)
    )
    pace = FillPace(core, {NodeId("n1"): one, NodeId("n2"): other})
    assert not pace.is_far(one, 1)
    assert not pace.is_far(other, 1)
    other.watermark = 90
    assert pace.is_far(one, 1)
    other.heard_ms = -config.election_ms
    assert not pace.is_far(one, 1), "the other one is near, but not here"


def test_two_learners_share_one_limit():
    entries = 50
    world = world_with(entries, catch_up_bytes_per_s=LIMIT)
    began_ms = world.now_ms
    leader = world.elect()
    world.boot(N3, 300)
    world.changed((*world.list_at(leader), member(N3, LEARNER)))
    world.add(NodeId("n4"), 400)
    world.run_until(lambda: world.has_caught_up(N3))
    assert world.now_ms - began_ms > 0.9 * 2 * entries * BODY / LIMIT * 1000


def test_a_turn_is_followed_by_a_rest_of_some_times_its_time():
    turn = Turn()
    turn.sent(TURN_BYTES // 2, 0, 1000)
    assert turn.wait_ms(0, 1010) == 0
    turn.sent(TURN_BYTES // 2, 0, 1010)
    assert turn.wait_ms(0, 1010) is None, "all of it is answered first"
    turn.drained(1030)
    assert turn.wait_ms(0, 1030) == REST * 30
    assert turn.wait_ms(0, 1030 + REST * 30) == 0


def test_a_turn_goes_on_when_all_is_answered_before_it_is_over():
    turn = Turn()
    for now_ms in range(0, 80, 10):
        assert turn.wait_ms(0, now_ms) == 0
        turn.sent(TURN_BYTES // 8, 0, now_ms)
        turn.drained(now_ms + 5)
    assert turn.wait_ms(0, 75) == REST * 75


def test_rests_are_short_and_end_when_there_is_no_reason_for_them():
    turn = Turn()
    turn.sent(TURN_BYTES, 0, 0)
    turn.drained(10_000)
    assert turn.wait_ms(0, 10_000) == MOST_REST_MS
    turn.end()
    assert turn.wait_ms(0, 10_000) == 0


def test_a_rest_ends_when_the_log_has_grown_by_a_part_of_the_turn():
    """Counted from the begin of the turn, so that what is appended in turn and rest is less than
    the turn brought."""
    turn, began = Turn(), 1000
    turn.sent(TURN_BYTES // 2, began, 0)
    turn.sent(TURN_BYTES // 2, began + 500, 20)
    turn.drained(40)
    gained = began + int(TURN_BYTES / GAIN)
    assert turn.wait_ms(gained - 1, 40) == REST * 40
    assert turn.wait_ms(gained, 40) == 0


def pace_of(end: int, committed: int) -> tuple[Any, FillPace, Any]:
    """A leader whose log is committed so far, and a new learner with a rest before it from 100 ms
    on; the log may still grow by much."""
    log = SimpleNamespace(
        end_index=end, committed_index=committed, end=SimpleNamespace(end_pos=1000)
    )
    core: Any = SimpleNamespace(log=log, config=GroupConfig())
    learner: Any = SimpleNamespace(catch_up=CatchUp(0, Index(end)), turn=Turn())
    learner.turn.sent(TURN_BYTES, 1000, 0)
    learner.turn.drained(100)
    return log, FillPace(core, {N1: learner}), learner


def test_a_rest_outlasts_the_moments_between_a_client_s_appends():
    log, pace, learner = pace_of(90, 80)
    pace.appends(102)
    assert pace.wait_ms(learner, 0, 102) == 100 + REST * 100 - 102
    log.committed_index = 90
    pace.appends(105)
    assert pace.wait_ms(learner, 0, 105) == LULL_MS, "looks again when the lull is long"
    log.end_index = 95
    pace.appends(108)
    assert pace.wait_ms(learner, 0, 108) == 100 + REST * 100 - 108


def test_a_rest_ends_soon_after_the_last_append():
    _, pace, learner = pace_of(90, 90)
    pace.appends(105)
    assert pace.wait_ms(learner, 0, 105 + LULL_MS - 1) == 1
    assert pace.wait_ms(learner, 0, 105 + LULL_MS) == 0


def under_load(world: ChangingWorld, every_ms: int = 8, body: bytes = b"y" * 100) -> None:
    """Appends go on from now on, so that some are always on their way."""

    def again() -> None:
        if (leader := world.leader) is not None:
            world.propose(leader, body)
        world.after(every_ms, again)

    again()


def under_answered_load(world: ChangingWorld) -> None:
    """One append at a time goes on from now on: the next one a little after the answer."""

    def again() -> None:
        leader = world.leader
        if (
            leader is not None
            and world.node(leader).committed_index == world.node(leader).end_index
        ):
            world.propose(leader, b"y" * 100)
        world.after(2, again)

    again()


def under_slow_load(world: ChangingWorld) -> None:
    """The same where a commit takes long."""
    world.chaos = Chaos(delay_ms=0, sync_ms=4 * LULL_MS)
    under_answered_load(world)


def filled(
    monkeypatch: pytest.MonkeyPatch, turn_bytes: int, load: Callable[[ChangingWorld], None]
) -> int:
    """Entries that a voter which was away gets in a second while appends go on."""
    monkeypatch.setattr(fill_pace, "TURN_BYTES", turn_bytes)
    world, away, _ = with_one_away(0)
    world.chaos = IN_ORDER
    load(world)
    world.run(100)
    world.start(away)
    began = world.node(away).end_index
    world.run(1000)
    return world.node(away).end_index - began


@pytest.mark.parametrize("load", [under_load, under_answered_load, under_slow_load])
def test_a_member_is_filled_in_turns_while_appends_wait(monkeypatch, load):
    rested = filled(monkeypatch, 10_000, load)
    assert 0 < rested < filled(monkeypatch, TURN_BYTES, load) / 2


def test_without_appends_there_are_no_rests(monkeypatch):
    free_ms = join_ms(world_with(60))
    monkeypatch.setattr(fill_pace, "TURN_BYTES", 10_000)
    assert join_ms(world_with(60)) == free_ms


def until_whole_ms(monkeypatch: pytest.MonkeyPatch, turn_bytes: int) -> int:
    """How long appends wait that need a voter which was away."""
    monkeypatch.setattr(fill_pace, "TURN_BYTES", turn_bytes)
    world, away, other = with_one_away(0)
    world.chaos = IN_ORDER
    world.crash(other)
    leader, began_ms = world.elect(), world.now_ms
    assert world.propose(leader, b"z")
    index = world.node(leader).end_index
    world.start(away)
    world.run_until(lambda: world.node(leader).committed_index >= index)
    return world.now_ms - began_ms


def test_a_voter_that_a_commit_waits_for_has_no_rests(monkeypatch):
    assert until_whole_ms(monkeypatch, 10_000) == until_whole_ms(monkeypatch, TURN_BYTES)


def test_a_member_outruns_a_load_that_leaves_no_time_for_rests(monkeypatch):
    """Were the rests as long as the turns say, more would be appended than is filled."""
    monkeypatch.setattr(fill_pace, "TURN_BYTES", 40_000)
    monkeypatch.setattr(fill_pace, "PATIENT_ROUNDS", 1_000_000)
    world = world_with(200, push_batch_bytes=20_000)
    world.chaos = IN_ORDER
    under_load(world, 3, b"y" * BODY)
    world.boot(N3, 300)
    world.changed((*world.list_at(world.elect()), member(N3, LEARNER)))
    world.run_until(lambda: lacks(world, N3) < 30, 4000)


@pytest.mark.parametrize("seed", range(4))
def test_turns_end_although_pushes_and_answers_are_lost(monkeypatch, seed):
    monkeypatch.setattr(fill_pace, "TURN_BYTES", 10_000)
    world = ChangingWorld(3, seed, Chaos(loss=0.02, reset=0.01))
    append(world, 50)
    under_load(world, 20)
    world.boot(N3, 300)
    world.changed((*world.list_at(world.elect()), member(N3, LEARNER)))
    world.run_until(lambda: lacks(world, N3) < 20, 60_000)


def test_a_leader_whose_rest_is_over_waits_for_its_disk():
    """What was due at the end of the rest is being read: a deadline that stayed in the past would
    keep the loop busy until the disk is done."""
    group = config(catch_up_bytes_per_s=LIMIT, heartbeat_ms=50)
    entries = log_of(0, 0, 0, 0, body=b"x" * 60_000)
    node = started(summary_of(entries), 0, group=group, cache_bytes=1)
    _, now_ms = lead(node)
    node.persisted(node.end.position, now_ms)
    catches_up(node, N1, node.noop_index, now_ms)
    ready = node.step(pushed(node, N2, COMPARE, 3, Code.INCONSISTENT_STATE, end=0), now_ms)
    ready = node.step(pushed(node, N2, COMPARE, 0, end=0), now_ms)
    assert [load.begin_index for load in ready.load] == [1]
    assert node.loaded(N2, entries[1:2], now_ms).load == (), "the limit is used up"
    node.step(pushed(node, N2, APPEND, 1), now_ms)
    rested_ms = now_ms
    while not ready.load or ready.load[0].begin_index == 1:
        rested_ms = node.deadline_ms()
        ready = node.tick(rested_ms)
        node.step(beat_answer(node, N1, 1), rested_ms)
        node.step(pushed(node, N2, COMMIT, node.committed_index), rested_ms)
    assert rested_ms > now_ms
    assert node.deadline_ms() > rested_ms
