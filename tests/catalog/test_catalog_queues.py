"""How far the queues of a RocketMQ commit log have come: the same on every node, and whoever leads."""

from __future__ import annotations

from typing import Any

from dledger.catalog.catalog import Catalog
from dledger.catalog.queues import Queues, Settled


def test_a_queue_goes_on_behind_its_last_message() -> None:
    queues = Queues()
    for queue_offset in range(3):
        queues.add("a", 0, queue_offset, 100 + queue_offset)
    queues.add("a", 1, 0, 50)
    queues.add("b", 0, -1, 60)  # of a transaction: it has no place in a queue
    assert queues.next == {("a", 0): 3, ("a", 1): 1}
    assert queues.store_ms == 102


def test_a_leader_settles_what_comes_behind_what_is_applied() -> None:
    queues = Queues()
    queues.add("a", 0, 0, 100)
    settled = Settled(queues)
    assert [settled.take("a", 0), settled.take("a", 0), settled.take("b", 0)] == [1, 2, 0]
    assert queues.next == {("a", 0): 1}, "nothing of that is applied yet"
    assert Settled(queues).take("a", 0) == 1, "what was given up takes its numbers with it"


def test_a_snapshot_carries_the_queues(log: Any) -> None:
    log.noop()
    plain = log.catalog.snapshot()
    assert b"queues" not in plain, "a log without messages has the same snapshots as before there were any"
    first = log.catalog.applied_index + 1
    for number, (topic, queue_id, offset) in enumerate((("t", 0, 0), ("%RETRY%g", 3, 0), ("t", 0, 1), ("t", 1, -1))):
        log.catalog.apply_message(first + number, topic, queue_id, offset, 1000 + number)
    assert log.catalog.applied_index == first + 3
    data = log.catalog.snapshot()
    restored = Catalog.restore(data, log.tables)
    assert restored.queues.next == {("t", 0): 2, ("%RETRY%g", 3): 1}
    assert restored.queues.store_ms == 1003
    assert restored.snapshot() == data
