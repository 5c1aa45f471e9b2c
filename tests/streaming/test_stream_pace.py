"""When a micro-batch comes: least rows, delays, the default limit, and what an idle query costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from dledger.datasource.options.rate_limits import RateLimits
from dledger.streaming.admission import BatchDelay, limits_for
from tests.streaming.stream_engine import Query, numbers


def test_a_batch_waits_for_its_least_rows_or_for_its_delay(log: Any) -> None:
    query = Query(log, minOffsetsPerTrigger="3", maxTriggerDelay="1m", maxOffsetsPerTrigger="4")
    query.trigger()
    log.append("t", 0, numbers(3, 4))
    assert not query.trigger()
    query.now += 59
    assert not query.trigger()
    query.now += 1
    assert query.trigger()
    assert query.values() == numbers(3, 4)
    log.append("t", 0, numbers(5, 6, 7, 8, 9))
    assert query.trigger()
    assert query.values()[2:] == numbers(5, 6, 7, 8)
    assert not query.trigger()
    query.now += 60
    assert query.drain() == numbers(*range(3, 10))


def test_a_batch_that_waits_is_not_woken_by_what_it_waits_with(log: Any) -> None:
    """Else the long poll would answer at once each time, and the query would ask without a
    pause."""
    query = Query(log, minOffsetsPerTrigger="3")
    query.trigger()
    log.append("t", 0, numbers(3))
    query.trigger()
    query.trigger()
    assert log.known[-1] == {"t": {0: 4}}
    assert log.waits[-1] == 200


def test_a_restarted_query_does_not_wait_anew(log: Any) -> None:
    """How long its records have waited already is not known."""
    query = Query(log, minOffsetsPerTrigger="3")
    query.trigger()
    log.append("t", 0, numbers(3))
    assert not query.trigger()
    query.crash()
    assert query.trigger()


def test_available_now_and_once_wait_for_nothing(log: Any) -> None:
    query = Query(log, minOffsetsPerTrigger="30", startingOffsets="earliest")
    query.start(available_now=True)
    assert query.drain() == numbers(0, 1, 2)
    log.append("t", 0, numbers(3))
    query.crash()
    query.trigger()
    log.append("t", 0, numbers(4))
    assert query.trigger(ReadAllAvailable())


def test_a_query_without_limits_takes_a_gibibyte_at_most(log: Any) -> None:
    assert Query(log).start().getDefaultReadLimit() == ReadMaxBytes(1 << 30)
    assert Query(log, maxBytesPerTrigger="none").start().getDefaultReadLimit() == ReadAllAvailable()
    both = {"maxBytesPerTrigger": "none", "minOffsetsPerTrigger": "5"}
    assert Query(log, **both).start().getDefaultReadLimit() == ReadMinRows(5)
    assert Query(log, maxOffsetsPerTrigger="5").start().getDefaultReadLimit() == ReadMaxRows(5)


def test_a_first_batch_is_bounded_by_default(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.datasource.options.rate_limits.DEFAULT_BYTES", 400)
    for i in range(3, 6):
        log.append("t", 0, numbers(i))
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    assert query.values() == numbers(0, 1, 2)
    assert query.drain() == numbers(0, 1, 2, 3, 4, 5)


def test_limits_of_options_and_trigger_count_together() -> None:
    options = RateLimits(10, 1000, 3, 5)
    assert limits_for(ReadMaxRows(10), options) == options
    assert limits_for(ReadMaxRows(2), options) == RateLimits(2, 1000, 3, 5)
    assert limits_for(ReadMaxBytes(9), options) == RateLimits(10, 9, 3, 5)
    assert limits_for(ReadMinRows(4), options) == RateLimits(10, 1000, 4, 5)
    assert limits_for(ReadAllAvailable(), options) == RateLimits(None, None, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), max_size=40), st.integers(1, 10))
def test_no_record_waits_longer_than_the_delay(steps: list[tuple[int, int]], least: int) -> None:
    """``steps``: (records that come, ms until the next poll)."""
    now, limits = [0.0], RateLimits(least_rows=least, delay_ms=1000)
    pace = BatchDelay(lambda: now[0])
    pace.go(0, limits, patient=True)
    unread, nothing_waited_at = 0, 0.0
    for come, pause in steps:
        now[0] += pause / 1000
        unread += come
        late = now[0] - nothing_waited_at >= 1.0
        assert pace.go(unread, limits, patient=True) == (unread >= least or (unread > 0 and late))
        if unread >= least or late or not unread:
            unread, nothing_waited_at = 0, now[0]


def test_the_wait_of_an_idle_query_is_the_option(log: Any) -> None:
    query = Query(log, **{"fetch.maxWaitMs": "1s"})
    query.trigger()
    query.trigger()
    assert log.waits[-1] == 1000
    asked = len(log.waits)
    assert not query.trigger()
    assert len(log.waits) == asked + 1, "one question for each poll"
