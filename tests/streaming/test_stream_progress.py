"""What a query tells its consumer group: exactly what it has processed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dledger.errors import Unavailable
from tests.datasource.fake_log import FakeGroup
from tests.streaming.stream_engine import Crash, Query, add_topic, numbers, steps


def end_of(query: Query, batches: int) -> dict[str, dict[int, int]]:
    """Where the last of so many batches ends, or the first one starts."""
    return query.offset(batches - 1).logs if batches else {"t": {0: 0, 1: 0}}


@given(steps=steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_group_is_never_ahead_of_commits_and_is_level_when_idle(
    make_group: Callable[[], Any], steps: list[tuple[str, Any]]
) -> None:
    """The commits are those of the batches of the query."""
    group = make_group()
    group.create_topic("t", 2)
    group.append("t", 1, numbers(0))
    query = Query(group, groupId="g", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    for what, how in steps:
        if what == "append":
            group.append("t", how % 2, numbers(*range(how)))
        elif what == "crash":
            query.crash()
        else:
            committed = query.commits
            try:
                query.trigger(crash_at=how)
            except Crash:
                assert query.commits == committed
            planned = len(query.offsets) > committed or not how
            told = group.consumers["g"]
            assert told in (
                [end_of(query, committed)]
                if planned
                else [end_of(query, n) for n in range(committed + 1)]
            )
    query.drain()
    assert group.consumers["g"] == end_of(query, query.commits)


def test_group_is_told_of_the_last_available_now_batch_and_nothing_twice(log: Any) -> None:
    query = Query(log, groupId="g", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    query.start(available_now=True)
    query.drain()
    assert log.consumers == {"g": {"t": {0: 3}}}
    assert log.told == ["g"] * 3, "of its start and of two batches"
    query.trigger()
    assert log.told == ["g"] * 3
    query.crash()
    query.trigger()
    assert log.told == ["g"] * 4, "a crash may have come before the group was told"


def test_group_knows_the_start_of_a_query_before_its_first_batch_ends(log: Any) -> None:
    """What is in that batch is to be held back too, and read by a query that starts anew."""
    query = Query(log, groupId="g", holdRetention="true")
    query.start().initialOffset()
    log.append("t", 0, numbers(3, 4))
    query.dies()
    assert (log.consumers, log.holds) == ({"g": {"t": {0: 3}}}, {"g": True})
    again = Query(log, groupId="g", startingOffsets="committed")
    assert again.drain() == numbers(3, 4)


def test_a_query_without_a_group_tells_nobody(log: Any) -> None:
    Query(log, startingOffsets="earliest").drain()
    assert log.told == []


def test_a_group_that_cannot_be_told_stops_nothing_and_is_told_later(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dledger.spark")
    query = Query(log, groupId="g", startingOffsets="earliest")
    query.trigger()
    log.consumers.clear()
    log.group_fault = [Unavailable("nobody there"), Unavailable("nobody there")]
    assert not query.trigger()
    assert not query.trigger()
    assert log.consumers == {}
    assert caplog.text.count("was not told how far this query is: nobody there") == 1
    query.trigger()
    assert log.consumers == {"g": {"t": {0: 3}}}


def test_a_group_is_not_told_of_a_topic_that_is_another_one_by_now(log: Any) -> None:
    query = Query(log, groupId="g", startingOffsets="earliest", onTopicRecreate="restart")
    query.trigger()
    add_topic(log, "t", *range(10, 15))
    log.consumers.clear()
    query.trigger()
    assert log.consumers == {}, (
        "what was read of the former topic says nothing of this one, though it is as long"
    )
    query.drain()
    assert query.values() == numbers(0, 1, 2, *range(10, 15))
    assert log.consumers == {"g": {"t": {0: 5}}}


def test_a_group_is_told_anew_of_a_topic_of_the_same_name_and_length(log: Any) -> None:
    query = Query(log, groupId="g", startingOffsets="earliest", onTopicRecreate="restart")
    query.drain()
    log.delete_topic("t")
    log.consumers.clear()
    add_topic(log, "t", 7, 8, 9)
    query.drain()
    assert log.consumers == {"g": {"t": {0: 3}}}


@pytest.mark.parametrize(
    ("happens", "lenient"),
    [
        pytest.param(add_topic, {"onTopicRecreate": "restart"}, id="another by now"),
        pytest.param(FakeGroup.delete_topic, {"failOnDataLoss": "false"}, id="deleted"),
    ],
)
def test_a_group_is_told_of_the_other_topics_when_one_has_gone(
    log: Any, caplog: pytest.LogCaptureFixture, happens: Any, lenient: dict[str, str]
) -> None:
    caplog.set_level(logging.WARNING, "dledger.spark")
    add_topic(log, "u", 5)
    both = {"subscribePattern": "[tu]", "startingOffsets": "earliest"}
    query = Query(log, groupId="g", **both, **lenient)
    query.trigger()
    happens(log, "u")
    log.consumers.clear()
    query.trigger()
    assert log.consumers == {"g": {"t": {0: 3}}}
    assert "was not told" not in caplog.text


@pytest.mark.parametrize("hold", ["true", "false"])
def test_a_group_holds_retention_back_or_lets_go_as_the_option_says(log: Any, hold: str) -> None:
    query = Query(log, groupId="g", startingOffsets="earliest", holdRetention=hold)
    query.drain()
    assert log.holds == {"g": hold == "true"}


def test_what_a_group_holds_is_left_alone_without_the_option(log: Any) -> None:
    Query(log, groupId="g", startingOffsets="earliest").drain()
    assert log.holds == {}
