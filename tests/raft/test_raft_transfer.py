"""Handing leadership over: on request, by preference, and because of a disk."""

from __future__ import annotations

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    VoteRequest,
)
from dledger.raft import TransferDone
from dledger.types import Index, NodeId, Position, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    N0,
    N1,
    N2,
    beat,
    beat_answer,
    catches_up,
    config,
    following,
    lead,
    leading,
    node_with,
    only,
    pushed,
    sent,
    take_over,
    ticks,
    vote,
)
from tests.raft.raft_harness import acceptance


def followed(**more):
    """A leader of three; n1 has all of its log, n2 has been heard but has nothing yet."""
    node, now_ms = leading(0, **more)
    catches_up(node, N1, 1, now_ms)
    node.step(beat_answer(node, N2, 1), now_ms)
    return node, now_ms


def test_a_transferee_that_has_everything_is_told_at_once():
    node, now_ms = followed()
    request = only(node.transfer(N1, now_ms), LeadershipTransferRequest)
    assert (request.remote_id, request.term, request.take_leadership_index) == (N1, 1, 1)
    assert acceptance(node, 1) is Code.LEADER_TRANSFERRING


def test_a_transferee_catches_up_first():
    node, now_ms = followed()
    assert not sent(node.transfer(N2, now_ms), LeadershipTransferRequest)
    ready = catches_up(node, N2, 1, now_ms)
    assert only(ready, LeadershipTransferRequest).remote_id == N2


def test_a_transferee_that_lacks_the_last_entry_is_not_told():
    node, now_ms = followed()
    node.propose([b"x"], now_ms)
    assert not sent(node.transfer(N1, now_ms), LeadershipTransferRequest)
    ready = node.step(pushed(node, N1, APPEND, 2), now_ms)
    assert not sent(ready, LeadershipTransferRequest), (
        "it is on one disk only, so who waits for it would not be told"
    )
    ready = node.persisted(Position(Term(1), Index(2)), now_ms)
    assert only(ready, LeadershipTransferRequest).take_leadership_index == 2


def test_the_leader_learns_that_the_transferee_leads():
    node, now_ms = followed()
    node.transfer(N1, now_ms)
    node.step(vote(2, (1, 1), of=N1, transfer=True), now_ms)
    assert node.role is Role.CANDIDATE
    ready = node.step(beat(2, of=N1), now_ms + 10)
    assert ready.transfer == TransferDone(N1, Code.SUCCESS)


def test_failed_transfer_ends_within_an_election_time_and_writes_resume():
    node, now_ms = followed()
    node.transfer(N1, now_ms)
    for at, ready in ticks(node, N2):
        assert at <= now_ms + config().election_ms
        if ready.transfer:
            break
        if sent(ready, HeartBeatRequest):
            assert only(ready, LeadershipTransferRequest, N1), "told again: the first may be lost"
    assert ready.transfer == TransferDone(N1, Code.TAKE_LEADERSHIP_FAILED)
    assert node.role is Role.LEADER
    assert acceptance(node, 1) is Code.SUCCESS


def test_another_winner_ends_the_transfer_too():
    node, now_ms = followed()
    node.transfer(N1, now_ms)
    node.step(beat(2, of=N2), now_ms)
    failed = TransferDone(N1, Code.TAKE_LEADERSHIP_FAILED)
    assert node.step(beat(2, of=N2), now_ms).transfer == failed


def test_old_leader_reports_a_failed_transfer_when_it_wins_again():
    """The transferee is in the new term and is not elected there; nobody else would ever answer who
    asked for it."""
    node, now_ms = followed()
    node.transfer(N1, now_ms)
    node.step(vote(2, (1, 1), of=N1, transfer=True), now_ms)
    assert node.role is Role.CANDIDATE
    ready, at = lead(node, N2)
    assert at < now_ms + config().election_ms
    assert ready.transfer == TransferDone(N1, Code.TAKE_LEADERSHIP_FAILED)


def test_transfers_that_cannot_be_are_refused_with_a_reason():
    node, now_ms = followed(group=config(max_transfer_lag=5))
    n9 = NodeId("n9")
    assert node.transfer(n9, now_ms).transfer == TransferDone(n9, Code.UNKNOWN_MEMBER)
    assert node.transfer(N0, now_ms).transfer == TransferDone(N0, Code.SUCCESS)
    node.propose([b"x"] * 10, now_ms)
    assert node.transfer(N2, now_ms).transfer == TransferDone(N2, Code.FALL_BEHIND_TOO_MUCH)
    node.step(pushed(node, N1, APPEND, 11), now_ms)
    node.transfer(N1, now_ms)
    assert node.transfer(N2, now_ms).transfer == TransferDone(N2, Code.LEADER_TRANSFERRING)
    assert node_with(0).transfer(N1, 0).transfer == TransferDone(N1, Code.NOT_LEADER)


