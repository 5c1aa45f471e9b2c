"""Who may say what: groups, members, terms and leaders of every message; heartbeats; losing the
quorum."""

from __future__ import annotations

import pytest

from dledger.errors import ConfigError, NotLeader
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushEntryResponse,
    PushType,
)
from dledger.raft import IDLE, RoleChange
from dledger.types import NodeId, Role
from tests.raft.raft_bench import (
    APPEND,
    COMMIT,
    N0,
    N1,
    N2,
    TRUNCATE,
    asked,
    beat,
    beat_answer,
    config,
    elected,
    events,
    following,
    lead,
    log_of,
    node_with,
    only,
    push,
    pushed,
    sent,
    take_over,
    ticks,
    vote,
)


def code_of(node, request):
    return only(node.step(request, 0), HeartBeatResponse).code


def state(node):
    return (node.role, node.term, node.leader_id, node.hard_state, node.end, node.committed_index)


def test_heartbeats_are_answered_in_dledgers_words():
    node = following(0)
    for request, code in (
        (beat(5), Code.SUCCESS),
        (beat(4), Code.EXPIRED_TERM),
        (beat(5, of=N2), Code.INCONSISTENT_LEADER),
        (beat(5, leader=NodeId("n9")), Code.UNKNOWN_MEMBER),
        (beat(5, to=N2), Code.UNKNOWN_MEMBER),
    ):
        assert code_of(node, request) is code
    assert (node.term, node.leader_id) == (5, N1)
    ready = node.step(beat(6, of=N2), 0)
    assert only(ready, HeartBeatResponse).code is Code.TERM_NOT_READY
    assert (ready.hard_state.term, node.role) == (6, Role.CANDIDATE)
    assert code_of(node, beat(6, of=N2)) is Code.SUCCESS
    assert node.leader_id == N2


def test_an_answer_carries_the_round_and_the_term():
    node = node_with(0, term=5)
    response = only(node.step(beat(5, round_=42), 0), HeartBeatResponse)
    assert (response.round, response.term) == (42, 5)


@pytest.mark.parametrize(
    "stray",
    [
        vote(9, (9, 9), group="other"),
        beat(9, group="other"),
        push(TRUNCATE, 9, (0, 0), log_of(0, 9)[1:], group="other"),
        push(COMMIT, 9, (1, 1), commit=1, to=N2),
        vote(9, (9, 9), to=N2),
        push(APPEND, 9, (1, 1), log_of(0, 1, 9)[2:], of=NodeId("n9")),
        push(APPEND, 9, (1, 1), log_of(0, 1, 9)[2:], of=N0),
        beat(9, of=NodeId("n9")),
        beat(9, of=N0),
        take_over(NodeId("n9"), 5, 1),
    ],
    ids=lambda m: f"{type(m).__name__} {m.group} {m.local_id}>{m.remote_id}",
)
def test_a_message_of_another_group_receiver_or_stranger_changes_nothing(stray):
    node = following(0, 1)
    before = state(node)
    ready = node.step(stray, 0)
    assert state(node) == before
    assert "stray" in events(ready)
    assert all(isinstance(m, HeartBeatResponse) for m in ready.messages)


@pytest.mark.parametrize("kind", list(PushType))
def test_a_push_of_an_old_term_or_another_leader_changes_nothing(kind):
    node = following(0, 1)
    before = state(node)
    for term, sides, code in (
        (4, {}, Code.EXPIRED_TERM),
        (5, {"of": N2}, Code.INCONSISTENT_LEADER),
        (5, {"of": N2, "leader": N1}, Code.INCONSISTENT_LEADER),
        (9, {"leader": NodeId("n9")}, Code.UNKNOWN_MEMBER),
    ):
        request = push(kind, term, (0, 0), log_of(0, min(term, 5))[1:], commit=1, **sides)
        response = only(node.step(request, 0), PushEntryResponse)
        assert (response.code, response.term) == (code, 5)
        assert state(node) == before


def test_a_push_of_a_later_term_is_word_enough_of_a_leader():
    node = node_with(0, term=5)
    ready = node.step(push(APPEND, 6, (0, 0), log_of(0, 6)[1:], of=N2), 0)
    assert ready.hard_state.term == 6
    assert (node.role, node.leader_id) == (Role.FOLLOWER, N2)
    assert ready.role == RoleChange(Role.FOLLOWER, 6, N2)
    assert len(ready.append) == 1


