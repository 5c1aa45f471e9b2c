"""Streams whose topics come, go and change while they run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dledger.errors import OffsetOutOfRange, TopicNotFound, TopicRecreated
from tests.streaming.stream_engine import Query, add_topic, numbers


def test_pattern_finds_new_topics_and_reads_them_from_the_first_record(
    log: Any,
) -> None:
    """The topics appear while the query runs."""
    query = Query(log, subscribePattern="[a-t]")
    query.trigger()
    log.create_topic("b")
    log.create_topic("z")
    log.append("b", 0, numbers(7))
    log.append("z", 0, numbers(99))
    query.dies("after the plan is kept")
    log.append("b", 0, numbers(8))
    assert query.drain() == numbers(7, 8)


def test_pattern_without_a_topic_waits_without_requests(group: Any) -> None:
    """A topic that is created later and fits the pattern is read."""
    query = Query(group, subscribePattern="t.*", startingOffsets="latest")
    query.trigger()
    assert not query.trigger()
    assert query.now > 0
    assert group.waits == []
    add_topic(group, "t1", 1)
    assert query.drain() == numbers(1)


def test_a_topic_that_goes_while_its_pattern_looks_is_looked_for_anew(
    log: Any,
) -> None:
    log.create_topic("u")
    query = Query(log, subscribePattern="[tu]", startingOffsets="earliest", failOnDataLoss="false")
    query.trigger()
    log.append("t", 0, numbers(3))
    log.before("offsets", lambda: log.delete_topic("u"))
    assert query.drain() == numbers(0, 1, 2, 3)


def test_a_deleted_topic_of_a_pattern_stops_the_query_or_is_left_out(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, subscribePattern=".*", startingOffsets="earliest")
    query.trigger()
    add_topic(log, "u", 3)
    log.delete_topic("t")
    with pytest.raises(
        TopicNotFound,
        match=r"'t' was deleted: records behind offset 3 of partition 0.*failOnDataLoss",
    ):
        query.trigger()
    query.crash(failOnDataLoss="false")
    assert query.drain() == numbers(0, 1, 2, 3)
    assert caplog.text.count("'t' was deleted") == 1


def test_a_planned_batch_of_a_deleted_topic_names_what_was_not_read(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, subscribePattern=".*", startingOffsets="earliest")
    query.dies()
    log.delete_topic("t")
    query.crash()
    with pytest.raises(TopicNotFound, match="records 0 to 2 of partition 0 were not read"):
        query.trigger()
    query.crash(failOnDataLoss="false")
    assert query.drain() == []
    assert "records 0 to 2 of partition 0" in caplog.text


def test_a_topic_that_was_created_again_is_read_anew_when_that_is_wanted(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, startingOffsets="earliest", onTopicRecreate="restart")
    query.trigger()
    add_topic(log, "t", 10, 11)
    query.dies()
    log.append("t", 0, numbers(12))
    assert query.drain() == numbers(0, 1, 2, 10, 11, 12)
    assert "records behind offset 3 of partition 0 of its former life" in caplog.text


def test_a_planned_batch_of_a_former_topic_is_given_up_when_that_is_wanted(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, startingOffsets="earliest", onTopicRecreate="restart")
    query.dies()
    add_topic(log, "t", 10, 11)
    assert query.drain() == numbers(10, 11)
    assert "records 0 to 2 of partition 0 of its former life" in caplog.text


def test_recreated_shorter_topic_is_not_taken_for_a_log_with_losses(
    log: Any,
) -> None:
    """The new one ends before the old one did: without the log id that would look like lost
    records, or like none."""
    failing = Query(log, startingOffsets="earliest")
    lenient = Query(log, startingOffsets="earliest", onTopicRecreate="restart")
    failing.trigger()
    lenient.trigger()
    add_topic(log, "t")
    with pytest.raises(TopicRecreated):
        failing.trigger()
    assert lenient.drain() == numbers(0, 1, 2)


def test_partitions_that_a_topic_gains_are_read_from_their_first_record(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.add_partitions("t", 2)
    log.append("t", 1, numbers(7))
    query.dies("after the plan is kept")
    log.append("t", 1, numbers(8))
    assert query.drain() == numbers(7, 8)


def to_each_partition(group: Any, *values: int) -> None:
    """One record to each partition of topic ``t``."""
    for partition, value in enumerate(values):
        group.append("t", partition, numbers(value))


def test_assigned_partitions_alone_are_read(group: Any) -> None:
    group.create_topic("t", 3)
    to_each_partition(group, 0, 1, 2)
    query = Query(group, assign='{"t": [0, 2]}', startingOffsets='{"t": {"0": 0, "2": -2}}')
    assert sorted(query.drain()) == numbers(0, 2)
    with pytest.raises(OffsetOutOfRange, match="names partition 5"):
        Query(group, assign='{"t": [5]}').trigger()


def test_a_topic_that_the_options_name_no_more_is_told_of(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("u")
    query = Query(log, subscribe="t,u")
    query.trigger()
    query.crash(subscribe="u")
    log.append("u", 0, numbers(5))
    assert query.drain() == numbers(5)
    assert "'t' is no longer read: it was read up to offset 3 of partition 0" in caplog.text


def test_partitions_left_out_for_a_while_go_on_where_they_stopped(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The options of the query leave them out."""
    group.create_topic("t", 2)
    query = Query(group, assign='{"t": [0, 1]}', startingOffsets="earliest")
    to_each_partition(group, 0, 1)
    query.drain()
    for assigned, added in (("[0]", 2), ("[0]", 4), ("[0, 1]", 6)):
        query.crash(assign=f'{{"t": {assigned}}}')
        to_each_partition(group, added, added + 1)
        query.drain()
    assert sorted(query.values()) == numbers(*range(8))
    left = "a part of topic 't' is no longer read: it was read up to offset 1 of partition 1"
    assert caplog.text.count(left) == 1


