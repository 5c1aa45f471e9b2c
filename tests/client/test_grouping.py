"""An append that was cut into several entries has one answer, which is true of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.client.protocol.results import Appended
from dledger.client.protocol.writing.batching import Batch, PartitionQueue, Pending
from dledger.errors import DLedgerError, OutcomeUnknown, ProducerFenced, Unavailable
from dledger.records.body.build import make_records


class Answer:
    """A future that may be answered once."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def set_result(self, result: Any, /) -> None:
        self.given.append(result)

    def set_exception(self, exception: Any, /) -> None:
        self.given.append(exception)


FENCED = ProducerFenced("a newer session took over")
SILENT = OutcomeUnknown("no answer")


def answer(*results: int | DLedgerError) -> list[Any]:
    """An append of two records for each part."""
    future = Answer()
    pending = Pending(future, "t", 0, 2 * len(results))
    for result in results[:-1]:
        pending.answered(result, 0, 2)
        assert future.given == []
    pending.answered(results[-1], 0, 2)
    return future.given


def test_append_written_in_parts_spans_from_first_part_to_last() -> None:
    assert answer(5, 9) == [Appended("t", 0, 5, 11)]


def test_append_with_parts_answered_out_of_order_spans_first_to_last() -> None:
    """After a change of connection, a repeat is known at once while an earlier part still waits for
    its quorum."""
    assert answer(9, 5) == [Appended("t", 0, 5, 11)]


def test_append_of_which_no_part_was_written_fails_definitely() -> None:
    assert answer(FENCED, FENCED) == [FENCED]


@pytest.mark.parametrize("results", [(5, FENCED), (FENCED, 5), (FENCED, 5, FENCED)])
def test_append_of_which_a_part_was_written_does_not_fail_definitely(
    results: tuple[int | DLedgerError, ...],
) -> None:
    [error] = answer(*results)
    assert isinstance(error, OutcomeUnknown)
    assert not error.definite
    assert "from 5 on" in str(error)


@pytest.mark.parametrize("results", [(SILENT, FENCED), (FENCED, SILENT), (5, SILENT)])
def test_append_of_which_a_part_is_unknown_is_unknown(
    results: tuple[int | DLedgerError, ...],
) -> None:
    assert answer(*results) == [SILENT]


def test_append_whose_parts_gave_up_before_they_were_sent_fails_definitely() -> None:
    error = Unavailable("gave up")
    assert answer(error, error) == [error]
    assert error.definite


def test_appends_that_share_a_batch_are_told_their_own_offsets() -> None:
    futures = [Answer() for _ in range(3)]
    counts = (2, 3, 1)
    pendings = [
        Pending(future, "t", 0, count) for future, count in zip(futures, counts, strict=True)
    ]
    batch = Batch(
        0,
        make_records([b"v"] * 6),
        [(pending, 0, count) for pending, count in zip(pendings, counts, strict=True)],
    )
    batch.answered(40)
    assert [future.given for future in futures] == [
        [Appended("t", 0, 40, 42)],
        [Appended("t", 0, 42, 45)],
        [Appended("t", 0, 45, 46)],
    ]


def test_keys_stay_with_the_values_that_they_were_given_with() -> None:
    queue = PartitionQueue("t", 0)
    queue.values(keyed=False).records.append(b"a")
    keyed = queue.values(keyed=True)
    keyed.records += [(b"b", b"k"), (b"c", None)]
    assert queue.values(keyed=False) is keyed
    (batch,), error = queue.batches(1 << 20)
    assert error is None
    assert batch.records.column("value").to_pylist() == [b"a", b"b", b"c"]
    assert batch.records.column("key").to_pylist() == [None, b"k", None]
