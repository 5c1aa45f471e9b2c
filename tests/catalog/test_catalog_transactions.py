"""Transactions: all of a commit's batches at once, once, whatever is repeated (B33)."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.catalog.clients.transactions import MAX_STAGE_MS
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    CommitTransaction,
    DeleteTopic,
    Expire,
    OpenStage,
)
from dledger.protocol.messages.codes import Code


def test_staged_batches_have_no_offsets_until_the_commit_gives_them_all(log: Any) -> None:
    first, second = log.stage(), log.stage()
    assert log.data(5, stage=second).base_offset == -1
    assert log.data(3, stage=first).base_offset == -1
    log.data(2)
    log.data(4, stage=first, sequence=1)
    log.data(6, stage=first, sequence=2, partition=1)
    assert log.catalog.end_offset(1, 0) == 2
    done = log.commit((first, 3, 13), (second, 1, 5))
    assert done.code is Code.SUCCESS
    offsets = {"t": {0: [2, 14], 1: [0, 6]}}
    assert done.result == {"repeated": False, "offsets": offsets, "records": 18}
    assert log.spans() == [(0, 2, 5), (2, 3, 4), (5, 4, 6), (9, 5, 3)]
    assert log.spans(partition=1) == [(0, 6, 7)]


def test_repeated_commit_gets_first_answer_and_changes_nothing(log: Any) -> None:
    staged = log.staged(5)
    first = log.commit(staged)
    for sums in [staged], [(staged[0], 9, 9)], []:
        again = log.commit(*sums)
        assert again.code is Code.SUCCESS
        assert again.result == {**first.result, "repeated": True}
    assert log.catalog.end_offset(1, 0) == 5


def test_commit_of_an_older_sequence_is_a_success_without_effect(log: Any) -> None:
    staged = log.staged(5, sequence=4)
    log.commit(staged, sequence=4)
    old = log.commit(staged, sequence=3)
    assert old.result == {"repeated": True, "offsets": {}, "records": 0}
    assert log.catalog.end_offset(1, 0) == 5


def test_result_given_out_is_not_the_one_that_is_remembered(log: Any) -> None:
    log.commit(log.staged(5)).result["offsets"]["t"][0].clear()
    assert log.commit().result["offsets"] == {"t": {0: [0, 5]}}


def test_stage_for_a_committed_transaction_is_answered_with_the_commit(log: Any) -> None:
    """A batch that is run again after its commit must not write anything."""
    log.commit(log.staged(5))
    answer = log.run(OpenStage(writer_id="w", sequence=0, label="again", timeout_ms=1000))
    assert answer.result == {"committed": True, "offsets": {"t": {0: [0, 5]}}, "records": 5}
    assert log.stage(sequence=1) == log.catalog.applied_index


def test_empty_transaction_commits(log: Any) -> None:
    assert log.commit().result == {"repeated": False, "offsets": {}, "records": 0}
    assert log.commit().result["repeated"]


def test_stages_of_failed_attempts_are_dropped_by_the_commit(log: Any) -> None:
    stages = {
        "lost": log.staged(1, sequence=1),
        "kept": log.staged(1, sequence=1),
        "older": log.staged(1),
        "of another writer": log.staged(1, writer="x"),
        "next": log.staged(1, sequence=2),
    }
    log.commit(stages["kept"], sequence=1)
    left = [
        name
        for name, (stage, *_) in stages.items()
        if log.data(1, stage=stage, sequence=1).code is not Code.UNKNOWN_STAGE
    ]
    assert left == ["of another writer", "next"]
    assert log.catalog.end_offset(1, 0) == 1


def test_staged_batch_repeated_counts_once_and_a_gap_is_refused(log: Any) -> None:
    stage = log.stage()
    for _ in range(2):
        assert log.data(5, stage=stage, sequence=0).code is Code.SUCCESS
    assert log.data(5, stage=stage, sequence=2).code is Code.OUT_OF_ORDER_SEQUENCE
    assert log.commit((stage, 1, 5)).code is Code.SUCCESS
    assert log.catalog.end_offset(1, 0) == 5


@pytest.mark.parametrize(("batches", "records"), [(1, 5), (2, 9), (3, 10), (2, 11)])
def test_commit_of_a_stage_that_holds_something_else_is_refused(
    log: Any, batches: int, records: int
) -> None:
    staged = log.staged(5, 5)
    assert log.commit((staged[0], batches, records)).code is Code.STAGE_INCOMPLETE
    assert log.catalog.end_offset(1, 0) == 0
    assert log.commit(staged).code is Code.SUCCESS, "a refused commit can be tried again"


def test_commit_with_one_stage_that_is_wrong_changes_nothing(log: Any) -> None:
    good = log.staged(5)
    for wrong, code in [
        (log.staged(writer="x"), Code.TRANSACTION_CONFLICT),
        (log.staged(sequence=1), Code.TRANSACTION_CONFLICT),
        ((999, 0, 0), Code.UNKNOWN_STAGE),
        (good, Code.MALFORMED),
        ((good[0], 0, 0), Code.MALFORMED),
    ]:
        assert log.commit(good, wrong).code is code
    assert log.catalog.end_offset(1, 0) == 0
    assert log.commit(good).code is Code.SUCCESS


def test_commit_to_a_topic_that_was_deleted_is_refused_as_a_whole(log: Any) -> None:
    other = log.topic("other")
    stage = log.stage()
    log.data(5, stage=stage)
    log.data(5, stage=stage, sequence=1, topic_id=other)
    log.run(DeleteTopic(name="t"))
    assert log.commit((stage, 2, 10)).code is Code.UNKNOWN_TOPIC
    assert log.catalog.end_offset(other, 0) == 0
    log.topic("t")
    assert log.commit((stage, 2, 10)).code is Code.UNKNOWN_TOPIC, (
        "the topic of that name now is another one"
    )


def test_abort_drops_stages_and_never_undoes_a_commit(log: Any) -> None:
    """Spark calls abort after a commit that it takes for failed."""
    staged = log.staged(5)
    first = log.commit(staged)
    assert log.run(AbortTransaction(writer_id="w", sequence=0)).code is Code.SUCCESS
    assert log.commit(staged).result == {**first.result, "repeated": True}
    assert log.catalog.end_offset(1, 0) == 5


def test_abort_drops_only_what_it_names(log: Any) -> None:
    one, two, other = log.stage(), log.stage(), log.stage("x")
    log.run(AbortTransaction(writer_id="w", sequence=0, stage_ids=(one, other)))
    assert sorted(log.catalog.transactions.stages) == [two, other]
    log.run(AbortTransaction(writer_id="w", sequence=1))
    assert sorted(log.catalog.transactions.stages) == [two, other]
    log.run(AbortTransaction(writer_id="w", sequence=0))
    assert sorted(log.catalog.transactions.stages) == [other]


def test_stage_is_dropped_when_its_time_is_over_and_not_before(log: Any) -> None:
    stage = log.stage(timeout_ms=500, time_ms=1000)
    assert log.catalog.next_expiry_ms() == 1500
    log.run(Expire(time_ms=1499))
    assert log.data(5, stage=stage).code is Code.SUCCESS
    log.run(Expire(time_ms=1500))
    assert log.data(5, stage=stage, sequence=1).code is Code.UNKNOWN_STAGE
    assert log.commit((stage, 1, 5)).code is Code.UNKNOWN_STAGE
    assert log.catalog.next_expiry_ms() is None


def test_open_stage_keeps_its_entries_from_being_deleted(log: Any) -> None:
    assert log.catalog.retention_floor() == 1
    empty, stage = log.stage(), log.stage()
    assert log.catalog.retention_floor() == log.catalog.applied_index + 1
    log.data(5, stage=stage)
    first = log.catalog.applied_index
    log.data(5, stage=empty)
    log.data(5)
    assert log.catalog.retention_floor() == first
    log.commit((stage, 1, 5), (empty, 1, 5))
    assert log.catalog.retention_floor() == log.catalog.applied_index + 1


@pytest.mark.parametrize(
    "command",
    [
        OpenStage(writer_id="", sequence=0, label="", timeout_ms=1),
        OpenStage(writer_id="w" * 1025, sequence=0, label="", timeout_ms=1),
        OpenStage(writer_id="w", sequence=-1, label="", timeout_ms=1),
        OpenStage(writer_id="w", sequence=0, label="", timeout_ms=0),
        OpenStage(writer_id="w", sequence=0, label="", timeout_ms=MAX_STAGE_MS + 1),
        CommitTransaction(writer_id="", sequence=0),
        CommitTransaction(writer_id="w", sequence=-1),
    ],
)
def test_malformed_transaction_is_refused(log: Any, command: OpenStage | CommitTransaction) -> None:
    assert log.run(command).code is Code.MALFORMED


def test_staged_batch_for_no_partition_or_without_records_is_refused(log: Any) -> None:
    stage = log.stage()
    assert log.data(5, stage=stage, partition=7).code is Code.UNKNOWN_TOPIC
    assert log.data(0, stage=stage).code is Code.MALFORMED
    assert log.commit((stage, 0, 0)).code is Code.SUCCESS


def test_writers_beyond_the_limit_forget_the_oldest_commit_first(small: Any) -> None:
    transactions = small(10)
    for index in range(10):
        transactions.commit(index, CommitTransaction(writer_id=f"w{index}", sequence=0))
    transactions.commit(10, CommitTransaction(writer_id="w0", sequence=1))
    transactions.commit(11, CommitTransaction(writer_id="one more", sequence=0))
    kept = {"one more", "w0", *(f"w{index}" for index in range(2, 10))}
    assert set(transactions.writers.by_name) == kept


def test_open_stages_are_described_for_people(log: Any) -> None:
    stage = log.stage(timeout_ms=500, time_ms=1000)
    log.data(5, stage=stage)
    (told,) = log.catalog.transactions.describe()
    opened = {"stage_id": stage, "writer_id": "w", "sequence": 0, "label": "l"}
    assert told == {**opened, "batches": 1, "records": 5, "deadline_ms": 1500}
