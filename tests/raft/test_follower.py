"""What a follower takes, refuses, cuts and acknowledges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NOOP, LogEnd, stamp
from dledger.protocol.messages.peer import PushEntryResponse
from dledger.raft import SafetyViolation
from dledger.types import Index, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    COMMIT,
    COMPARE,
    N2,
    TRUNCATE,
    config,
    events,
    following,
    log_of,
    only,
    push,
    sent,
    with_chain,
)


def reply(node, request):
    return only(node.step(request, 0), PushEntryResponse)


def refusal(response):
    return response.code, response.index, response.x_term, response.x_index


def test_entries_are_written_now_and_acknowledged_when_durable():
    node = following(0)
    ready = node.step(push(APPEND, 5, (0, 0), log_of(0, 5, 5)[1:]), 0)
    assert [e.index for e in ready.append] == [1, 2]
    assert not ready.messages
    response = only(node.persisted(ready.append[-1].position, 3), PushEntryResponse)
    assert (response.type, response.code, response.index) == (APPEND, Code.SUCCESS, 2)


def test_answers_say_whether_requests_wait_for_commits():
    node = following(0)
    node.set_watched(True)
    asked = push(COMPARE, 5, (0, 0))
    assert all(response.is_watched for response in sent(node.step(asked, 0), PushEntryResponse))
    ready = node.step(push(APPEND, 5, (0, 0), log_of(0, 5)[1:]), 0)
    assert only(node.persisted(ready.append[-1].position, 3), PushEntryResponse).is_watched
    node.set_watched(False)
    assert not any(response.is_watched for response in sent(node.step(asked, 0), PushEntryResponse))


def test_half_durable_is_half_acknowledged():
    node = following()
    node.step(push(APPEND, 5, entries=log_of(5, 5, 5)), 0)
    assert only(node.persisted(log_of(5, 5)[1].position, 3), PushEntryResponse).index == 1
    assert not node.persisted(log_of(5)[0].position, 3), "said already"


def test_a_push_that_came_twice_is_acknowledged_again_and_written_once():
    node = following()
    first = node.step(push(APPEND, 5, entries=log_of(5, 5)), 0)
    node.persisted(first.append[-1].position, 0)
    again = node.step(push(APPEND, 5, entries=log_of(5, 5)), 0)
    assert again.append == ()
    assert only(again, PushEntryResponse).index == 1
    longer = node.step(push(APPEND, 5, entries=log_of(5, 5, 5)), 0)
    assert [e.index for e in longer.append] == [2]


def test_a_push_over_a_gap_is_refused_with_the_end_of_the_log():
    response = reply(following(0), push(APPEND, 5, (5, 7), log_of(*[0] * 8, 5)[8:]))
    assert (response.code, response.index, response.end_index) == (Code.INCONSISTENT_STATE, 7, 0)


def test_an_append_never_cuts():
    """What differs is left to COMPARE and TRUNCATE, as DLedger's dispatchers do."""
    node = following(0, 1, 1)
    ready = node.step(push(APPEND, 5, (0, 0), log_of(0, 2, 2)[1:]), 0)
    response = only(ready, PushEntryResponse)
    assert refusal(response) == (Code.INCONSISTENT_STATE, 1, 1, 1)
    assert ready.truncate_to is None
    assert node.end_index == 2


def test_compare_tells_the_term_and_its_first_index_for_a_quick_way_back():
    node = following(0, 2, 2, 2)
    response = reply(node, push(COMPARE, 5, (4, 3)))
    assert refusal(response) == (Code.INCONSISTENT_STATE, 3, 2, 1)
    response = reply(node, push(COMPARE, 5, (4, 9)))
    assert (response.code, response.end_index, response.x_term) == (Code.INCONSISTENT_STATE, 3, -1)


def test_a_compare_that_matches_is_followed_by_the_watermark():
    """So the leader learns what is durable here even when there is nothing to push."""
    node = following(0, 2, 2)
    compared, acknowledged = sent(node.step(push(COMPARE, 5, (2, 1)), 0), PushEntryResponse)
    assert (compared.type, compared.code, compared.index) == (COMPARE, Code.SUCCESS, 1)
    assert (acknowledged.type, acknowledged.index) == (APPEND, 1), (
        "not 2: that one may be another leader's"
    )


def test_truncate_cuts_what_differs_and_takes_the_entry_it_shows():
    node = following(0, 1, 1)
    ready = node.step(push(TRUNCATE, 5, (0, 0), log_of(0, 5)[1:]), 0)
    assert ready.truncate_to == 0
    assert [e.index for e in ready.append] == [1]
    assert only(ready, PushEntryResponse).code is Code.SUCCESS
    assert node.term_at(Index(1)) == 5


