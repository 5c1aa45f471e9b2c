"""Snapshots: restored and replayed is as never stopped, and every node has the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import CorruptStore
from dledger.protocol.messages.catalog_commands import CreateTopic, DeleteTopic, InitProducer
from dledger.protocol.messages.codes import Code


def filled(log: Any) -> Any:
    """A log with something of everything."""
    p = log.producer()
    stage = log.stage("query é", 0, timeout_ms=10_000, time_ms=5000)
    for sequence in range(3):
        log.data(5, producer=p, sequence=sequence, time=sequence)
        log.data(2, stage=stage, sequence=sequence, partition=1)
    log.commit(log.staged(1, writer="done", sequence=7), writer="done", sequence=7)
    log.topic("gone")
    log.run(DeleteTopic(name="gone"))
    log.noop()
    return log


def test_restored_catalog_has_the_same_state_and_goes_on_the_same_way(log: Any) -> None:
    filled(log)
    before = log.catalog
    log.restart()
    for kept in ("applied_index", "clock_ms"):
        assert getattr(log.catalog, kept) == getattr(before, kept)
    assert log.catalog.producers.results == before.producers.results == 3
    (retired,) = (
        entry[0].log_id
        for entry in log.entries
        if entry and getattr(entry[0], "name", "") == "gone" and hasattr(entry[0], "log_id")
    )
    assert log.run(CreateTopic(name="gone", log_id=retired)).code is Code.TOPIC_EXISTS
    assert log.data(5, producer=(1, 0), sequence=1).base_offset == 5, (
        "still known after a restart (B24)"
    )
    assert log.commit(writer="done", sequence=7).result["offsets"] == {"t": {0: [15, 16]}}
    stage = min(log.catalog.transactions.stages)
    assert log.data(2, stage=stage, sequence=2).code is Code.SUCCESS
    assert log.commit((stage, 3, 6), writer="query é").result["offsets"] == {"t": {1: [0, 6]}}


def test_producer_that_was_fenced_before_the_snapshot_stays_fenced(log: Any) -> None:
    """Its epoch, and the times by which it is forgotten, are part of the state (B24)."""
    old = log.producer("p")
    log.data(1, producer=old, sequence=0)
    new = log.run(InitProducer(producer_name="p", time_ms=5000)).result
    session = log.catalog.producers.sessions[new["producer_id"]]
    kept = session.epoch, session.used_at, session.used_ms
    log.restart()
    session = log.catalog.producers.sessions[new["producer_id"]]
    assert (session.epoch, session.used_at, session.used_ms) == kept
    assert kept[0] == new["epoch"] == old[1] + 1
    assert log.data(1, producer=old, sequence=1).code is Code.PRODUCER_FENCED
    assert log.data(1, producer=(new["producer_id"], new["epoch"]), sequence=0).code is Code.SUCCESS


def test_rows_that_came_after_the_snapshot_are_cut_off_and_come_again(log: Any) -> None:
    filled(log)
    data = log.catalog.snapshot()
    log.data(9)
    log.data(9, partition=1)
    log.topic("late")
    log.data(9, topic_id=3)
    digest = log.catalog.digest()
    log.catalog = log.replay(Catalog.restore(data, log.tables))
    assert log.catalog.digest() == digest
    for where in (1, 0), (1, 1), (3, 0):
        before = log.spans(*where)
        log.data(2, topic_id=where[0], partition=where[1])
        assert log.spans(*where) == [
            *before,
            (log.catalog.end_offset(*where) - 2, 2, log.catalog.applied_index),
        ]


def test_catalog_that_starts_empty_removes_the_rows_of_a_life_before(log: Any) -> None:
    log.data(5)
    log.data(6)
    digest = log.catalog.digest()
    log.catalog = log.replay(Catalog(log.tables))
    assert log.catalog.digest() == digest
    log.data(7)
    assert log.spans() == [(0, 5, 1), (5, 6, 2), (11, 7, 3)]


def test_topic_deleted_after_snapshot_exists_until_replay_deletes_it(
    log: Any,
) -> None:
    log.data(5)
    data = log.catalog.snapshot()
    log.run(DeleteTopic(name="t"))
    restored = Catalog.restore(data, log.tables)
    assert restored.end_offset(1, 0) == 5
    assert log.replay(restored).digest() == log.catalog.digest()


def test_what_this_node_has_deleted_is_not_in_the_snapshot(log: Any) -> None:
    filled(log)
    data = log.catalog.snapshot()
    log.catalog.drop_before(6)
    assert log.catalog.begin_offset(1, 0) > 0
    assert log.catalog.snapshot() == data
    begin = log.catalog.begin_offset(1, 0)
    log.catalog = Catalog.restore(data, log.tables)
    log.catalog.drop_before(6)
    assert log.catalog.begin_offset(1, 0) == begin


def test_snapshot_does_not_grow_with_the_rows(log: Any) -> None:
    log.data(1)
    before = len(log.catalog.snapshot())
    for _ in range(1000):
        log.data(1)
    assert len(log.catalog.snapshot()) < before + 10


def test_digest_sees_a_difference_in_the_rows_alone(new_log: Any) -> None:
    one, two = new_log(), new_log()
    for each, sizes in (one, (100, 101)), (two, (101, 100)):
        each.topic()
        for size in sizes:
            each.data(5, size=size)
    assert one.catalog.digest() != two.catalog.digest()


def test_snapshot_that_is_damaged_or_cut_short_is_refused(log: Any) -> None:
    data = filled(log).catalog.snapshot()
    places = (0, 9, 30, len(data) - 40, len(data) - 1)
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places]
    for wrong in (*flipped, *(data[:size] for size in (0, 3, 19, 30, len(data) - 1))):
        with pytest.raises(CorruptStore):
            Catalog.restore(wrong, log.tables)


def test_snapshot_over_tables_that_lost_rows_is_refused(log: Any) -> None:
    data = filled(log).catalog.snapshot()
    log.tables.open("topic-1-0", 56).truncate(2)
    with pytest.raises(CorruptStore):
        Catalog.restore(data, log.tables)
    with pytest.raises(CorruptStore):
        Catalog.restore(data, MemoryTables())


def test_snapshot_over_tables_of_another_log_is_refused(new_log: Any) -> None:
    one, two = new_log(), new_log()
    for each, count in (one, 5), (two, 50):
        each.topic()
        each.data(count)
        each.data(count)
    with pytest.raises(CorruptStore):
        Catalog.restore(one.catalog.snapshot(), two.tables)


def test_entry_out_of_order_stops_the_catalog(log: Any) -> None:
    """Applying an entry twice would give its records two places."""
    log.data(5)
    at = log.catalog.applied_index
    for again in (at, at - 1):
        with pytest.raises(CorruptStore):
            log.catalog.apply_other(again)
        with pytest.raises(CorruptStore):
            log.catalog.apply_data(again, *log.entries[1])
    assert log.catalog.end_offset(1, 0) == 5
