"""Partitions get an object when they are used: a command that makes 10,000 of them does no work for
each."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.catalog.listing import first_offsets, list_commits, list_partitions, list_progress
from dledger.catalog.state_machine import Catalog
from dledger.errors import TopicNotFound
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    CommitOffsets,
    CreateTopic,
    DeleteTopic,
    EvolveSchema,
)
from dledger.protocol.messages.codes import Code
from dledger.records.columns.types import Atom, Columns, Field

MANY = 10_000
WIDE = 2 << 32
"""The key of its first partition; the log has a topic before it."""


def wide(log: Any) -> Catalog:
    """A catalog with a topic of many partitions, of which the last but one has a record."""
    assert (
        log.run(CreateTopic(name="wide", log_id="wide", partitions=MANY - 1)).code is Code.SUCCESS
    )
    assert log.run(AddPartitions(name="wide", partitions=MANY)).code is Code.SUCCESS
    assert log.data(3, topic_id=2, partition=MANY - 2).base_offset == 0
    catalog: Catalog = log.catalog
    return catalog


def test_no_partition_is_opened_before_it_has_a_record(log: Any) -> None:
    """Not by the command, a batch in another one, a snapshot, retention or a restart."""
    catalog = wide(log)
    assert list(catalog.partitions.used) == [WIDE | MANY - 2]
    assert log.tables.names() == [f"topic-2-{MANY - 2}"]
    catalog.drop_before(1)
    restored = Catalog.restore(catalog.snapshot(), log.tables)
    assert list(restored.partitions.used) == list(catalog.partitions.used)
    assert restored.digest() == catalog.digest()
    assert len(restored.partitions) == len(catalog.partitions) == MANY + 2


def test_whoever_asks_sees_all_partitions_and_opens_none(log: Any) -> None:
    catalog = wide(log)
    assert [catalog.end_offset(2, number) for number in range(MANY)] == [0] * (MANY - 2) + [3, 0]
    assert catalog.begin_offset(2, 0) == 0
    assert catalog.offset_for_time(2, 0, 0) == -1
    assert catalog.find(2, 0, 0, -1, 1) == []
    assert catalog.partition_at(2, 0).split(0, 0, 1, 1) == []
    rows, following = list_partitions(catalog, WIDE | MANY - 3, 2)
    assert [(row["partition"], row["end_offset"]) for row in rows] == [(MANY - 3, 0), (MANY - 2, 3)]
    assert following == WIDE | MANY - 1
    assert list_partitions(catalog, following, 2)[1] == -1
    assert log.run(CommitOffsets(consumer_group="g", offsets={"wide": {0: 0}})).code is Code.SUCCESS
    assert [row["end_offset"] for row in list_progress(catalog, "g", 0, 10)[0]] == [0]
    assert list_commits(catalog, 0, 10) == ({}, -1)
    assert first_offsets(catalog, 0, 10) == {3: 0}
    assert catalog.records_of(0, 10) == [("wide", MANY - 2, 0, 3)]
    assert len(catalog.partitions.used) == 1


def test_a_partition_is_the_same_one_from_its_first_record_on(log: Any) -> None:
    catalog = wide(log)
    used = catalog.partitions[WIDE]
    assert log.data(2, topic_id=2).base_offset == 0
    assert log.data(2, topic_id=2).base_offset == 2
    assert catalog.partitions[WIDE] is catalog.partitions.look(WIDE) is used
    assert used.next_offset == 4


@pytest.mark.parametrize(("topic_id", "number"), [(2, MANY), (2, -1), (3, 0), (0, 0), (2, 1 << 32)])
def test_what_is_no_partition_is_not_found(log: Any, topic_id: int, number: int) -> None:
    catalog = wide(log)
    with pytest.raises(TopicNotFound):
        catalog.end_offset(topic_id, number)
    if 0 <= number < 1 << 32:
        assert topic_id << 32 | number not in catalog.partitions
        assert catalog.partitions.get(topic_id << 32 | number) is None
        assert log.data(topic_id=topic_id, partition=number).code is Code.UNKNOWN_TOPIC
    assert "1" not in catalog.partitions


def test_partitions_are_counted_and_come_in_the_order_of_their_topics(log: Any) -> None:
    catalog = wide(log)
    log.run(CreateTopic(name="a", log_id="a", partitions=2))
    log.data(topic_id=3)
    assert list(catalog.partitions)[-3:] == [WIDE | MANY - 1, 3 << 32, 3 << 32 | 1]
    assert len(catalog.partitions) == MANY + 4
    log.run(DeleteTopic(name="wide"))
    assert list(catalog.partitions)[-2:] == [3 << 32, 3 << 32 | 1]
    assert list(catalog.partitions.used) == [3 << 32]
    log.run(DeleteTopic(name="a"))
    assert not catalog.partitions.used


def test_a_partition_that_is_opened_later_knows_its_topics_schema(log: Any) -> None:
    """Else it would take plain records into a typed topic, or refuse rows."""
    log.run(CreateTopic(name="typed", log_id="typed", partitions=2, settings={"type": "typed"}))
    used = log.catalog.partitions[WIDE]
    schema = Columns((Field("a", Atom("long")),)).text
    log.run(EvolveSchema(topic="typed", log_id="typed", base_version=0, schema=schema))
    newest = log.catalog.schemas.newest(2)
    assert used.newest_schema == log.catalog.partitions[WIDE | 1].newest_schema == newest == 1
