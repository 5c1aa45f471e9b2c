"""Writers that are known by their rows: a repeat has the same ones, whoever has gone back is
refused (P12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dledger.catalog.clients.transactions import Transactions
from dledger.protocol.messages.catalog_commands import CommitTransaction, CommitWrite, OpenStage
from dledger.protocol.messages.codes import Code

DIGEST = "00000000000000ff"


def written(log: Any, sequence: int = 0, **more: Any) -> Any:
    """Commit 5 rows with digest 1."""
    staged = log.staged(5, writer=more.get("writer_id", "w"), sequence=sequence)
    return log.commit_write(staged, rows=5, sequence=sequence, **more)


def test_repeat_with_same_rows_is_told_when_and_what_was_committed(log: Any) -> None:
    first = written(log, time_ms=7000)
    assert first.result == {"repeated": False, "offsets": {"t": {0: [0, 5]}}, "records": 5}
    again = log.commit_write(rows=5, time_ms=9000)
    assert again.code is Code.SUCCESS
    assert again.result == {**first.result, "repeated": True, "committed_ms": 7000, "checked": True}
    assert log.catalog.end_offset(1, 0) == 5


@pytest.mark.parametrize(
    ("rows", "digest", "sequence", "words"),
    [
        (6, 2, 3, "on 1970-01-01 00:00:07 UTC with 5 rows, and now it has 6 rows"),
        (5, 2, 3, "with 5 rows, and now it has 5 other rows"),
        (5, 1, 2, "has committed 3 already on 1970-01-01 00:00:07 UTC, which is newer"),
    ],
)
def test_other_rows_and_an_older_sequence_are_refused_and_change_nothing(
    log: Any, rows: int, digest: int, sequence: int, words: str
) -> None:
    written(log, 3, time_ms=7000)
    before = log.catalog.transactions.writers.by_name["w"].digest
    refused = log.commit_write(rows=rows, digest=digest, sequence=sequence)
    assert refused.code is Code.REPLAY_MISMATCH
    assert words in refused.message
    assert log.catalog.transactions.writers.by_name["w"].digest == before
    assert log.commit_write(rows=5, sequence=3).code is Code.SUCCESS


def test_the_first_repeat_of_a_commit_without_a_digest_leaves_its_own(log: Any) -> None:
    log.commit(log.staged(5))
    again = log.commit_write(rows=5)
    assert again.result["checked"] is False
    assert log.commit_write(rows=5).result["checked"] is True
    assert log.commit_write(rows=5, digest=2).code is Code.REPLAY_MISMATCH


def test_commit_by_former_writer_name_counts_for_topics_it_wrote_to(log: Any) -> None:
    log.topic("other")
    log.commit(log.staged(5, writer="q", sequence=3), writer="q", sequence=3)
    for sequence, code in ((2, Code.REPLAY_MISMATCH), (3, Code.SUCCESS)):
        repeat = log.staged(5, writer="q/t", sequence=sequence)
        given = {"writer_id": "q/t", "formerly": "q", "sequence": sequence}
        assert log.commit_write(repeat, rows=5, **given).code is code
    assert log.catalog.end_offset(1, 0) == 5
    other = log.commit_write(rows=5, digest=2, writer_id="q/t", sequence=3)
    assert other.code is Code.REPLAY_MISMATCH
    fork = log.staged(5, writer="q/other", sequence=3, topic_id=2)
    done = log.commit_write(fork, rows=5, writer_id="q/other", formerly="q", sequence=3)
    assert done.result["offsets"] == {"other": {0: [0, 5]}}


def test_a_write_of_which_tasks_have_staged_less_is_refused(log: Any) -> None:
    """Tasks that were told that all is committed stage nothing; a commit must not take that for a
    write."""
    staged = log.staged(5)
    for stages in ([staged], []):
        assert log.commit_write(*stages, rows=9).code is Code.STAGE_INCOMPLETE
    assert log.commit_write(staged, rows=5).code is Code.SUCCESS


@pytest.mark.parametrize(
    "wrong", [{"digest": ""}, {"digest": "F" * 16}, {"records": -1}, {"formerly": "x" * 1025}]
)
def test_counts_and_digests_that_cannot_be_are_refused(log: Any, wrong: dict[str, Any]) -> None:
    right = CommitWrite(writer_id="w", sequence=0, records=0, digest=DIGEST)
    assert log.run(replace(right, **wrong)).code is Code.MALFORMED


def test_a_restored_catalog_knows_digests_and_forgotten_writers(log: Any) -> None:
    log.catalog.transactions.writers.most = 2
    for name in ("old", "w", "new"):
        written(log, 4, writer_id=name, time_ms=7000)
    log.restart()
    assert set(log.catalog.transactions.writers.by_name) == {"w", "new"}
    assert log.commit_write(rows=5, sequence=4).result["committed_ms"] == 7000
    for name in ("w", "old"):
        for digest, sequence in ((2, 4), (1, 3)):
            again = log.commit_write(rows=5, digest=digest, sequence=sequence, writer_id=name)
            assert again.code is Code.REPLAY_MISMATCH


def commit(transactions: Transactions, index: int, name: str, sequence: int = 0) -> None:
    command = CommitWrite(writer_id=name, sequence=sequence, digest=DIGEST)
    transactions.commit_write(index, command, 0)


def test_batch_jobs_give_way_first_and_leave_nothing(small: Any) -> None:
    transactions = small(4)
    commit(transactions, 0, "spark/q/t", 7)
    for index in range(1, 50):
        commit(transactions, index, f"job/{index}")
    assert list(transactions.writers.by_name) == ["spark/q/t", "job/47", "job/48", "job/49"]
    assert transactions.writers.traces == {}


def test_a_stream_that_gave_way_is_still_known_by_its_last_batch(small: Any) -> None:
    transactions = small(2)
    for index, name in enumerate(("spark/a/t", "spark/b/t", "spark/c/t")):
        commit(transactions, index, name, 7)
    assert "spark/a/t" not in transactions.writers.by_name
    opened = OpenStage(writer_id="spark/a/t", sequence=7, label="", timeout_ms=5)
    assert transactions.open(9, opened, 0).result["committed"] is True
    plain = transactions.commit(10, CommitTransaction(writer_id="spark/a/t", sequence=6))
    assert plain.result["repeated"] is True
    other = CommitWrite(writer_id="spark/a/t", sequence=7, digest="1" * 16)
    assert transactions.commit_write(11, other, 0).code is Code.REPLAY_MISMATCH
    commit(transactions, 12, "spark/a/t", 8)
    assert transactions.writers.by_name["spark/a/t"].sequence == 8
    new = OpenStage(writer_id="spark/new/t", sequence=0, label="", timeout_ms=5)
    assert transactions.open(13, new, 0).result == {"stage_id": 13}


def test_a_former_name_that_gave_way_counts_for_any_topic(small: Any) -> None:
    transactions = small(1)
    transactions.commit(0, CommitTransaction(writer_id="spark/q", sequence=7))
    commit(transactions, 1, "other")
    again = CommitWrite(writer_id="spark/q/t", sequence=7, digest=DIGEST, formerly="spark/q")
    assert transactions.commit_write(2, again, 0).result["repeated"] is True


def test_what_is_left_of_writers_is_bounded_too(small: Any) -> None:
    transactions = small(2)
    for index in range(20):
        commit(transactions, index, f"spark/{index}/t")
    writers = transactions.writers
    assert list(writers.by_name) == ["spark/18/t", "spark/19/t"]
    assert len(writers.traces) == 2
    assert writers.find("spark/17/t") is not None
    assert writers.find("spark/3/t") is None
