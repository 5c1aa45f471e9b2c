"""From what options say to offsets that exist, on an in-memory group."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dledger.datasource.options.bounds import Bound
from dledger.datasource.options.options import parse_options
from dledger.datasource.read.resolving import resolve
from dledger.datasource.table.log import Log
from dledger.errors import ConfigError, OffsetOutOfRange, TopicRecreated

UTC_MICROS = pa.timestamp("us", tz="UTC")


@pytest.fixture
def log(group: Any) -> Any:
    """Partition 0 keeps [5, 9) with the times 50 to 80 ms, partition 1 keeps [0, 3) with 30, 10 and
    20 ms."""
    group.create_topic("t", 2)
    group.append("t", 0, [b"x"] * 5, timestamp=times(0, 10, 20, 30, 40))
    group.append("t", 0, [b"x"] * 4, timestamp=times(50, 60, 70, 80))
    group.expire("t", 0, 5)
    group.append("t", 1, [b"x"] * 3, timestamp=times(30, 10, 20))
    return group


def times(*millis: int) -> pa.Array:
    return pa.array([ms * 1000 for ms in millis], UTC_MICROS)


def seen(log: Any, **given: str) -> tuple[Bound, Any, Log]:
    """The bound of these options, and the edges of the log as they are now."""
    options = parse_options({"dledger.bootstrap.servers": log.address, "subscribe": "t", **given})
    edge = Log(options)
    bound = options.starting or options.ending
    assert bound is not None
    return bound, edge.edges({name: info.log_id for name, info in edge.select().items()}), edge


def found(log: Any, now: float = 0.0, **given: str) -> dict[int, int]:
    """The starting offsets under these options."""
    return resolve(*seen(log, **given), lambda: now)["t"]


@pytest.mark.parametrize(
    ("given", "offsets"),
    [
        ({"startingOffsets": "earliest"}, {0: 5, 1: 0}),
        ({"startingOffsets": "latest"}, {0: 9, 1: 3}),
        ({"startingOffsets": '{"t": {"0": -2, "1": -1}}'}, {0: 5, 1: 3}),
        ({"startingOffsets": '{"t": {"0": 7, "1": 0}}'}, {0: 7, 1: 0}),
        ({"startingOffsets": "-3"}, {0: 6, 1: 0}),
        ({"startingOffsets": "-100"}, {0: 5, 1: 0}),
        ({"startingTimestamp": "11"}, {0: 5, 1: 0}),
        ({"startingTimestamp": "30"}, {0: 5, 1: 0}),
        ({"startingTimestamp": "61", "startingOffsetsByTimestampStrategy": "latest"}, {0: 7, 1: 3}),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 60, "1": 25}}'}, {0: 6, 1: 0}),
        ({"endingTimestamp": "61"}, {0: 7, 1: 3}),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 60, "1": 99}}'}, {0: 6, 1: 3}),
    ],
)
def test_a_bound_becomes_an_offset_of_every_partition(
    log: Any, given: dict[str, str], offsets: dict[int, int]
) -> None:
    assert found(log, **given) == offsets


def test_relative_start_counts_from_now_and_may_match_no_record(log: Any) -> None:
    """Where no record is that new, nothing is read."""
    assert found(log, now=0.065, startingOffsets="-5ms") == {0: 6, 1: 3}


def test_committed_start_is_group_position_or_else_the_first_record(
    log: Any,
) -> None:
    """The first record counts where the group has not begun."""
    log.commit_offsets("g", {"t": {0: 8}})
    assert found(log, startingOffsets="committed", groupId="g") == {0: 8, 1: 0}
    assert found(log, startingOffsets="committed", groupId="nobody") == {0: 5, 1: 0}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"startingOffsets": '{"t": {"0": 5}}'}, ConfigError, "missing: t/1.*-2 is earliest"),
        ({"startingOffsets": '{"t": {"0": 5, "1": 0, "2": 0}}'}, ConfigError, "not read: t/2"),
        (
            {"startingOffsets": '{"t": {"0": 10, "1": 0}}'},
            OffsetOutOfRange,
            "from 5 up to, not including, 9",
        ),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}, ConfigError, "missing: t/1$"),
        (
            {"startingTimestamp": "61"},
            OffsetOutOfRange,
            "that new in t/1; .*'startingOffsetsByTimestampStrategy'",
        ),
    ],
)
def test_a_bound_that_does_not_fit_what_is_there_is_refused(
    log: Any, given: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        found(log, **given)


def test_a_record_that_came_since_the_edges_were_seen_is_not_there_yet(log: Any) -> None:
    before = seen(log, startingTimestamp="85")
    for partition in (0, 1):
        log.append("t", partition, [b"x"] * 2, timestamp=times(84, 90))
    assert resolve(*before) == {"t": {0: 9, 1: 3}}


def test_times_of_a_topic_that_was_created_again_are_refused(log: Any) -> None:
    before = seen(log, startingTimestamp="5")
    log.delete_topic("t")
    log.create_topic("t", 2)
    with pytest.raises(TopicRecreated):
        resolve(*before)
