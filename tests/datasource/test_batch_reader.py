"""Batch reads without a JVM."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from dledger.datasource.read.reader import LogReader
from dledger.datasource.table.schema import read_schema
from dledger.errors import ConfigError, OffsetOutOfRange, TopicNotFound
from tests.datasource.hops import batches_of, rows_of


@pytest.fixture
def log(group: Any) -> Any:
    group.create_topic("t", 2)
    group.append("t", 0, [b"a", b"b", b"c"])
    group.append("t", 1, [b"d"])
    return group


def reader_of(log: Any, **options: str) -> LogReader:
    given = {"dledger.bootstrap.servers": log.address, "subscribe": "t", **options}
    return LogReader(given, read_schema(False))


def read(log: Any, **options: str) -> list[bytes]:
    reader = reader_of(log, **options)
    return [row["value"] for row in rows_of(reader, reader.partitions())]


def test_a_batch_reads_every_partition_from_first_to_last(log: Any) -> None:
    assert read(log) == [b"a", b"b", b"c", b"d"]


def test_a_batch_reads_between_the_offsets_it_is_given(log: Any) -> None:
    assert read(
        log, startingOffsets='{"t": {"0": 1, "1": -1}}', endingOffsets='{"t": {"0": 2, "1": -1}}'
    ) == [b"b"]


def test_the_tasks_of_a_batch_are_for_the_group_that_planned_them(log: Any) -> None:
    partitions: Any = reader_of(log).partitions()
    assert {one.address.group_id for one in partitions} == {"A"}


def test_a_batch_is_fixed_when_it_is_planned(log: Any) -> None:
    reader = reader_of(log)
    slices = reader.partitions()
    log.append("t", 0, [b"late"])
    assert sum(batch.num_rows for one in slices for batch in reader.read(one)) == 4


def test_a_read_is_cut_into_as_many_tasks_as_asked_for(log: Any) -> None:
    assert len(reader_of(log, minPartitions="4").partitions()) == 4
    assert read(log, minPartitions="4") == [b"a", b"b", b"c", b"d"]


def test_many_partitions_with_little_to_read_share_tasks_and_arrow_batches(
    log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.datasource.read.planning.MANY_TASKS", 2)
    log.create_topic("many", 7)
    for partition in range(7):
        log.append("many", partition, [f"{partition} {number}".encode() for number in range(3)])
    reader = reader_of(log, subscribe="many,t")
    found = [batches_of(reader, [one]) for one in reader.partitions()]
    assert [len(batches) for batches in found] == [1, 1]
    rows = [row for batches in found for row in batches[0].to_pylist()]
    assert [(r["topic"], r["partition"], r["offset"], r["value"]) for r in rows[:21]] == [
        ("many", p, offset, f"{p} {offset}".encode()) for p in range(7) for offset in range(3)
    ]
    assert [row["value"] for row in rows[21:]] == [b"a", b"b", b"c", b"d"]


def test_empty_read_has_no_tasks_and_bare_spark_partition_has_no_rows(
    log: Any,
) -> None:
    log.create_topic("empty")
    reader = reader_of(log, subscribe="empty")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"subscribe": "missing"},
            TopicNotFound,
            "topic 'missing' does not exist.*topics there: t",
        ),
        (
            {"startingOffsets": '{"t": {"0": 9, "1": 0}}'},
            OffsetOutOfRange,
            "offsets from 0 up to, not including, 3",
        ),
        (
            {
                "startingOffsets": '{"t": {"0": 2, "1": 0}}',
                "endingOffsets": '{"t": {"0": 1, "1": 1}}',
            },
            OffsetOutOfRange,
            "from offset 2 to 1",
        ),
        ({"startingOffsets": "latest"}, ConfigError, "earliest or JSON"),
        ({"endingOffsets": "earliest"}, ConfigError, "latest or JSON"),
    ],
)
def test_a_read_that_cannot_be_is_refused(
    log: Any, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(log, **options)


def test_offsets_that_are_no_longer_kept_are_an_error_or_skipped(log: Any) -> None:
    log.append("t", 0, [b"e"])
    log.expire("t", 0, 3)
    start = '{"t": {"0": 1, "1": 1}}'
    with pytest.raises(OffsetOutOfRange, match="t/0 offsets 1 to 2"):
        read(log, startingOffsets=start)
    assert read(log, startingOffsets=start, failOnDataLoss="false") == [b"e"]


def test_package_that_spark_discovers_loads_nothing_of_log_on_import() -> None:
    """One such package that fails to import disables the discovery of all Python sources."""
    code = (
        "import sys, pyspark_dledger; print(sorted(m for m in sys.modules if m[:5] in "
        "('dledg', 'numpy')))"
    )
    loaded, before = (
        subprocess.check_output([sys.executable, "-c", code.replace("pyspark_dledger", module)])
        for module in ("pyspark_dledger", "pyspark.sql.datasource")
    )
    assert loaded == before
