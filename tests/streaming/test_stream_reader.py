"""The stream source without a JVM: what it reads, whatever crashes in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
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

from dledger.errors import ConfigError, OffsetOutOfRange, TopicNotFound, TopicRecreated
from tests.streaming.stream_engine import Crash, Query, add_topic, numbers, steps


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
    add_topic(group, "t", 0, 1, 2)
    wrote = 3
    query = Query(group, **limits, **({"startingOffsets": "earliest"} if earliest else {}))
    for what, how in steps:
        if what == "append":
            group.append("t", 0, numbers(*range(wrote, wrote + how)))
            wrote += how
        elif what == "crash":
            query.crash()
        else:
            with suppress(Crash):
                query.trigger(crash_at=how)
    query.drain()
    first = 0 if earliest else query.offset(0).begin["t"][0]
    assert query.values() == numbers(*range(first, wrote))


def test_a_stream_from_latest_keeps_its_first_batch_through_a_crash(log: Any) -> None:
    """Spark asks for the first offset again after a crash and keeps no answer; by then "latest" is
    behind the batch."""
    query = Query(log, startingOffsets="latest")
    query.start().initialOffset()
    log.append("t", 0, numbers(3, 4))
    query.dies()
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
    query.drain()
    assert query.values() == numbers(0, 1, 2)
    assert set(log.waits) == {0}
    query.crash()
    query.start(available_now=True)
    query.drain()
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


@pytest.mark.parametrize("when", ["running", "restarted", "planned"])
def test_a_query_whose_topic_was_created_again_is_refused(log: Any, when: str) -> None:
    """Also when its next batch is planned already."""
    query = Query(log, startingOffsets="earliest" if when == "planned" else "latest")
    if when == "planned":
        query.dies()
    else:
        query.trigger()
    if when == "restarted":
        query.crash()
    add_topic(log, "t")
    way = "" if when == "planned" else ".*new checkpointLocation"
    with pytest.raises(TopicRecreated, match=f"'t' was deleted and created again{way}"):
        query.trigger()


def test_a_deleted_topic_is_an_error_that_names_those_there_are(log: Any) -> None:
    query = Query(log)
    query.trigger()
    log.delete_topic("t")
    log.create_topic("orders")
    with pytest.raises(TopicNotFound, match=r"'t' does not exist.*orders"):
        query.trigger()


@pytest.mark.parametrize("fails", [True, False])
def test_removed_records_stop_a_stream_or_are_skipped_and_are_named(
    log: Any, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    query = Query(log, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    query.trigger()
    log.append("t", 0, numbers(3, 4))
    log.append("t", 0, numbers(5))
    log.expire("t", 0, 5)
    if fails:
        with pytest.raises(OffsetOutOfRange, match="t/0 offsets 3 to 4"):
            query.trigger()
    else:
        assert query.drain() == numbers(0, 1, 2, 5)
        assert "t/0 offsets 3 to 4" in caplog.text


def test_the_plan_of_a_micro_batch_is_a_span(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def span(name: str, **attributes: Any) -> Any:
        told.append(f"{name}: {attributes}")
        return nullcontext()

    monkeypatch.setattr("dledger.streaming.reader.span", span)
    query = Query(log, startingOffsets="earliest")
    log.append("t", 0, numbers(3))
    query.trigger()
    assert told == ["plan micro-batch: {'topics': 't'}"]


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
    query.dies("after the plan is kept")
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


def test_progress_reports_how_far_a_batch_is_behind_the_log(log: Any) -> None:
    """By the names of Kafka's metrics; a Python source has none of its own."""
    query = Query(log, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    told = []
    for _ in range(3):
        query.trigger()
        told.append(query.start().reportLatestOffset())
    names = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")
    assert [[report[name] for name in names] for report in told] == [
        [2, 2, 2.0], [1, 1, 1.0], [0, 0, 0.0]
    ]  # fmt: skip


def test_an_end_for_a_stream_is_refused(log: Any) -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        Query(log, endingOffsets="latest").start()
