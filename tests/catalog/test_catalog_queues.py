"""How far the queues of a RocketMQ commit log have come: the same on every node, and whoever
leads."""

from __future__ import annotations

from typing import Any

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.queues import Queues, Settled
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import AdoptCommitLog
from dledger.protocol.messages.codes import Code


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
    assert b"queues" not in plain, (
        "a log without messages has the same snapshots as before there were any"
    )
    first = log.catalog.applied_index + 1
    for number, (topic, queue_id, offset) in enumerate(
        (("t", 0, 0), ("%RETRY%g", 3, 0), ("t", 0, 1), ("t", 1, -1))
    ):
        log.catalog.apply_message(first + number, topic, queue_id, offset, 1000 + number)
    assert log.catalog.applied_index == first + 3
    log.restart()
    assert log.catalog.queues.next == {("t", 0): 2, ("%RETRY%g", 3): 1}
    assert log.catalog.queues.store_ms == 1003


def adoption(**queues: dict[int, int]) -> AdoptCommitLog:
    return AdoptCommitLog(divided_offset=65_536, fingerprint=7, store_ms=900, queues=queues)


def test_queues_of_an_old_commit_log_go_on_behind_their_last_message() -> None:
    catalog = Catalog(MemoryTables())
    assert catalog.apply_command(0, adoption(a={0: 5, 2: 1}, b={0: 9})).code is Code.SUCCESS
    assert catalog.queues.next == {("a", 0): 5, ("a", 2): 1, ("b", 0): 9}
    assert catalog.queues.store_ms == 900
    catalog.apply_message(1, "a", 0, 5, 1000)
    assert Settled(catalog.queues).take("a", 0) == 6
    assert Catalog.restore(catalog.snapshot(), MemoryTables()).queues.next == catalog.queues.next


def test_a_commit_log_is_adopted_by_the_first_entry_only(log: Any) -> None:
    log.noop()
    answer = log.run(adoption(a={0: 5}))
    assert answer.code is Code.MALFORMED
    assert "before its group is started" in answer.message
    assert not log.catalog.queues
