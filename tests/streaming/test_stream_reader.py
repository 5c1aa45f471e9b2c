"""The stream source without a JVM: what it reads, whatever crashes in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from dledger.datasource.options.offsets import StreamOffset
from dledger.errors import ConfigError, OffsetOutOfRange, TopicNotFound, TopicRecreated
from tests.streaming.stream_engine import Crash, Query, numbers

CRASHES = [
    "",
    "before the plan is kept",
    "after the plan is kept",
    "while reading",
    "after the sink",
]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("trigger"), st.sampled_from(CRASHES)),
        st.tuples(st.just("crash"), st.just("")),
    ),
    max_size=25,
)


@pytest.mark.parametrize(
    "limits", [{}, {"maxOffsetsPerTrigger": "3"}, {"maxBytesPerTrigger": "900"}]
)
@given(steps=steps, earliest=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_every_record_is_read_once_in_order_whatever_crashes(
    make_group: Callable[[], Any],
    limits: dict[str, str],
    steps: list[tuple[str, Any]],
    earliest: bool,
) -> None:
    """Offsets, plan, read, commit, crash and restart in random order, against a list of numbers."""
    group = make_group()
    group.create_topic("t")
    group.append("t", 0, numbers(0, 1, 2))
    wrote = 3
    query = Query(group, **limits, **({"startingOffsets": "earliest"} if earliest else {}))
    for what, how in steps:
        if what == "append":
            group.append("t", 0, numbers(*range(wrote, wrote + how)))
            wrote += how
        elif what == "crash":
            query.crash()
        else:
            try:
                query.trigger(crash_at=how)
            except Crash:
                continue
    while query.trigger():
        pass
    first = 0 if earliest else StreamOffset.from_json(json.loads(query.offsets[0])).begin["t"][0]
    assert query.values() == numbers(*range(first, wrote))


def test_a_stream_from_latest_keeps_its_first_batch_through_a_crash(log: Any) -> None:
    """Spark asks for the first offset again after a crash and keeps no answer; by then "latest" is
    behind the batch."""
    query = Query(log, startingOffsets="latest")
    query.start().initialOffset()
    log.append("t", 0, numbers(3, 4))
    with pytest.raises(Crash):
        query.trigger(crash_at="while reading")
    log.append("t", 0, numbers(5))
    query.trigger()
    assert query.values() == numbers(3, 4)
    query.trigger()
    assert query.values() == numbers(3, 4, 5)


def test_the_first_offset_is_the_same_each_time_it_is_asked_for(log: Any) -> None:
    reader = Query(log).start()
    first = reader.initialOffset()
    log.append("t", 0, numbers(3))
    assert reader.initialOffset() == first
    assert first["init"] is True


def test_a_new_query_without_records_keeps_its_start_in_an_empty_batch(log: Any) -> None:
    query = Query(log)
    assert query.trigger()
    assert json.loads(query.offsets[0])["from"] == {"t": {"0": 3}}
    assert not query.trigger()


def test_an_idle_query_waits_at_the_leader_and_a_new_one_does_not(log: Any) -> None:
    query = Query(log)
    query.trigger()
    assert set(log.waits) == {0}
    query.trigger()
    assert log.waits[-1] == 200


def test_available_now_stops_at_the_offsets_of_its_start_and_never_waits(log: Any) -> None:
    query = Query(log, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    query.start(available_now=True)
    log.append("t", 0, numbers(3))
    while query.trigger():
        pass
    assert query.values() == numbers(0, 1, 2)
    assert set(log.waits) == {0}
    query.crash()
    query.start(available_now=True)
    while query.trigger():
        pass
    assert query.values() == numbers(0, 1, 2, 3)


def test_a_limit_from_the_trigger_counts_and_trigger_once_has_none(log: Any) -> None:
    query = Query(log, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    query.trigger(ReadMaxRows(2))
    assert query.values() == numbers(0, 1)
    log.append("t", 0, numbers(3, 4))
    query.trigger(ReadAllAvailable())
    assert query.values() == numbers(0, 1, 2, 3, 4)


def test_a_least_number_of_rows_is_waited_for(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.append("t", 0, numbers(3))
    assert not query.trigger(ReadMinRows(2))
    log.append("t", 0, numbers(4))
    assert query.trigger(ReadMinRows(2))


def test_a_limit_that_makes_no_sense_for_a_log_is_refused(log: Any) -> None:
    with pytest.raises(ConfigError, match="ReadMaxFiles"):
        Query(log, startingOffsets="earliest").trigger(ReadMaxFiles(1))


def test_a_checkpoint_of_a_topic_that_was_created_again_is_refused(log: Any) -> None:
    query = Query(log)
    query.trigger()
    query.crash()
    log.delete_topic("t")
    log.create_topic("t")
    with pytest.raises(
        TopicRecreated, match=r"'t' was deleted and created again.*new checkpointLocation"
    ):
        query.trigger()


def test_a_topic_that_is_created_again_under_a_running_query_stops_it(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.delete_topic("t")
    log.create_topic("t")
    with pytest.raises(TopicRecreated):
        query.trigger()


def test_a_planned_batch_of_a_topic_that_was_created_again_is_refused(log: Any) -> None:
    query = Query(log, startingOffsets="earliest")
    with pytest.raises(Crash):
        query.trigger(crash_at="while reading")
    log.delete_topic("t")
    log.create_topic("t")
    with pytest.raises(TopicRecreated):
        query.trigger()


def test_a_deleted_topic_is_an_error_that_names_those_there_are(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.delete_topic("t")
    log.create_topic("orders")
    with pytest.raises(TopicNotFound, match=r"'t' does not exist.*orders"):
        query.trigger()


def test_removed_records_stop_a_stream_and_are_named(log: Any) -> None:
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    log.append("t", 0, numbers(3, 4))
    log.append("t", 0, numbers(5))
    log.expire("t", 0, 5)
    with pytest.raises(OffsetOutOfRange, match="t/0 offsets 3 to 4"):
        query.trigger()


def test_removed_records_are_skipped_when_that_is_wanted(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, startingOffsets="earliest", failOnDataLoss="false")
    query.trigger()
    log.append("t", 0, numbers(3, 4))
    log.append("t", 0, numbers(5))
    log.expire("t", 0, 5)
    query.trigger()
    assert query.values() == numbers(0, 1, 2, 5)
    assert "t/0 offsets 3 to 4" in caplog.text


def test_records_removed_after_planning_are_never_skipped_silently(log: Any) -> None:
    reader = Query(log, startingOffsets="earliest").start()
    log.append("t", 0, numbers(3))
    start = reader.initialOffset()
    (one,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    log.expire("t", 0, 3)
    with pytest.raises(OffsetOutOfRange, match="t/0 offsets 0 to 2"):
        list(reader.read(one))


def test_a_topic_that_is_added_later_is_read_from_its_first_record(log: Any) -> None:
    query = Query(log)
    query.trigger()
    query.crash()
    log.create_topic("u", 2)
    log.append("u", 1, numbers(7))
    query.given["subscribe"] = "t,u"
    with pytest.raises(Crash):
        query.trigger(crash_at="after the plan is kept")
    log.append("u", 1, numbers(8))
    query.trigger()
    assert query.values() == numbers(7)
    query.trigger()
    assert query.values() == numbers(7, 8)


def test_a_log_that_is_shorter_than_the_checkpoint_stops_the_query(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.by_name["t"].partitions[0].end = 1
    with pytest.raises(OffsetOutOfRange, match="lost acknowledged records"):
        query.trigger()


def test_progress_reports_the_end_of_the_log(log: Any) -> None:
    query = Query(log)
    assert query.start().reportLatestOffset() is None
    query.trigger()
    report = query.start().reportLatestOffset()
    assert report is not None
    assert report["logs"]["t"]["p"] == {"0": 3}


def test_an_end_for_a_stream_is_refused(log: Any) -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        Query(log, endingOffsets="latest").start()
