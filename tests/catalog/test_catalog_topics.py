"""Topics: names, ids, and what becomes of those that were deleted."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.errors import TopicNotFound
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
)
from dledger.protocol.messages.codes import Code


def create(log: Any, name: str = "x", log_id: str = "id-x", **settings: Any) -> Any:
    return log.run(CreateTopic(name=name, log_id=log_id, **settings))


def test_topic_when_created_is_listed_with_its_ids(log: Any) -> None:
    made = create(log, partitions=3, settings={"description": "a text"})
    assert made.code is Code.SUCCESS
    assert made.result == {"topic_id": 2, "log_id": "id-x", "partitions": 3}
    assert [info.name for info in log.catalog.topics()] == ["t", "x"]
    assert log.catalog.topic("x") == log.catalog.topic_by_id(2)
    assert log.catalog.topic("x").settings == {"description": "a text"}


def test_creation_repeated_with_its_log_id_succeeds_with_the_first_answer(log: Any) -> None:
    """The answer was lost, the client asks again."""
    assert create(log) == create(log)


def test_creation_of_an_existing_name_fails_unless_absent_is_enough(log: Any) -> None:
    first = create(log)
    assert create(log, log_id="other").code is Code.TOPIC_EXISTS
    assert create(log, log_id="other", if_absent=True) == first
    assert create(log, log_id="other", if_absent=True, partitions=2).code is Code.TOPIC_EXISTS


def test_topic_created_again_has_new_ids_and_none_of_the_old_records(log: Any) -> None:
    log.data(5)
    assert log.run(DeleteTopic(name="t")).code is Code.SUCCESS
    assert log.data(5).code is Code.UNKNOWN_TOPIC
    again = create(log, "t", "t-new", partitions=2).result
    assert again["topic_id"] == 2
    assert log.catalog.end_offset(2, 0) == 0
    assert log.data(5).code is Code.UNKNOWN_TOPIC, "the old id means the old topic"


def test_log_id_of_a_deleted_topic_is_never_taken_again(log: Any) -> None:
    """A creation that was delayed on its way must not bring a deleted topic back."""
    create(log)
    log.run(DeleteTopic(name="x"))
    assert create(log).code is Code.TOPIC_EXISTS
    assert create(log, "y").code is Code.TOPIC_EXISTS


def test_topic_with_more_partitions_keeps_its_records_and_takes_more(log: Any) -> None:
    log.data(5, partition=1)
    grown = log.run(AddPartitions(name="t", partitions=4))
    assert (grown.code, grown.result["partitions"]) == (Code.SUCCESS, 4)
    assert log.data(5, partition=3).base_offset == 0
    assert log.data(5, partition=1).base_offset == 5
    assert log.run(AddPartitions(name="t", partitions=4)) == grown, (
        "a repeat, or another one's wish for the same"
    )
    assert log.data(5, partition=3).base_offset == 5


def test_topic_never_gets_fewer_partitions_or_too_many(log: Any) -> None:
    for partitions in (1, 0, -1, 10_001):
        assert log.run(AddPartitions(name="t", partitions=partitions)).code is Code.MALFORMED
    assert log.run(AddPartitions(name="no", partitions=4)).code is Code.UNKNOWN_TOPIC
    assert log.catalog.topic("t").partitions == 2


def test_creation_repeated_after_the_topic_has_grown_still_succeeds(log: Any) -> None:
    create(log)
    log.run(AddPartitions(name="x", partitions=3))
    assert create(log).result["partitions"] == 3


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic(name="", log_id="a"),
        CreateTopic(name="a/b", log_id="a"),
        CreateTopic(name="a", log_id=""),
        CreateTopic(name="a", log_id="a", partitions=0),
        CreateTopic(name="a", log_id="a", partitions=10_001),
        CreateTopic(name="a", log_id="a", settings={"descripton": "x"}),
        CreateTopic(name="a", log_id="a", settings={"description": "x" * 5000}),
    ],
)
def test_malformed_creation_is_refused_and_changes_nothing(log: Any, command: CreateTopic) -> None:
    refused = log.run(command)
    assert refused.code is Code.MALFORMED
    assert refused.message
    assert len(log.catalog.topics()) == 1


def test_unknown_topic_has_a_definite_answer_everywhere(log: Any) -> None:
    assert log.run(DeleteTopic(name="no")).code is Code.UNKNOWN_TOPIC
    assert log.data(topic_id=9).code is Code.UNKNOWN_TOPIC
    assert log.data(partition=2).code is Code.UNKNOWN_TOPIC
    for ask in (
        lambda: log.catalog.topic("no"),
        lambda: log.catalog.topic_by_id(9),
        lambda: log.catalog.end_offset(1, 2),
        lambda: log.catalog.end_offset(1, -1),
        lambda: log.catalog.end_offset(0, 1 << 32),
        lambda: log.catalog.find(9, 0, 0, -1, 1),
    ):
        with pytest.raises(TopicNotFound):
            ask()


def test_tables_of_a_deleted_topic_go_only_when_no_snapshot_needs_them(log: Any) -> None:
    log.data(1)
    log.data(1, partition=1)
    log.run(DeleteTopic(name="t"))
    deleted_at = log.catalog.applied_index
    log.catalog.saved(deleted_at - 1)
    assert log.tables.names() == ["topic-1-0", "topic-1-1"]
    log.catalog.saved(deleted_at)
    assert log.tables.names() == []


def test_applying_knows_no_total_of_topics(log: Any) -> None:
    """What a log that was written before there were limits means must not change: only a leader
    refuses, beforehand."""
    for number in range(10_050):
        assert create(log, f"x{number}", f"id-{number}").code is Code.SUCCESS
    assert len(log.catalog.topics()) == 10_051


def test_what_has_grown_or_gone_is_kept_for_a_reader_that_waits_alone(log: Any) -> None:
    """Else a node whose topics come and go, and of which no reader waits, keeps a key of each."""
    partitions = log.catalog.partitions

    def come_and_go() -> tuple[int, int]:
        topic = log.topic("passing")
        log.data(topic_id=topic)
        log.run(DeleteTopic(name="passing"))
        return len(partitions.grown), len(partitions.gone)

    assert [come_and_go() for _ in range(3)] == [(0, 0)] * 3
    partitions.is_watched = True
    assert [come_and_go() for _ in range(3)] == [(1, 1), (2, 2), (3, 3)]
