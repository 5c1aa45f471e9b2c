"""Producer sessions: every batch once, in order, over retries and restarts (B23, B24)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dledger.catalog.clients import producers as limits
from dledger.catalog.clients.producers import WINDOW, Producers
from dledger.protocol.messages.catalog_commands import DeleteTopic, Expire, InitProducer
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader, BodyKind, Flag

WEEK_MS = limits.SESSION_MS


def test_batch_repeated_is_answered_with_its_first_offset_and_not_appended(log: Any) -> None:
    p = log.producer()
    assert log.data(5, producer=p, sequence=0).base_offset == 0
    log.data(7)
    assert log.data(3, producer=p, sequence=1).base_offset == 12
    for _ in range(2):
        assert log.data(5, producer=p, sequence=0) == (Code.SUCCESS, 0, "")
        assert log.data(3, producer=p, sequence=1) == (Code.SUCCESS, 12, "")
    assert log.catalog.end_offset(1, 0) == 15


def test_batches_without_a_session_are_appended_as_often_as_they_come(log: Any) -> None:
    log.data(5)
    log.data(5)
    assert log.catalog.end_offset(1, 0) == 10


def test_batch_ahead_of_turn_is_refused_and_taken_after_missing_one(log: Any) -> None:
    p = log.producer()
    assert log.data(producer=p, sequence=1).code is Code.OUT_OF_ORDER_SEQUENCE
    assert log.data(producer=p, sequence=0).base_offset == 0
    assert log.data(producer=p, sequence=2).code is Code.OUT_OF_ORDER_SEQUENCE
    assert log.data(producer=p, sequence=1).base_offset == 1
    assert log.catalog.end_offset(1, 0) == 2


def test_sequences_count_for_each_partition(log: Any) -> None:
    p = log.producer()
    assert log.data(producer=p, sequence=0).code is Code.SUCCESS
    assert log.data(producer=p, sequence=0, partition=1).base_offset == 0
    assert log.data(producer=p, sequence=1, partition=1).base_offset == 1


def test_session_opened_again_has_a_higher_epoch_and_fences_the_old_one(log: Any) -> None:
    old = log.producer()
    log.data(producer=old, sequence=0)
    new = log.producer()
    assert new == (old[0], old[1] + 1)
    for sequence in (0, 1):
        assert log.data(producer=old, sequence=sequence).code is Code.PRODUCER_FENCED
    assert log.data(producer=new, sequence=1).code is Code.OUT_OF_ORDER_SEQUENCE
    assert log.data(producer=new, sequence=0).base_offset == 1
    assert log.producer("other")[0] != old[0]


def test_epoch_that_nobody_was_given_is_refused(log: Any) -> None:
    producer_id, epoch = log.producer()
    assert log.data(producer=(producer_id, epoch + 1)).code is Code.MALFORMED
    assert log.data(producer=(producer_id + 1, 0)).code is Code.UNKNOWN_PRODUCER


def test_retry_inside_window_gets_its_result_and_outside_an_error(log: Any) -> None:
    """Never a silent second append (B24)."""
    p = log.producer()
    for sequence in range(WINDOW + 10):
        log.data(2, producer=p, sequence=sequence)
    end = log.catalog.end_offset(1, 0)
    for sequence in range(10, WINDOW + 10):
        assert log.data(2, producer=p, sequence=sequence).base_offset == 2 * sequence
    refused = log.data(2, producer=p, sequence=9)
    assert refused.code is Code.OUT_OF_ORDER_SEQUENCE
    assert "forgotten" in refused.message
    assert log.catalog.end_offset(1, 0) == end


def test_session_is_forgotten_only_when_it_was_idle_for_its_whole_time(log: Any) -> None:
    """Batches carry no clock: one that was sent just before must not be taken for an old one."""
    log.run(InitProducer(producer_name="idle", time_ms=1000))
    busy = log.producer("busy")
    assert log.catalog.next_expiry_ms() == 1000 + WEEK_MS
    log.run(Expire(time_ms=1000 + WEEK_MS))
    for sequence in range(2):
        assert log.data(producer=busy, sequence=sequence).code is Code.SUCCESS
    log.run(Expire(time_ms=1000 + 2 * WEEK_MS))
    assert log.data(producer=busy, sequence=2).code is Code.SUCCESS
    idle = log.data(producer=(1, 0), partition=1)
    assert idle.code is Code.UNKNOWN_PRODUCER
    assert log.producer("idle") != (1, 0), "an id is never given twice"


def test_session_time_does_not_run_backwards_with_another_leaders_clock(log: Any) -> None:
    log.run(InitProducer(producer_name="p", time_ms=WEEK_MS))
    log.run(Expire(time_ms=0))
    log.run(Expire(time_ms=5))
    assert log.catalog.clock_ms == WEEK_MS
    assert log.data(producer=(1, 0)).code is Code.SUCCESS


def header(producer_id: int, sequence: int) -> BodyHeader:
    return BodyHeader(BodyKind.DATA, 1, 0, 1, 0, 0, producer_id, 0, sequence)


def remember(producers: Producers, first: int, producer_id: int, count: int) -> None:
    """The results of so many batches, from this entry on."""
    for sequence in range(count):
        producers.remember(first + sequence, header(producer_id, sequence), 1, sequence)


def test_more_sessions_than_the_limit_forget_the_longest_unused_ones() -> None:
    producers = Producers(max_sessions=100)
    ids = [producers.init(index, f"p{index}", 0).producer_id for index in range(100)]
    producers.remember(100, header(ids[0], 0), 1, 0)
    producers.init(101, "one more", 0)
    assert ids[0] in producers.sessions, "it was used last"
    assert ids[1] not in producers.sessions
    assert len(producers.sessions) <= 100


def test_more_results_than_the_limit_forget_the_longest_unused_sessions() -> None:
    producers = Producers(max_results=100)
    first, second = (producers.init(index, f"p{index}", 0).producer_id for index in range(2))
    remember(producers, 2, first, 60)
    remember(producers, 100, second, 60)
    assert set(producers.sessions) == {second}
    assert producers.results == 60
    assert set(producers.by_name) == {"p1"}


def test_session_above_result_limit_is_kept_while_it_is_the_only_one() -> None:
    producers = Producers(max_results=10)
    only = producers.init(0, "p", 0).producer_id
    remember(producers, 1, only, 20)
    assert producers.check(header(only, 3), 1) == (Code.SUCCESS, 3, "")


def test_deleted_topic_takes_its_results_along(log: Any) -> None:
    p = log.producer()
    log.data(producer=p)
    log.data(producer=p, partition=1)
    assert log.catalog.producers.results == 2
    log.run(DeleteTopic(name="t"))
    assert log.catalog.producers.results == 0


def test_producer_name_with_blanks_is_malformed(log: Any) -> None:
    assert log.run(InitProducer(producer_name="a b")).code is Code.MALFORMED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic_id": 7}, Code.UNKNOWN_TOPIC),
        ({"partition": 2}, Code.UNKNOWN_TOPIC),
        ({"count": 0}, Code.MALFORMED),
        ({"kind": BodyKind.COMMAND}, Code.MALFORMED),
        ({"producer_epoch": 0}, Code.PRODUCER_FENCED),
        ({"producer_epoch": 2}, None),
        ({"producer_id": 9}, None),
        ({"sequence": 2}, None),
        ({"sequence": 1}, None),
        ({"sequence": 0}, Code.SUCCESS),
        ({"producer_id": 0}, None),
        ({"flags": Flag.STAGED, "producer_id": 1}, Code.UNKNOWN_STAGE),
        ({"flags": Flag.STAGED, "producer_id": 99}, None),
    ],
)
def test_leader_checks_before_it_proposes_what_is_certain_already(
    log: Any, change: dict[str, Any], code: Code | None
) -> None:
    """And leaves to the log what a batch or command in flight can still change."""
    log.producer()
    p = log.producer()
    log.data(4)
    log.data(3, producer=p)
    batch = BodyHeader(BodyKind.DATA, 1, 0, 3, producer_id=p[0], producer_epoch=p[1])
    answer = log.catalog.check_append(replace(batch, **change))
    assert (None if answer is None else answer.code) == code
    if code is Code.SUCCESS:
        assert answer.base_offset == 4
