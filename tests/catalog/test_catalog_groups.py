"""Consumer groups: progress, lag, and what they hold back."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.catalog.listing import list_progress
from dledger.protocol.messages.catalog_commands import (
    CommitOffsets,
    CommitProgress,
    DeleteGroup,
    DeleteTopic,
    HoldRetention,
)
from dledger.protocol.messages.codes import Code


def commit(log: Any, name: str = "g", time_ms: int = 77, **spans: dict[int, int]) -> Code:
    code: Code = log.run(CommitProgress(consumer_group=name, offsets=spans, time_ms=time_ms)).code
    return code


def hold(log: Any, name: str = "g", *, hold: bool = True) -> None:
    assert log.run(HoldRetention(consumer_group=name, hold=hold)).code is Code.SUCCESS


def held(log: Any) -> list[tuple[int, str, int, int]]:
    return [(h.index, h.group, h.partition, h.offset) for h in log.catalog.consumer_groups.holds()]


def test_progress_in_a_topic_that_was_created_again_is_refused(log: Any) -> None:
    """Its offsets mean nothing there, even where there are as many records by now."""
    log.data(10)
    old = log.catalog.topic("t").log_id
    log.run(DeleteTopic(name="t"))
    topic = log.topic("t")
    log.data(10, topic_id=topic)
    result = log.run(CommitProgress(consumer_group="g", offsets={"t": {0: 5}}, log_ids={"t": old}))
    assert result.code is Code.UNKNOWN_TOPIC
    assert "created again" in result.message
    assert log.catalog.groups() == ()
    new = log.catalog.topic("t").log_id
    again = CommitProgress(consumer_group="g", offsets={"t": {0: 5}}, log_ids={"t": new})
    assert log.run(again).code is Code.SUCCESS


@pytest.mark.parametrize("kind", [CommitOffsets, CommitProgress])
@pytest.mark.parametrize(
    ("name", "spans", "code"),
    [
        ("g", {"t": {0: 5, 1: 1}}, Code.OFFSET_OUT_OF_RANGE),
        ("g", {"t": {0: -1}}, Code.OFFSET_OUT_OF_RANGE),
        ("g", {"t": {0: 5, 2: 0}}, Code.UNKNOWN_TOPIC),
        ("g", {"t": {0: 5}, "x": {0: 0}}, Code.UNKNOWN_TOPIC),
        ("a b", {}, Code.MALFORMED),
    ],
)
def test_progress_that_cannot_be_is_refused_as_a_whole(
    log: Any, kind: Any, name: str, spans: Any, code: Code
) -> None:
    log.data(10)
    assert log.run(kind(consumer_group=name, offsets=spans)).code is code
    assert log.catalog.groups() == ()


def test_group_that_is_not_there_holds_nothing_and_is_not_made(log: Any) -> None:
    assert log.run(HoldRetention(consumer_group="a b", hold=True)).code is Code.MALFORMED
    hold(log, "nobody", hold=False)
    assert log.catalog.groups() == ()


def test_consumer_group_offsets_are_kept_by_partition_and_with_their_topic(log: Any) -> None:
    """The offsets of the topic before mean nothing in the one that has its name now."""
    for partition in (0, 1):
        log.data(10, partition=partition)
    for spans in ({0: 5, 1: 10}, {0: 3}):
        assert log.run(CommitOffsets(consumer_group="g", offsets={"t": spans})).code is Code.SUCCESS
    assert log.catalog.group("g") == {"t": {0: 3, 1: 10}}
    assert log.catalog.groups() == ("g",)
    assert log.catalog.group("none") == {}
    log.run(DeleteTopic(name="t"))
    log.topic("t")
    assert log.catalog.group("g") == {}


def test_lag_has_whole_batches_and_the_time_of_the_first_unread_one(log: Any) -> None:
    for time in (10, 20, 30):
        log.data(10, time=time, size=100)
    commit(log, t={0: 15, 1: 0})
    (row, idle), following = list_progress(log.catalog, "g", 0, 10)
    assert following == -1
    assert (row["offset"], row["end_offset"], row["bytes"], row["oldest_us"]) == (15, 30, 200, 20)
    assert (row["committed_ms"], row["holds"]) == (77, False)
    assert (idle["partition"], idle["bytes"], idle["oldest_us"]) == (1, 0, 0)
    commit(log, t={0: 30})
    assert list_progress(log.catalog, "g", 0, 10)[0][0]["bytes"] == 0
    assert list_progress(log.catalog, "nobody", 0, 10) == ([], -1)


def test_lag_below_what_is_kept_counts_the_bytes_that_are_there(log: Any) -> None:
    for _ in range(4):
        log.data(10)
    commit(log, t={0: 0})
    log.catalog.drop_before(3)
    row = list_progress(log.catalog, "g", 0, 1)[0][0]
    assert (row["offset"], row["begin_offset"], row["bytes"]) == (0, 20, 200)


def test_group_holds_oldest_entry_needed_in_any_partition(
    log: Any,
) -> None:
    """The order of the commits does not matter."""
    for partition in (0, 1, 0, 1):
        log.data(10, partition=partition)  # entries 1 to 4
    hold(log)
    commit(log, t={0: 20, 1: 10})
    assert held(log) == [(4, "g", 1, 10)]
    commit(log, t={0: 10, 1: 0})
    assert held(log) == [(2, "g", 1, 0)]
    commit(log, t={0: 0})
    assert held(log) == [(1, "g", 0, 0)]


def test_group_holds_from_first_unread_record_and_slowest_group_counts(
    log: Any,
) -> None:
    for _ in range(5):
        log.data(10)  # entries 1 to 5
    commit(log, t={0: 25, 1: 0})
    commit(log, "slow", t={0: 10})
    assert held(log) == []
    hold(log)
    assert held(log) == [(3, "g", 0, 25)]
    hold(log, "slow")
    assert held(log) == [(2, "slow", 0, 10), (3, "g", 0, 25)]
    commit(log, "slow", t={0: 50})
    assert held(log) == [(3, "g", 0, 25)]
    hold(log, hold=False)
    assert held(log) == []


def test_a_hold_covers_records_that_lie_in_the_log_before_their_commit(log: Any) -> None:
    log.data(1)
    staged = log.staged(5)
    staged_at = len(log.entries) - 1
    for _ in range(7):
        log.data(1, partition=1)
    log.commit(staged)
    commit(log, t={0: 1})
    hold(log)
    assert held(log)[0][0] <= staged_at


def test_hold_covers_unread_records_that_lie_earlier_in_the_log(
    log: Any,
) -> None:
    """Offsets follow the order of commits: what was staged first may come last."""
    staged = log.staged(3)
    staged_at = len(log.entries) - 1
    log.data(2)
    log.data(2)
    log.commit(staged)
    after, last = staged_at + 1, staged_at + 2
    assert log.spans() == [(0, 2, after), (2, 2, last), (4, 3, staged_at)]
    commit(log, t={0: 2})
    hold(log)
    assert held(log)[0][0] <= staged_at


def test_lag_and_holds_of_an_idle_partition_open_no_table(log: Any) -> None:
    commit(log, t={0: 0, 1: 0})
    hold(log)
    assert held(log) == []
    assert len(list_progress(log.catalog, "g", 0, 10)[0]) == 2
    assert log.tables.names() == []


def test_a_hold_ends_with_its_topic(log: Any) -> None:
    log.data(5)
    commit(log, t={0: 0})
    hold(log)
    log.run(DeleteTopic(name="t"))
    assert held(log) == []


def test_deleted_group_holds_nothing_and_has_no_offsets_when_recreated(log: Any) -> None:
    log.data(5)
    commit(log, t={0: 3})
    hold(log)
    for _ in range(2):
        assert log.run(DeleteGroup(consumer_group="g")).code is Code.SUCCESS
    assert log.catalog.groups() == ()
    assert held(log) == []
    commit(log, t={1: 0})
    assert log.catalog.group("g") == {"t": {1: 0}}
    assert not log.catalog.consumer_groups.by_name["g"].holds


def test_groups_come_back_from_a_snapshot_with_their_holds_and_times(log: Any) -> None:
    log.data(5)
    commit(log, t={0: 3})
    hold(log)
    log.restart()
    assert log.catalog.group("g") == {"t": {0: 3}}
    assert held(log) == [(1, "g", 0, 3)]
    assert log.catalog.consumer_groups.by_name["g"].committed_ms == 77


def test_group_that_holds_before_processing_holds_after_restart_too(
    log: Any,
) -> None:
    hold(log)
    log.restart()
    log.data(5)
    log.run(CommitOffsets(consumer_group="g", offsets={"t": {0: 2}}))
    assert held(log) == [(2, "g", 0, 2)]


@pytest.mark.parametrize("times", [0, 5])
def test_log_without_commit_times_gives_same_snapshot_as_before(log: Any, times: int) -> None:
    """A member that restored an old snapshot and one that replays the log must agree."""
    log.data(5)
    log.run(CommitOffsets(consumer_group="g", offsets={"t": {0: 3}}, time_ms=times))
    assert b'"groups":[["g",[[1,[[0,3]]]]]]' in log.restart()
    assert log.catalog.group("g") == {"t": {0: 3}}
