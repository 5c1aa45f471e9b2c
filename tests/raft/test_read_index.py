"""Linearizable reads: what they wait for, and what ends them."""

from __future__ import annotations

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import HeartBeatRequest
from dledger.raft import ReadDone
from dledger.raft.roles.read_index import ReadQueue
from dledger.types import NO_INDEX, Index, Role
from tests.raft.raft_bench import (
    APPEND,
    N0,
    N1,
    N2,
    beat_answer,
    catches_up,
    config,
    lead,
    leading,
    node_with,
    pushed,
    sent,
    ticks,
)


def opened():
    """A leader whose NOOP at 1 is committed, and the time."""
    node, now_ms = leading(0)
    assert catches_up(node, N1, 1, now_ms).committed == 1
    return node, now_ms


def rounds(ready):
    return {m.round for m in sent(ready, HeartBeatRequest)}


def served(node, of, round_, now_ms):
    """The reads that the answer to a beat of that round lets go on, all of them at index 1."""
    reads = node.step(beat_answer(node, of, round_), now_ms).reads
    assert {(done.code, done.index) for done in reads} <= {(Code.SUCCESS, 1)}
    return [done.token for done in reads]


def test_read_begins_a_round_at_once_and_ends_with_a_quorum_of_answers():
    node, now_ms = opened()
    ready = node.read_index(7, now_ms)
    [round_] = rounds(ready)
    assert ready.reads == ()
    assert served(node, N1, round_ - 1, now_ms) == [], "asked before the read"
    assert served(node, N2, round_, now_ms) == [7]


def test_the_index_is_what_was_committed_when_it_was_asked():
    node, now_ms = opened()
    [round_] = rounds(node.read_index(7, now_ms))
    ready = node.propose([b"x"], now_ms)
    node.persisted(ready.append[-1].position, now_ms)
    assert node.step(pushed(node, N1, APPEND, 2), now_ms).committed == 2
    assert served(node, N1, round_, now_ms) == [7]


def test_a_read_waits_for_the_noop_of_the_term():
    """Before that a new leader does not know how far the log is committed."""
    node = node_with(0)
    ready, now_ms = lead(node)
    noop = ready.append[-1]
    [round_] = rounds(node.read_index(7, now_ms))
    assert node.step(beat_answer(node, N1, round_), now_ms).reads == ()
    node.persisted(noop.position, now_ms)
    assert catches_up(node, N1, 1, now_ms).reads == (ReadDone(7, Code.SUCCESS, noop.index),)


def test_reads_that_come_while_a_round_is_open_share_the_next_one():
    node, now_ms = opened()
    [first] = rounds(node.read_index(1, now_ms))
    assert [rounds(node.read_index(token, now_ms)) for token in (2, 3, 4)] == [set(), set(), set()]
    ready = node.step(beat_answer(node, N1, first), now_ms)
    assert [done.token for done in ready.reads] == [1]
    [second] = rounds(ready)
    assert served(node, N2, second, now_ms) == [2, 3, 4]


def test_a_lost_round_is_made_up_for_by_the_next_heartbeat():
    node, now_ms = opened()
    node.read_index(1, now_ms)
    node.read_index(2, now_ms)
    [round_] = rounds(node.tick(now_ms + config().heartbeat_ms))
    assert served(node, N1, round_, now_ms) == [1, 2]


def test_reads_fail_when_the_leader_steps_down():
    node, now_ms = opened()
    node.read_index(1, now_ms)
    ready = node.step(beat_answer(node, N1, 1, Code.EXPIRED_TERM, term=9), now_ms)
    assert ready.reads == (ReadDone(1, Code.NOT_LEADER, NO_INDEX),)


def test_a_leader_cut_off_answers_no_read_and_gives_up_in_an_election_time():
    node, now_ms = opened()
    node.read_index(1, now_ms)
    at, reads = next((at, ready.reads) for at, ready in ticks(node) if ready.reads)
    assert reads == (ReadDone(1, Code.NOT_LEADER, NO_INDEX),)
    assert at - now_ms <= config().election_ms + config().heartbeat_ms


def test_a_read_of_another_role_is_refused_at_once():
    assert node_with(0).read_index(3, 0).reads == (ReadDone(3, Code.NOT_LEADER, NO_INDEX),)


def test_many_reads_do_not_hold_up_what_is_due_with_every_heartbeat():
    """Rounds of reads are no heartbeats: resends and check-quorum go by the clock."""
    node, now_ms = opened()
    for at in range(now_ms, now_ms + 3000, 10):
        node.tick(at)
        if node.role is not Role.LEADER:
            break
        node.read_index(at, at)
    assert at - now_ms <= config().election_ms + config().heartbeat_ms


def test_a_lone_node_reads_at_once():
    node = node_with(0, group=config(1))
    node.persisted(node.tick(0).append[-1].position, 0)
    assert node.read_index(1, 0).reads == (ReadDone(1, Code.SUCCESS, Index(1)),)


def test_an_answer_to_a_round_that_never_was_counts_as_the_newest_only():
    queue = ReadQueue((N0, N1, N2), N0, noop_index=Index(0))
    queue.next_round()
    queue.answered(N1, 99)
    queue.ask(1, Index(0))
    assert queue.done(Index(0)) == []
