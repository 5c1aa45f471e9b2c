"""Offsets by time are those of records, whatever batches they lie in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.client import Client, CommitState, Committed, Lag, PartitionState
from dledger.client.protocol.arguments import milliseconds
from dledger.errors import ConfigError, OffsetOutOfRange, TopicRecreated
from dledger.protocol.messages.catalog_commands import CreateTopic, DeleteTopic
from dledger.protocol.messages.client import FetchRequest, OffsetsRequest
from dledger.protocol.messages.codes import Code


def append(client: Client, topic: str, *batches: list[int], partition: int = 0) -> None:
    for times in batches:
        client.append(topic, [b"x"] * len(times), timestamps=times, partition=partition)


@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=6),
    time=st.integers(-1, 31),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_an_offset_by_time_is_the_first_record_that_new_in_any_layout(
    group: Any, client: Client, batches: list[list[int]], time: int
) -> None:
    """Also where times fall back, within a batch and between batches."""
    topic = f"t{group.index}"
    client.create_topic(topic)
    append(client, topic, *batches)
    flat = [one for times in batches for one in times]
    assert client.offsets_for_times(topic, time) == {
        0: next((i for i, t in enumerate(flat) if t >= time), -1)
    }


def test_times_of_many_topics_and_partitions_are_answered_together(client: Client) -> None:
    client.create_topic("a", 2)
    client.create_topic("b")
    append(client, "a", [1, 2, 3], [4, 5])
    append(client, "a", [10, 20], partition=1)
    append(client, "b", [7, 8, 9])
    answer = client.offsets_at({"a": {0: 5, 1: 11}, "b": {0: 8}})
    assert answer.offsets == {"a": {0: 4, 1: 1}, "b": {0: 1}}
    assert answer.log_ids == {name: client.topic(name).log_id for name in ("a", "b")}
    assert client.offsets_at({"a": {1: 21}, "b": {0: 8}}).offsets == {"a": {1: -1}, "b": {0: 1}}


def test_partitions_that_are_not_asked_for_are_not_read(group: Any, client: Client) -> None:
    client.create_topic("a", 9)
    for partition in range(9):
        append(client, "a", [1, 2], partition=partition)
    assert client.offsets_at({"a": {4: 2}}).offsets == {"a": {4: 1}}
    assert [m.partition for m in group.requests(FetchRequest)] == [4]


def test_records_that_retention_takes_during_the_search_are_passed_over(
    group: Any, client: Client
) -> None:
    client.create_topic("a")
    append(client, "a", [1, 2], [3, 4])

    def drop() -> None:
        group.catalog.drop_before(group.index)  # all but the newest batch

    group.fault(FetchRequest, drop)
    assert client.offsets_for_times("a", 2) == {0: 2}


def test_a_search_goes_on_where_times_fall_back_and_the_newest_are_gone(
    group: Any, client: Client
) -> None:
    """The index then only knows that a newer record was there once."""
    client.create_topic("a")
    append(client, "a", [100], [1, 2], [3], [5, 50])
    group.catalog.drop_before(sorted(group.bodies)[1])
    assert client.begin_offsets("a") == {0: 1}
    assert client.offsets_for_times("a", 6) == {0: 5}
    assert client.offsets_for_times("a", 60) == {0: -1}


def test_a_body_that_is_damaged_on_the_leader_is_read_elsewhere(group: Any, client: Client) -> None:
    client.create_topic("a")
    append(client, "a", [1, 2, 3])
    group.fault(FetchRequest, Code.CORRUPT_ENTRY)
    assert client.offsets_for_times("a", 2) == {0: 1}


def test_a_topic_that_is_created_again_during_the_search_is_refused(
    group: Any, client: Client
) -> None:
    client.create_topic("a", 2)
    for partition in range(2):
        append(client, "a", [1, 2], partition=partition)

    def replace_it() -> None:
        for command in (
            DeleteTopic(name="a"),
            CreateTopic(name="a", log_id="another", partitions=2),
        ):
            group.index += 1
            group.catalog.apply_command(group.index, command)

    group.fault(OffsetsRequest, None, replace_it)
    with pytest.raises(TopicRecreated, match="ask again"):
        client.offsets_at({"a": {0: 1, 1: 2}})


def test_a_partition_that_is_not_there_is_refused(client: Client) -> None:
    client.create_topic("a")
    with pytest.raises(OffsetOutOfRange, match="partitions 0 to 0, not 3"):
        client.offsets_at({"a": {3: 1}})


def test_times_of_results_are_datetimes_with_a_zone() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    ms = milliseconds("begin", when)
    assert milliseconds("begin", ms) == ms == 1_767_323_045_678
    assert PartitionState("t", 0, 0, 1, 9, newest_us=1000 * ms + 1).newest == when.replace(
        microsecond=678_001
    )
    assert PartitionState("t", 0, 0, 0, 0, newest_us=0).newest is None
    assert CommitState(1, "w", 1, ms).time == when
    assert Committed(repeated=True, committed_ms=ms).committed == when
    assert Committed(repeated=False).committed is None
    lag = Lag("g", "t", 0, 0, 0, 0, 0, 0, 0.0, committed_ms=ms, holds=False)
    assert (lag.committed, lag.holds) == (when, False)
    with pytest.raises(ConfigError, match="milliseconds since 1970 UTC"):
        milliseconds("begin", 1.5)  # type: ignore[arg-type]