def test_without_a_name_the_nearest_follower_takes_over():
    node, now_ms = followed()
    assert only(node.transfer(None, now_ms), LeadershipTransferRequest).remote_id == N1
    alone = node_with(0, group=config(1))
    alone.tick(0)
    assert alone.transfer(None, 0).transfer == TransferDone(N0, Code.FALL_BEHIND_TOO_MUCH)


def test_a_dead_follower_is_no_transferee():
    node, _ = followed()
    *_, (at, _) = ticks(node, N2, most=20)
    assert node.transfer(N1, at).transfer == TransferDone(N1, Code.FALL_BEHIND_TOO_MUCH)


def test_a_transferee_asks_for_real_votes_at_once_saying_why():
    node = following(0)
    ready = node.step(take_over(N1, 5, 0), 10)
    assert only(ready, LeadershipTransferResponse).code is Code.SUCCESS
    asked = {(r.term, r.pre_vote, r.transfer) for r in sent(ready, VoteRequest)}
    assert asked == {(6, False, True)}
    assert ready.hard_state.term == 6


def test_a_transferee_holds_off_a_rival_of_the_next_term():
    node = following(0)
    node.step(take_over(N1, 5, 0), 10)
    ready = node.step(vote(7, (0, 0), of=N2, pre=True), 10)
    assert ready.messages[0].result.name == "REJECT_TAKING_LEADERSHIP"


def test_requests_to_take_over_that_are_late_or_false_are_not_followed():
    node = following(0, 0)
    for request, code in (
        (take_over(N1, 4, 1), Code.EXPIRED_TERM),
        (take_over(N2, 5, 1), Code.INCONSISTENT_LEADER),
        (take_over(N1, 6, 1), Code.INCONSISTENT_LEADER),
        (take_over(N1, 5, 2), Code.TAKE_LEADERSHIP_FAILED),
        (take_over(N1, 5, 0), Code.TAKE_LEADERSHIP_FAILED),
    ):
        ready = node.step(request, 0)
        assert only(ready, LeadershipTransferResponse).code is code
        assert (node.role, node.term) == (Role.FOLLOWER, 5)


def beaten(node, count=30):
    """Heartbeats that both followers answer; who is asked meanwhile to take over."""
    return [
        request.remote_id
        for _, ready in ticks(node, N1, N2, most=count)
        for request in sent(ready, LeadershipTransferRequest)
    ]


def test_leadership_moves_to_a_preferred_node_that_is_up_to_date():
    """A leader that is itself a preferred node keeps the leadership."""
    node, _ = followed(group=config(preferred_leaders=(N1,)))
    assert N1 in beaten(node)
    node, _ = followed(group=config(preferred_leaders=(N0, N1)))
    assert beaten(node) == []
    node, _ = followed(group=config(preferred_leaders=(N2,), max_transfer_lag=0))
    assert beaten(node) == [], "it is behind"


def test_preferred_node_that_does_not_take_over_is_not_asked_constantly():
    """Appends are refused while it is asked."""
    node, _ = followed(group=config(preferred_leaders=(N1,)))
    beaten(node, 25)
    assert acceptance(node, 1) is Code.SUCCESS
    assert beaten(node, 60) == []


def test_a_leader_with_a_full_disk_hands_over_and_takes_nothing():
    node, now_ms = followed()
    ready = node.set_writable(False, now_ms)
    assert only(ready, LeadershipTransferRequest).remote_id == N1
    beaten(node, 12)
    assert acceptance(node, 1) is Code.DISK_FULL
    node.set_writable(True, now_ms)
    assert acceptance(node, 1) is Code.SUCCESS


def test_a_leader_whose_disk_stalls_hands_over():
    """The others go on committing, but a node that cannot write should not lead."""
    node, now_ms = followed()
    node.propose([b"x"], now_ms)
    node.step(pushed(node, N1, APPEND, 2), now_ms)
    assert catches_up(node, N2, 2, now_ms).committed == 2
    assert node.durable_index == 1
    assert beaten(node)


def test_leader_with_a_slow_but_advancing_disk_keeps_followed():
    """Under load the quorum is always a little ahead of the leader's own sync: that is no stall."""
    node, now_ms = followed()
    requests = []
    for index in range(2, 40):
        end = node.propose([b"x"], now_ms).append[-1].position
        node.step(pushed(node, N1, APPEND, index), now_ms)
        catches_up(node, N2, index, now_ms)
        requests += beaten(node, 1)
        now_ms = node.deadline_ms() - 1
        assert node.durable_index < node.committed_index
        node.persisted(end, now_ms)
    assert requests == []