def test_a_later_term_in_an_answer_ends_a_leadership():
    node, now_ms = elected(0)
    node.propose([b"x"], now_ms)
    ready = node.step(beat_answer(node, N1, 1, Code.EXPIRED_TERM, term=9), now_ms)
    assert (node.role, node.term) == (Role.CANDIDATE, 9)
    assert ready.hard_state.term == 9
    assert [f.code for f in ready.finished] == [Code.EXPIRED_TERM]


def test_answers_of_an_earlier_term_do_not_count():
    node, now_ms = elected(0)
    node.step(pushed(node, N1, APPEND, 99, term=0), now_ms)
    assert node.watermarks[N1] == -1


def test_a_follower_that_had_to_learn_the_term_is_beaten_again_at_once():
    node, now_ms = elected(0)
    ready = node.step(beat_answer(node, N2, 1, Code.TERM_NOT_READY), now_ms)
    assert only(ready, HeartBeatRequest).remote_id == N2


def test_a_leader_beats_every_interval_with_a_new_round():
    node = node_with(0)
    ready, now_ms = lead(node)
    first = sent(ready, HeartBeatRequest)
    assert node.deadline_ms() == now_ms + config().heartbeat_ms
    second = sent(node.tick(node.deadline_ms()), HeartBeatRequest)
    assert [m.remote_id for m in second] == [N1, N2]
    assert second[0].round > first[0].round


def test_a_connection_to_somebody_who_is_no_member_leaves_nothing_to_do():
    """All messages go to members."""
    node = node_with(0)
    node.tick(0)
    assert node.peer_found(NodeId("n9"), 0) is IDLE
    _, now_ms = lead(node)
    assert node.peer_found(NodeId("n9"), now_ms) is IDLE


def test_a_leader_that_no_quorum_answers_steps_down_in_its_term():
    """Check-quorum: it serves nothing that another leader may have overtaken."""
    node, now_ms = elected(0)
    node.propose([b"x"], now_ms)
    at, finished = next((at, ready.finished) for at, ready in ticks(node) if ready.finished)
    assert node.role is not Role.LEADER
    assert 0 <= at - now_ms - config().election_ms <= config().heartbeat_ms
    assert (node.term, node.leader_id) == (1, None)
    assert [f.code for f in finished] == [Code.EXPIRED_TERM]
    with pytest.raises(NotLeader):
        node.propose([b"y"], at)


def test_one_answering_follower_of_two_is_a_quorum():
    node, _ = elected(0)
    for _ in ticks(node, N2, most=50):
        assert node.role is Role.LEADER


def test_a_leader_that_was_paused_steps_down_before_it_does_anything_else():
    node, now_ms = elected(0)
    ready = node.tick(now_ms + 20_000)
    assert node.role is Role.CANDIDATE
    assert not sent(ready, HeartBeatRequest)


def test_two_leaders_in_a_term_are_reported():
    node, now_ms = elected(0)
    ready = node.step(beat(node.term, of=N2), now_ms)
    assert only(ready, HeartBeatResponse).code is Code.INCONSISTENT_LEADER
    assert "two_leaders_in_a_term" in events(ready)
    node.step(beat_answer(node, N1, 1, Code.INCONSISTENT_LEADER), now_ms)
    assert node.role is Role.CANDIDATE


def test_role_changes_are_told_once():
    node = node_with(0, term=5)
    assert node.step(beat(5), 0).role == RoleChange(Role.FOLLOWER, 5, N1)
    assert node.step(beat(5), 0).role is None


def test_a_tick_before_its_time_does_nothing():
    assert node_with(0).tick(0) is IDLE
    assert not IDLE


def test_a_node_that_is_no_member_is_not_made():
    with pytest.raises(ConfigError, match="n9"):
        node_with(me=NodeId("n9"))


def test_answers_nobody_asked_for_are_ignored():
    node = node_with(0, term=5)
    for stray in (pushed(node, N1, APPEND, 0), beat_answer(node, N1, 1)):
        assert node.step(stray, 0) is IDLE
    asked(node)
    assert node.role is Role.CANDIDATE