def test_topics_left_out_for_a_while_go_on_where_they_stopped(log: Any) -> None:
    """The options of the query leave them out."""
    add_topic(log, "u", 10)
    query = Query(log, subscribe="t,u", startingOffsets="earliest")
    query.drain()
    for names, value in (("t", 3), ("t", 4), ("t,u", 5)):
        query.crash(subscribe=names)
        log.append("t", 0, numbers(value))
        log.append("u", 0, numbers(10 + value))
        query.drain()
    assert sorted(query.values()) == sorted(numbers(*range(6), 10, 13, 14, 15))


def without_u(log: Any, **options: str) -> Query:
    """A query that has read t and u, and then goes on without u."""
    add_topic(log, "u", 10)
    query = Query(log, subscribe="t,u", startingOffsets="earliest", **options)
    query.drain()
    query.crash(subscribe="t")
    log.append("t", 0, numbers(3))
    query.drain()
    query.crash(subscribe="t,u")
    return query


def test_crash_in_the_batch_that_resumes_a_topic_repeats_that_batch(log: Any) -> None:
    query = without_u(log)
    log.append("u", 0, numbers(11))
    query.dies()
    log.append("u", 0, numbers(12))
    assert query.drain()[-2:] == numbers(11, 12)
    assert sorted(query.values()) == sorted(numbers(0, 1, 2, 3, 10, 11, 12))


@pytest.mark.parametrize("recreate", ["fail", "restart"])
def test_a_topic_that_was_made_anew_while_it_was_left_out_is_told_of(
    log: Any, recreate: str
) -> None:
    query = without_u(log, onTopicRecreate=recreate)
    add_topic(log, "u", 20)
    if recreate == "restart":
        assert query.drain()[-1:] == numbers(20)
        return
    with pytest.raises(TopicRecreated, match="'u'"):
        query.trigger()


def test_a_deleted_topic_that_is_made_anew_later_is_a_new_one(log: Any) -> None:
    """Its former place went with it: no records are lost that ``failOnDataLoss`` has not given up
    already."""
    add_topic(log, "u", 10)
    query = Query(log, subscribePattern="[tu]", startingOffsets="earliest", failOnDataLoss="false")
    query.drain()
    log.delete_topic("u")
    log.append("t", 0, numbers(3))
    query.drain()
    query.crash()
    add_topic(log, "u", 20)
    assert query.drain()[-2:] == numbers(3, 20)


def test_left_out_partition_of_a_recreated_topic_is_read_from_the_start(
    group: Any,
) -> None:
    group.create_topic("t", 2)
    query = Query(
        group, assign='{"t": [0, 1]}', startingOffsets="earliest", onTopicRecreate="restart"
    )
    to_each_partition(group, 0, 1)
    query.drain()
    for assigned, made_anew in (("[0]", False), ("[0]", True), ("[0, 1]", False)):
        query.crash(assign=f'{{"t": {assigned}}}')
        if made_anew:
            group.delete_topic("t")
            group.create_topic("t", 2)
            to_each_partition(group, 20, 21)
        query.drain()
    assert sorted(query.values()) == numbers(0, 1, 20, 21)


def test_a_topic_that_comes_while_it_is_empty_has_a_place_from_then_on(log: Any) -> None:
    """Else what retention takes before the first read of it would go unseen."""
    log.create_topic("u")
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.drain()
    query.crash(subscribe="t,u")
    query.drain()
    assert query.offset().logs["u"] == {0: 0}
    for value in (10, 11):
        log.append("u", 0, numbers(value))
    log.expire("u", 0, 1)
    with pytest.raises(OffsetOutOfRange, match="u/0 offsets 0 to 0"):
        query.trigger()


def test_what_retention_took_while_a_topic_was_left_out_is_an_error(log: Any) -> None:
    query = without_u(log)
    log.append("u", 0, numbers(11))
    log.append("u", 0, numbers(12))
    log.expire("u", 0, 2)
    with pytest.raises(OffsetOutOfRange, match="u/0 offsets 1 to 1"):
        query.trigger()


def test_a_stream_starts_by_time_and_keeps_that_start_through_a_crash(group: Any) -> None:
    group.create_topic("t")
    times = pa.array([1000, 2000, 3000], pa.timestamp("us", tz="UTC"))
    group.append("t", 0, numbers(1, 2, 3), timestamp=times)
    query = Query(group, startingTimestamp="2")
    query.dies()
    group.expire("t", 0, 0)
    assert query.drain() == numbers(2, 3)
    assert query.offset(0).begin == {"t": {0: 1}}


def test_a_stream_starts_where_its_group_is(log: Any) -> None:
    log.commit_offsets("g", {"t": {0: 2}})
    query = Query(log, startingOffsets="committed", groupId="g")
    query.dies()
    log.commit_offsets("g", {"t": {0: 3}})
    assert query.drain() == numbers(2)
