"""Where this core deviates from DLedger, to be safe: one test and more for each rule D1 to D15 that
it has a part in.

Each fails when its rule is taken out.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import dledger.raft
from dledger.errors import StorageError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NOOP
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft import Finished, SafetyViolation
from dledger.types import Index, Role
from tests.raft.raft_bench import (
    APPEND,
    COMPARE,
    N0,
    N1,
    N2,
    TRUNCATE,
    answer,
    asking,
    catches_up,
    config,
    elected,
    following,
    lead,
    leading,
    log_of,
    node_with,
    only,
    push,
    pushed,
    sent,
    ticks,
    vote,
    voted,
    with_chain,
)
from tests.raft.raft_harness import Chaos, World, acceptance, led


def effects(node, message):
    """What a message makes of a node: entries to write and to cut, the commit, the end."""
    ready = node.step(message, 0)
    return ready.append, ready.truncate_to, ready.committed, node.end_index


def test_d1_a_follower_acknowledges_only_what_is_durable():
    node = following()
    ready = node.step(push(APPEND, 5, entries=log_of(5, 5)), 0)
    assert ready.append
    assert not sent(ready, PushEntryResponse)
    again = node.step(push(APPEND, 5, entries=log_of(5, 5)), 0)
    assert only(again, PushEntryResponse).index == -1, (
        "asked again, it says what is durable: nothing"
    )
    assert only(node.persisted(ready.append[0].position, 0), PushEntryResponse).index == 0


def test_d1_a_leader_counts_itself_only_when_its_own_disk_has_it():
    node = node_with()
    ready, now_ms = lead(node)
    assert catches_up(node, N1, 0, now_ms).committed is None, "on one disk of three"
    assert node.persisted(ready.append[-1].position, now_ms).committed == 0


def test_d1_two_followers_commit_before_the_leaders_own_disk():
    """The leader writes in parallel: a quorum without it is a quorum."""
    node, now_ms = elected()
    assert [catches_up(node, peer, 0, now_ms).committed for peer in (N1, N2)] == [None, 0]
    assert node.durable_index == -1


def test_d1_a_lone_node_commits_only_what_its_disk_has():
    node = node_with(group=config(1))
    noop = node.tick(0).append[-1]
    assert node.committed_index == -1
    assert node.persisted(noop.position, 0).committed == 0


def test_d2_a_disk_that_never_reports_success_is_never_counted():
    """A failed sync is not told to the core in any other way: nothing it holds is acknowledged or
    committed by it."""
    world = World(3, seed=1, chaos=Chaos(sync_ms=1_000_000_000))
    world.run(30_000)
    assert world.committed == []
    assert world.leader is not None


def test_d2_node_does_nothing_after_a_storage_error_of_the_protocol():
    assert issubclass(SafetyViolation, StorageError)
    node = following(0, 1, committed=1)
    with pytest.raises(SafetyViolation):
        node.step(push(TRUNCATE, 5, (0, 0), log_of(0, 5)[1:]), 0)
    for call in (
        lambda: node.tick(99_999),
        lambda: node.step(vote(9, (9, 9)), 0),
        lambda: node.persisted(node.end.position, 0),
        lambda: node.read_index(1, 0),
    ):
        with pytest.raises(SafetyViolation):
            call()


def test_d3_a_body_or_header_that_was_damaged_on_the_way_is_not_written():
    good = log_of(0, 5)[1]
    for bad in (
        replace(good, body=b"y"),
        replace(good, header=bytes(48)),
        with_chain(good, 1),
    ):
        node = following(0)
        assert node.step(push(APPEND, 5, (0, 0), [bad]), 0).append == ()
        assert node.step(push(APPEND, 5, (0, 0), [good]), 0).append == (good,)


def test_d3_the_leader_fills_in_both_checksums():
    node = node_with(group=config(1))
    node.tick(0)
    [entry] = node.propose([b"body"], 0).append
    assert entry.verified
    assert entry.chain_crc != 0 != entry.body_crc


def test_d4_a_log_that_lost_committed_entries_is_not_taken_up():
    """Recovery must not have cut there; a node that did would vote as if its log were shorter."""
    with pytest.raises(SafetyViolation, match="restore"):
        node_with(0, 0, committed=5)


def test_d4_the_saved_commit_hint_is_never_above_what_this_disk_has():
    """Else a crash before the sync would look like lost entries."""
    node = following(0)
    node.step(push(APPEND, 5, (0, 0), log_of(0, 5, 5)[1:], commit=2), 0)
    assert node.committed_index == 2
    assert node.hard_state.commit_hint == 0
    node.persisted(node.end.position, 0)
    assert node.hard_state.commit_hint == 2


def test_d5_term_and_vote_are_one_record_in_the_same_effects_as_the_answer():
    node = node_with(0, term=3)
    ready = node.step(vote(3, (0, 0), of=N2), 0)
    assert only(ready, VoteResponse).result is VoteResult.ACCEPT
    assert (ready.hard_state.term, ready.hard_state.voted_for) == (3, N2)


def test_d5_a_candidate_saves_its_term_and_own_vote_before_it_asks():
    node, requests, now_ms = asking(0, term=3)
    ready = node.step(answer(requests[0], VoteResult.ACCEPT), now_ms)
    assert sent(ready, VoteRequest)
    assert (ready.hard_state.term, ready.hard_state.voted_for) == (4, N0)


def test_d5_a_vote_is_not_given_again_after_a_restart():
    node = node_with(0, term=3, voted_for=N2)
    assert voted(node, vote(3, (9, 9), of=N1)) is VoteResult.REJECT_ALREADY_VOTED


@pytest.mark.parametrize("kind", list(PushType))
def test_d6_push_of_earlier_term_is_answered_expired_and_does_nothing(kind):
    late = push(kind, 4, (1, 1), log_of(0, 1, 4)[2:], commit=1, of=N2)
    assert only(following(0, 1).step(late, 0), PushEntryResponse).code is Code.EXPIRED_TERM
    assert effects(following(0, 1), late) == ((), None, None, 1)


@pytest.mark.parametrize("kind", list(PushType))
def test_d6_a_push_of_another_group_member_or_leader_does_nothing(kind):
    previous, entries = (
        ((0, 0), log_of(0, 5)[1:]) if kind is TRUNCATE else ((1, 1), log_of(0, 1, 5)[2:])
    )
    for stray in ({"group": "other"}, {"to": N2}, {"of": N2}, {"of": N2, "leader": N1}):
        message = push(kind, 5, previous, entries, commit=1, **stray)
        assert effects(following(0, 1), message) == ((), None, None, 1)


@pytest.mark.parametrize("kind", [COMPARE, TRUNCATE, APPEND])
def test_d7_a_leader_that_would_have_committed_entries_cut_halts_the_node(kind):
    node = following(0, 1, 1, committed=1)
    shown = push(kind, 5, (5, 1) if kind is COMPARE else (0, 0), log_of(0, 5)[1:])
    with pytest.raises(SafetyViolation, match="committed") as caught:
        node.step(shown, 0)
    assert "committed=1" in str(caught.value.fact)
    assert node.end_index == 2


def test_d7_what_is_behind_the_commit_may_go():
    node = following(0, 1, 1, committed=1)
    ready = node.step(push(TRUNCATE, 5, (1, 1), log_of(0, 1, 5)[2:]), 0)
    assert ready.truncate_to == 1


def test_d8_a_deposed_leader_answers_no_read():
    """It still believes to lead; the others have elected another and committed more."""
    world, old, *_ = led(World(3, seed=3))
    world.propose(old, b"1")
    world.run_until(world.settled)
    world.isolate(old)
    token = world.read(old)
    world.run_until(lambda: world.leader != old)
    world.propose(world.elect(), b"2")
    world.run(5000)
    assert world.reads[token][0] is Code.NOT_LEADER


def test_d8_a_read_is_never_served_beyond_the_commit_index():
    node = node_with(group=config(1))
    node.persisted(node.tick(0).append[-1].position, 0)
    node.propose([b"not durable"], 0)
    assert node.read_index(1, 0).reads[0].index == node.committed_index == 0


def test_d9_an_append_that_timed_out_may_still_commit():
    """WAIT_QUORUM_ACK_TIMEOUT is no refusal: the answer is out, the entry stays."""
    node, now_ms = elected(group=config(ack_timeout_ms=500))
    entry = node.propose([b"x"], now_ms).append[-1]
    at, finished = next((at, ready.finished) for at, ready in ticks(node, N1) if ready.finished)
    assert finished == (Finished(entry.index, entry.index, Code.WAIT_QUORUM_ACK_TIMEOUT),)
    assert node.end_index == entry.index
    node.persisted(entry.position, at)
    ready = catches_up(node, N1, entry.index, at)
    assert (ready.committed, ready.finished) == (entry.index, ())


def test_d10_the_core_reads_no_clock_and_rolls_no_dice():
    """Time and dice are arguments, so wall time that jumps cannot matter."""
    forbidden = {
        "time",
        "datetime",
        "random",
        "secrets",
        "uuid",
        "os",
        "asyncio",
        "threading",
        "socket",
        "logging",
    }
    for path in Path(dledger.raft.__file__).parent.rglob("*.py"):
        for item in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
            names += [item.module or ""] if isinstance(item, ast.ImportFrom) else []
            assert not forbidden & {name.partition(".")[0] for name in names}, path.name


def test_d11_a_dead_leader_is_replaced_within_three_seconds():
    """DLedger needs 6 s to notice and up to 6 s more."""
    for seed in range(20):
        world = World(3, seed)
        world.crash(world.elect())
        died_ms = world.now_ms
        world.elect()
        assert world.now_ms - died_ms < 3000, f"seed {seed}"


def test_d11_a_node_that_comes_back_from_a_partition_disturbs_nobody():
    """Pre-vote: it could not raise its term alone."""
    world, leader, lost, _ = led(World(3, seed=5))
    term = world.node(leader).term
    world.isolate(lost)
    world.run(60_000)
    world.heal()
    world.run(5000)
    assert (world.leader, world.node(leader).term) == (leader, term)
    assert world.node(lost).leader_id == leader


def test_d11_follower_that_lost_its_leader_link_does_not_unseat_leader():
    """Stickiness: the third node hears the leader, so it helps nobody else."""
    world, leader, apart, _ = led(World(3, seed=6))
    world.cut(leader, apart)
    world.run(60_000)
    assert list(world.leaders.values()) == [leader]


def test_d11_a_leader_without_a_quorum_gives_up_within_an_election_time():
    world, leader, *_ = led(World(3, seed=7))
    world.isolate(leader)
    limit_ms = world.config.election_ms + 2 * world.config.heartbeat_ms
    world.run_until(lambda: world.node(leader).role is Role.CANDIDATE, limit_ms)


def test_d12_a_full_disk_refuses_and_cuts_nothing():
    node = node_with(0, group=config(1))
    node.tick(0)
    ready = node.set_writable(False, 0)
    assert acceptance(node, 1) is Code.DISK_FULL
    assert (ready.truncate_to, node.begin_index, node.end_index) == (None, 0, 1)
    follower = following(0)
    follower.set_writable(False, 0)
    ready = follower.step(push(APPEND, 5, (0, 0), log_of(0, 5)[1:]), 0)
    assert only(ready, PushEntryResponse).code is Code.DISK_FULL
    assert follower.end_index == 0


def test_d13_a_noop_opens_each_term():
    node = node_with(0, 3)
    ready, _ = lead(node)
    [noop] = ready.append
    assert (noop.magic, noop.index, noop.term) == (MAGIC_NOOP, 2, 4)
    assert node.noop_index == 2


def test_d13_entries_of_earlier_terms_commit_only_under_one_of_this_term():
    """Figure 8 of the paper: an old entry on a quorum can still be overwritten."""
    node, now_ms = leading(1, 2)
    assert catches_up(node, N1, 1, now_ms).committed is None
    assert node.step(pushed(node, N1, APPEND, 2), now_ms).committed == 2


def test_d13_an_idle_group_commits_what_the_last_leader_left():
    world, leader, *_ = led(World(3, seed=9, chaos=Chaos(sync_ms=0)))
    world.run_until(world.settled)
    world.isolate(leader)
    world.propose(leader, b"left behind")
    world.run_until(lambda: world.leader not in {None, leader})
    world.heal()
    world.run_until(world.settled)
    assert len(world.committed) == 2, "the NOOPs of both leaders; nobody else ever had that entry"


def test_d14_append_of_earlier_term_takes_no_place_from_the_right_one():
    node = following(0)
    node.step(push(APPEND, 4, (0, 0), log_of(0, 4)[1:], of=N2), 0)
    ready = node.step(push(APPEND, 5, (0, 0), log_of(0, 5)[1:]), 0)
    assert [entry.term for entry in ready.append] == [5]


def test_d15_entries_at_start_count_as_durable_because_of_recovery():
    node = following(0, 5)
    assert sent(node.step(push(COMPARE, 5, (5, 1)), 0), PushEntryResponse)[-1].index == 1
    assert node.durable_index == 1


def test_d15_sync_from_before_cut_says_nothing_of_rewritten_entries():
    """The same entry, cut and come again while one slow sync was under way: that sync may not have
    had it."""
    node = following(0, 1)
    generation = node.generation
    first = push(TRUNCATE, 5, (0, 0), log_of(0, 5)[1:])
    node.step(first, 0)
    assert node.generation == generation + 1
    ready = node.persisted(node.end.position, 0, generation)
    assert (ready.messages, node.durable_index) == ((), 0)
    assert node.persisted(node.end.position, 0, node.generation).messages


def test_every_heartbeat_names_a_round_so_that_no_answer_counts_twice():
    node = node_with(0)
    ready, _ = lead(node)
    assert {m.round for m in sent(ready, HeartBeatRequest)} == {1}
    assert node.noop_index == Index(1)
