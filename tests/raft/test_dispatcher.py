"""What one follower is sent, and when it is sent again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import PushEntryRequest
from dledger.raft.roles.entry_dispatcher import COMMIT_DELAY_MS, MAX_IN_FLIGHT
from dledger.types import Index, Role
from tests.raft.raft_bench import (
    APPEND,
    COMMIT,
    COMPARE,
    INSTALL,
    N1,
    N2,
    TRUNCATE,
    beat_answer,
    catches_up,
    config,
    events,
    lead,
    leading,
    log_of,
    node_with,
    only,
    pushed,
    sent,
)


def matched(*terms, **more):
    """A leader that knows that n1 has all of its log but the NOOP, which is on its way."""
    node, now_ms = leading(*terms, **more)
    node.step(pushed(node, N1, COMPARE, len(terms) - 1), now_ms)
    return node, now_ms


def pushes(ready, to=N1):
    return [
        (m.type, m.previous.index, [e.index for e in m.entries])
        for m in sent(ready, PushEntryRequest, to)
    ]


def alive(node, now_ms):
    """Time passes up to ``now_ms``, both followers answer every heartbeat; the last tick's
    effects."""
    while True:
        at = min(now_ms, node.deadline_ms())
        ready = node.tick(at)
        for peer in (N1, N2):
            node.step(beat_answer(node, peer, 0), at)
        if at == now_ms:
            return ready


def test_a_new_leader_compares_at_its_end_before_it_appends_its_noop():
    node = node_with(0, 0)
    ready, now_ms = lead(node)
    assert pushes(ready) == [(COMPARE, 1, [])]
    ready = node.step(pushed(node, N1, COMPARE, 1), now_ms)
    assert pushes(ready) == [(APPEND, 1, [2])]


@pytest.mark.parametrize(
    ("terms", "refused", "asked"),
    [
        ((0, 0, 0), {"end": -1}, -1),
        ((0, 0, 0, 0), {"end": 1}, 1),
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), {"end": 10, "x": (3, 6)}, 2),
        ((1, 1, 1, 4, 4, 5, 5), {"end": 9, "x": (4, 3)}, 4),
    ],
    ids=["empty follower", "shorter follower", "over whole terms", "last entry of a common term"],
)
def test_the_way_back_to_where_the_logs_may_agree_takes_one_question(terms, refused, asked):
    """Over whole terms: figure 7 of the paper, a follower with two terms that the leader never saw,
    is asked for the last entry of a term not above 3."""
    node, now_ms = leading(*terms)
    last = len(terms) - 1
    ready = node.step(pushed(node, N1, COMPARE, last, Code.INCONSISTENT_STATE, **refused), now_ms)
    assert pushes(ready) == [(COMPARE, asked, [])]


def test_a_longer_follower_is_shown_the_entry_that_replaces_its_tail():
    node, now_ms = leading(1, 1)
    ready = node.step(pushed(node, N1, COMPARE, 1, end=7), now_ms)
    assert pushes(ready) == [(TRUNCATE, 1, [2])]
    ready = node.step(pushed(node, N1, TRUNCATE, 1, end=2), now_ms)
    assert pushes(ready) == [(APPEND, 1, [2])]


def test_pushes_go_out_with_the_proposal_and_are_pipelined():
    node, now_ms = matched(0)
    first = node.propose([b"a"], now_ms)
    second = node.propose([b"b", b"c"], now_ms)
    assert pushes(first) == [(APPEND, 1, [2])]
    assert pushes(second) == [(APPEND, 2, [3, 4])]
    assert pushes(first, to=N2) == [], "still being compared"


def test_the_window_of_bytes_bounds_what_is_in_flight():
    group = config(push_window_bytes=1000, push_batch_bytes=400)
    node, now_ms = matched(0, group=group)
    node.step(pushed(node, N1, APPEND, 1), now_ms)
    ready = node.propose([b"x" * 100] * 50, now_ms)
    batches = pushes(ready)
    assert [len(entries) for *_, entries in batches] == [2, 2, 2, 2]
    ready = node.step(pushed(node, N1, APPEND, 3), now_ms)
    assert pushes(ready) == [(APPEND, 9, [10, 11])], "one goes when one is acknowledged"


def test_the_number_of_pushes_in_flight_is_bounded_so_that_entries_gather():
    node, now_ms = matched(0)
    node.step(pushed(node, N1, APPEND, 1), now_ms)
    sizes = [len(pushes(node.propose([b"x"], now_ms))) for _ in range(MAX_IN_FLIGHT + 10)]
    assert sum(sizes) == MAX_IN_FLIGHT
    ready = node.step(pushed(node, N1, APPEND, 2), now_ms)
    assert [len(entries) for *_, entries in pushes(ready)] == [10]


def test_unanswered_push_is_asked_about_and_resent_if_missing():
    node, now_ms = matched(0)
    node.propose([b"a"], now_ms)
    assert APPEND not in [kind for kind, *_ in pushes(alive(node, now_ms + 900))]
    ready = alive(node, now_ms + 1000)
    assert pushes(ready) == [(COMPARE, 2, [])]
    ready = node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=0), now_ms + 1000)
    assert pushes(ready) == [(COMPARE, 0, [])]
    ready = node.step(pushed(node, N1, COMPARE, 0), now_ms + 1000)
    assert pushes(ready) == [(APPEND, 0, [1, 2])]


def test_a_push_that_only_waits_for_a_slow_disk_is_not_sent_twice():
    node, now_ms = matched(0)
    node.propose([b"a"], now_ms)
    alive(node, now_ms + 1000)
    ready = node.step(pushed(node, N1, COMPARE, 2), now_ms + 1000)
    assert pushes(ready) == []
    assert pushes(node.propose([b"b"], now_ms + 1000)) == [(APPEND, 2, [3])]


def test_a_question_that_was_lost_is_asked_again():
    node, now_ms = leading(0)
    assert pushes(alive(node, now_ms + 900)) == []
    assert pushes(alive(node, now_ms + 1000)) == [(COMPARE, 0, [])]


def test_an_append_over_a_gap_leads_back_to_compare():
    node, now_ms = matched(0)
    node.propose([b"a"], now_ms)
    ready = node.step(pushed(node, N1, APPEND, 1, Code.INCONSISTENT_STATE, end=0), now_ms)
    assert pushes(ready) == [(COMPARE, 0, [])]


def test_a_refusal_that_is_older_than_the_watermark_is_ignored():
    node, now_ms = matched(0)
    node.step(pushed(node, N1, APPEND, 1), now_ms)
    ready = node.step(pushed(node, N1, APPEND, 1, Code.INCONSISTENT_STATE, end=0), now_ms)
    assert pushes(ready) == []
    assert pushes(node.propose([b"a"], now_ms)) == [(APPEND, 1, [2])]


def test_answers_to_other_questions_are_ignored():
    node, now_ms = leading(0, 0, 0)
    ready = node.step(pushed(node, N1, COMPARE, 1), now_ms)
    assert pushes(ready) == []
    assert pushes(node.step(pushed(node, N1, COMPARE, 2), now_ms)) == [(APPEND, 2, [3])]


def test_uncached_entries_are_loaded_in_order_one_batch_at_a_time():
    group = config(push_batch_bytes=200)
    node, now_ms = leading(*[0] * 20, group=group)
    node.step(pushed(node, N1, COMPARE, 19, Code.INCONSISTENT_STATE, end=9), now_ms)
    ready = node.step(pushed(node, N1, COMPARE, 9), now_ms)
    [load] = ready.load
    assert (load.peer, load.begin_index, load.max_bytes) == (N1, 10, 200)
    assert node.propose([b"x"], now_ms).load == (), "one at a time"
    entries = log_of(*[0] * 20)
    ready = node.loaded(N1, entries[10:14], now_ms)
    assert pushes(ready) == [(APPEND, 9, [10, 11, 12, 13])]
    assert [load.begin_index for load in ready.load] == [14]


def test_loaded_entries_that_are_not_this_logs_are_not_sent():
    """A read that was asked for before a cut comes back after it."""
    node, now_ms = leading(0, 0, 1)
    node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=0), now_ms)
    node.step(pushed(node, N1, COMPARE, 0), now_ms)
    ready = node.loaded(N1, log_of(0, 0, 7)[1:], now_ms)
    assert pushes(ready) == []
    now_ms += 1000
    assert [load.begin_index for load in alive(node, now_ms).load] == [1], "read again"
    assert pushes(node.loaded(N2, log_of(0, 0, 1)[1:], now_ms)) == []
    assert pushes(node.loaded(N1, log_of(0, 0, 1)[1:], now_ms)) == [
        (APPEND, 0, [1, 2]),
        (APPEND, 2, [3]),
    ]


def test_entries_that_cannot_be_read_are_tried_again_later():
    node, now_ms = leading(0, 0, 0)
    node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=0), now_ms)
    node.step(pushed(node, N1, COMPARE, 0), now_ms)
    assert node.loaded(N1, (), now_ms).load == ()
    assert [load.begin_index for load in alive(node, now_ms + 1000).load] == [1]


def test_the_entry_for_a_truncate_is_loaded_when_it_is_not_cached():
    node, now_ms = leading(0, 0, 1)
    node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=5, x=(0, 0)), now_ms)
    ready = node.step(pushed(node, N1, COMPARE, 1, end=5), now_ms)
    assert [(load.begin_index, load.max_bytes) for load in ready.load] == [(2, 1)]
    assert pushes(node.loaded(N1, log_of(0, 0, 1)[2:], now_ms)) == [(TRUNCATE, 1, [2])]


def test_commit_is_told_soon_to_idle_follower_and_with_append_to_busy():
    node, now_ms = matched(0)
    ready = node.step(pushed(node, N1, APPEND, 1), now_ms)
    assert ready.committed == 1
    assert pushes(ready) == [], "an append may come and carry it"
    assert node.deadline_ms() == now_ms + COMMIT_DELAY_MS
    ready = node.tick(now_ms + COMMIT_DELAY_MS)
    assert [
        (m.type, m.commit_index, m.previous.index) for m in sent(ready, PushEntryRequest, N1)
    ] == [(COMMIT, 1, 1)]
    node.propose([b"a"], now_ms)
    second = node.propose([b"b"], now_ms)
    node.persisted(second.append[-1].position, now_ms)
    ready = node.step(pushed(node, N1, APPEND, 2), now_ms)
    assert ready.committed == 2
    assert pushes(ready) == [], (
        "another push is in flight: its commit index comes with the next one"
    )
    third = node.propose([b"c"], now_ms)
    assert only(third, PushEntryRequest, N1).commit_index == 2


def test_commit_is_told_at_once_to_idle_follower_where_requests_wait():
    node, now_ms = matched(0)
    watched = replace(pushed(node, N1, APPEND, 1), is_watched=True)
    ready = node.step(watched, now_ms)
    assert ready.committed == 1
    assert pushes(ready) == [(COMMIT, 1, [])]
    node.propose([b"a"], now_ms)
    second = node.propose([b"b"], now_ms)
    node.persisted(second.append[-1].position, now_ms)
    first = node.step(replace(watched, index=Index(2)), now_ms)
    assert pushes(first) == [], "another push is in flight"
    assert pushes(node.step(replace(watched, index=Index(3)), now_ms)) == [(COMMIT, 3, [])]
    third = node.propose([b"c"], now_ms)
    node.persisted(third.append[-1].position, now_ms)
    assert pushes(node.step(pushed(node, N1, APPEND, 4), now_ms)) == [], "none waits any more"


def test_unanswered_commit_notice_is_repeated_with_next_heartbeat():
    node, now_ms = matched(0)
    node.step(pushed(node, N1, APPEND, 1), now_ms)
    assert pushes(alive(node, now_ms + COMMIT_DELAY_MS)) == [(COMMIT, 1, [])]
    ready = alive(node, now_ms + 200)
    assert pushes(ready) == [(COMMIT, 1, [])]
    node.step(pushed(node, N1, COMMIT, 1), now_ms + 200)
    assert pushes(alive(node, now_ms + 400)) == []


def test_an_idle_follower_is_told_the_commit_index_now_and_then():
    """It may have been restarted, and know of no commit at all."""
    node, now_ms = matched(0)
    node.step(pushed(node, N1, APPEND, 1), now_ms)
    node.step(pushed(node, N1, COMMIT, 1), now_ms)
    seen = [kind for at in range(100, 1200, 100) for kind, *_ in pushes(alive(node, now_ms + at))]
    assert seen == [COMMIT]


def test_a_follower_with_a_full_disk_is_left_alone_for_a_while():
    node, now_ms = matched(0)
    ready = node.step(pushed(node, N1, APPEND, 0, Code.DISK_FULL), now_ms)
    assert pushes(ready) == []
    assert pushes(node.propose([b"a"], now_ms)) == []
    assert pushes(alive(node, now_ms + 1000)) == [(COMPARE, 1, [])]


def behind(end=0):
    """A leader whose log begins at entry 2, and what it does about a follower that ends at
    ``end``."""
    node, now_ms = leading(0, 0, 0, committed=2)
    node.forget(Index(2))
    refused = pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=end)
    return node, now_ms, node.step(refused, now_ms)


@pytest.mark.parametrize("end", [-1, 0])
def test_follower_behind_retention_is_offered_the_state_now_and_then(end):
    node, now_ms, ready = behind(end)
    assert events(ready) == ["follower_too_far_behind"]
    assert pushes(ready) == [(INSTALL, 2, [])]
    assert not ready.load, "there is nothing to load"
    ready = node.step(pushed(node, N1, INSTALL, 2, Code.INCONSISTENT_STATE, end=end), now_ms)
    assert pushes(ready) == [], "it fetches it"
    assert pushes(alive(node, now_ms + 1000)) == [(INSTALL, 2, [])]


def test_a_follower_that_ends_right_before_the_kept_entries_needs_no_state():
    *_, ready = behind(end=1)
    assert pushes(ready) == [(COMPARE, 1, [])]


def test_follower_with_taken_over_state_goes_on_behind_first_entry():
    """Saying so counts for no commit: that is what the APPEND answers are for, and they speak of
    what is durable."""
    node, now_ms, _ = behind()
    ready = node.step(pushed(node, N1, INSTALL, 2), now_ms)
    assert pushes(ready) == [(COMPARE, 2, [])]
    assert node.watermarks[N1] == -1
    ready = node.step(pushed(node, N1, COMPARE, 2), now_ms)
    assert pushes(ready) == [(APPEND, 2, [3])]


def test_retention_that_goes_on_meanwhile_offers_a_later_first_entry():
    node, now_ms, _ = behind()
    assert catches_up(node, N2, 3, now_ms).committed == 3
    node.forget(Index(3))
    assert pushes(alive(node, now_ms + 1000)) == [(INSTALL, 3, [])]
    ready = node.step(pushed(node, N1, INSTALL, 2), now_ms + 1000)
    assert pushes(ready) == [(COMPARE, 2, [])], (
        "what comes before the kept entries is known by its term"
    )


def test_a_first_entry_that_is_not_committed_is_not_offered():
    """It may still be cut, and with it the log that was begun with it."""
    node, now_ms = leading(0, 0, 0, committed=1)
    node.forget(Index(2))
    ready = node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=0), now_ms)
    assert pushes(ready) == []
    catches_up(node, N2, 3, now_ms)
    assert pushes(alive(node, now_ms + 1000)) == [(INSTALL, 2, [])]


def test_a_follower_that_is_found_again_is_offered_the_state_at_once():
    node, now_ms, _ = behind()
    assert (INSTALL, 2, []) in pushes(node.peer_found(N1, now_ms + 10))


def test_follower_that_lost_acknowledged_data_is_reported_and_refilled():
    node, now_ms = matched(0, 0)
    node.step(pushed(node, N1, APPEND, 2), now_ms)
    node.propose([b"a"], now_ms)
    node.step(pushed(node, N1, APPEND, 3, Code.INCONSISTENT_STATE, end=0), now_ms)
    ready = node.step(pushed(node, N1, COMPARE, 2, Code.INCONSISTENT_STATE, end=0), now_ms)
    assert "follower_fell_back" in events(ready)
    assert pushes(ready) == [(COMPARE, 0, [])]
    assert node.role is Role.LEADER
