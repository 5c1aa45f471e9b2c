"""What `make kafka` says of its copies, on made-up ones. With a real Kafka it is run by hand, for
it needs Maven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dledger.client.protocol.operations.group_state import CommitState

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def reconcile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's own module."""
    monkeypatch.syspath_prepend(str(TOP / "examples"))
    from kafka_copy import reconcile  # type: ignore[import-not-found]

    return reconcile


def record(offset: int, value: bytes | None = b"v", *, partition: int = 0, time: int = 5) -> Any:
    return (partition, offset, b"key", value, (), time)


def test_a_record_that_is_lost_doubled_moved_or_changed_is_told(reconcile: Any) -> None:
    there = [record(0), record(1, None), record(2)]
    for here, times, holds in (
        (there, True, True),
        (there[:2], True, False),
        ([*there, record(3)], True, False),
        ([record(0), record(1, None), record(2, partition=1)], True, False),
        ([record(0), record(1, b""), record(2)], True, False),
        ([record(0), record(1, None), record(2, time=6)], True, False),
        ([record(0), record(1, None), record(2, time=6)], False, True),
    ):
        assert reconcile.same_records("copies", there, here, times=times).holds is holds
    assert not reconcile.same_records("nothing is no proof", [], [], times=True).holds


def test_a_key_in_another_partition_is_told(reconcile: Any) -> None:
    assert reconcile.same_partitions("keys", [record(0), record(1)], [record(7)]).holds
    assert not reconcile.same_partitions("keys", [record(0)], [record(0, partition=1)]).holds
    assert not reconcile.same_partitions(
        "keys", [record(0), record(0, partition=1)], [record(0)]
    ).holds


def test_micro_batches_of_checkpoint_are_compared_with_the_commits(
    reconcile: Any, tmp_path: Path
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    for number, ends in enumerate(({"0": 3, "1": 0}, {"0": 3, "1": 2}, {"0": 9, "1": 2})):
        text = "\n".join(["v1", "{}", json.dumps({"orders": ends})])
        (tmp_path / "offsets" / str(number)).write_text(text)
        (tmp_path / "offsets" / f".{number}.crc").write_bytes(b"\0")
    read = reconcile.batches_read(tmp_path, "orders", {})
    assert read == {0: {0: (0, 3), 1: (0, 0)}, 1: {0: (3, 3), 1: (0, 2)}, 2: {0: (3, 9), 1: (2, 2)}}
    spans = [{0: (0, 3)}, {1: (0, 2)}, {0: (3, 9)}]
    commits = [
        CommitState(10 + n, "spark/q/orders", n, 0, {"orders": span})
        for n, span in enumerate(spans)
    ]
    commits.append(CommitState(20, "spark/another/orders", 0, 0, {"orders": {0: (9, 10)}}))
    written = reconcile.batches_written(commits, reconcile.query_id(tmp_path), "orders")
    assert reconcile.same_batches("batches", read, written).holds
    assert not reconcile.same_batches("one is missing", read, {n: written[n] for n in (0, 1)}).holds
    assert not reconcile.same_batches("one is too many", read, {**written, 3: {0: (9, 10)}}).holds
    assert not reconcile.same_batches("one is doubled", read, {**written, 2: {0: (3, 15)}}).holds