def test_a_late_truncate_cuts_nothing_that_was_written_since():
    """The same leader sent it twice: when the copy comes, its cut was made and the place was
    filled, acknowledged."""
    node = following(0, 1, 1)
    order = push(TRUNCATE, 5, (0, 0), log_of(0, 5)[1:])
    node.step(order, 0)
    node.truncated(LogEnd.after(log_of(0)[0]))
    node.step(push(APPEND, 5, (5, 1), log_of(0, 5, 5, 5)[2:]), 0)
    ready = node.step(order, 0)
    assert ready.truncate_to is None
    assert node.end_index == 3


def test_a_truncate_without_an_entry_is_not_obeyed():
    node = following(0, 1, 1)
    ready = node.step(push(TRUNCATE, 5, (0, 0)), 0)
    assert ready.truncate_to is None
    assert "malformed_push" in events(ready)


@pytest.mark.parametrize("kind", [APPEND, TRUNCATE])
def test_a_leader_that_contradicts_a_committed_entry_halts_the_node(kind):
    node = following(0, 1, 1, committed=1)
    for _ in range(2):
        with pytest.raises(SafetyViolation, match="is committed"):
            node.step(push(kind, 5, (0, 0), log_of(0, 5)[1:]), 0)
    assert node.end_index == 2
    with pytest.raises(SafetyViolation):
        node.tick(10_000)


def test_commit_index_is_followed_only_as_far_as_log_is_known_to_match():
    """The tail behind may be another leader's, that this one is about to have cut."""
    node = following(0, 1, 1)
    assert node.step(push(COMMIT, 5, commit=2), 0).committed is None
    assert node.step(push(COMPARE, 5, (1, 1), commit=2), 0).committed == 1
    assert node.step(push(COMMIT, 5, (1, 2), commit=2), 0).committed == 2, (
        "a COMMIT shows what it commits"
    )


def test_a_commit_index_never_goes_back():
    node = following(0, 0)
    assert node.step(push(COMPARE, 5, (0, 1), commit=1), 0).committed == 1
    assert node.step(push(COMPARE, 5, (0, 1), commit=0), 0).committed is None
    assert node.committed_index == 1


def test_restarted_follower_learns_commit_index_from_idle_leader():
    node = following(0, 5, 5)
    assert node.step(push(COMMIT, 5, (5, 2), commit=2), 0).committed == 2


def flip(entry, at=0):
    body = bytearray(entry.body)
    body[at] ^= 1
    return replace(entry, body=bytes(body))


def test_damaged_entries_are_neither_written_nor_answered():
    good = log_of(0, 5, 5)
    for bad in (
        [good[1], flip(good[2])],
        [good[1], with_chain(good[2], good[2].chain_crc ^ 1)],
        [good[1], replace(good[2], pos=good[2].pos + 8)],
    ):
        node = following(0)
        ready = node.step(push(APPEND, 5, (0, 0), bad), 0)
        assert (ready.append, ready.messages, node.end_index) == ((), (), 0)
        assert "damaged_push" in events(ready)
        assert node.step(push(APPEND, 5, (0, 0), good[1:]), 0).append, "the same entries, sound"


@pytest.mark.parametrize(
    "entries",
    [log_of(5, 5, 5)[::2], log_of(5, 5)[::-1], log_of(5, 6), log_of(5, 5)[1:], log_of(5, 4)],
    ids=["gap", "backwards", "term beyond the leader's", "not behind previous", "term goes back"],
)
def test_entries_out_of_order_are_not_taken(entries):
    ready = following().step(push(APPEND, 5, entries=entries), 0)
    assert ready.append == ()


def test_pushes_are_refused_while_the_disk_is_full_but_a_term_may_open():
    node = following(0)
    node.set_writable(False, 0)
    assert reply(node, push(APPEND, 5, (0, 0), log_of(0, 5)[1:])).code is Code.DISK_FULL
    noop = stamp(LogEnd.after(log_of(0)[0]), Term(5), MAGIC_NOOP, b"", 1 << 20)
    assert node.step(push(APPEND, 5, (0, 0), [noop]), 0).append
    node.set_writable(True, 0)
    entry = stamp(LogEnd.after(noop), Term(5), 1, b"x", 1 << 20)
    assert node.step(push(APPEND, 5, (5, 1), [entry]), 0).append


def test_silence_of_the_leader_makes_a_candidate_of_the_same_term():
    node = following(0)
    node.step(push(COMMIT, 5), 700)
    assert node.deadline_ms() == 700 + config().election_ms
    node.tick(1699)
    assert node.role is Role.FOLLOWER
    node.tick(1700)
    assert (node.role, node.term, node.leader_id) == (Role.CANDIDATE, 5, None)


def test_a_new_term_forgets_how_far_the_old_leaders_log_matched():
    node = following(0, 1)
    node.step(push(COMPARE, 5, (1, 1)), 0)
    assert node.step(push(COMMIT, 6, commit=1, of=N2), 0).committed is None
