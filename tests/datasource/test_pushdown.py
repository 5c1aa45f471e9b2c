"""What filters limit, without a JVM: a plan does for every query that its DataFrame has met."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from dledger.datasource.read.limits import Limits
from dledger.datasource.read.pushdown import MOST_LIMITS, LimitedReader, check_still_enabled
from dledger.datasource.table.schema import RECORD, read_schema
from dledger.errors import ConfigError, OffsetOutOfRange
from tests.datasource.hops import hop, rows_of

MARK = 7
MARKED = Not(EqualTo(("timestampType",), -MARK))
PARTITION, OFFSET, TIMESTAMP = ("partition",), ("offset",), ("timestamp",)
MICROS = pa.timestamp("us", tz="UTC")


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


@pytest.fixture(autouse=True)
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's local directory."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


@pytest.fixture
def log(group: Any) -> Any:
    group.create_topic("t", 3)
    group.create_topic("u")
    for partition in range(3):
        seconds = pa.array([1_000_000 * s for s in (10, 30, 20, 40)], MICROS)
        group.append("t", partition, [b"x"] * 4, timestamp=seconds)
    group.append("u", 0, [b"x"] * 2)
    return group


def reader_of(log: Any, mark: int = MARK, **options: str) -> LimitedReader:
    given = {"dledger.bootstrap.servers": log.address, "subscribe": "t", **options}
    return LimitedReader({**given, "filterPushdown": str(mark)}, read_schema(False))


def planned(reader: LimitedReader, filters: Sequence[Filter]) -> list[tuple[str, int, int, int]]:
    """The slices of a plan, as Spark asks for it in a process of its own."""
    asked = hop(reader)
    assert list(asked.pushFilters(list(filters))) == list(filters), "Spark evaluates them again"
    return [(one.info.name, one.partition, one.start, one.end) for one in asked.partitions()]


WHOLE = [("t", p, 0, 4) for p in range(3)]


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([], WHOLE),
        ([EqualTo(PARTITION, 1)], [("t", 1, 0, 4)]),
        ([EqualNullSafe(PARTITION, 1)], [("t", 1, 0, 4)]),
        ([EqualNullSafe(PARTITION, None)], WHOLE),
        ([In(PARTITION, (0, None, 2))], [("t", 0, 0, 4), ("t", 2, 0, 4)]),
        ([In(PARTITION, (None,))], []),
        ([In(PARTITION, (0, 1)), GreaterThan(PARTITION, 0)], [("t", 1, 0, 4)]),
        ([LessThan(PARTITION, 1)], [("t", 0, 0, 4)]),
        ([EqualTo(PARTITION, 5)], []),
        ([EqualTo(OFFSET, 2)], [("t", p, 2, 3) for p in range(3)]),
        ([In(OFFSET, (1, 3))], [("t", p, 1, 4) for p in range(3)]),
        ([GreaterThan(OFFSET, 1), LessThanOrEqual(OFFSET, 2)], [("t", p, 2, 3) for p in range(3)]),
        ([GreaterThanOrEqual(OFFSET, 1), LessThan(OFFSET, 1)], []),
        ([EqualTo(OFFSET, -1)], []),
        ([GreaterThan(OFFSET, 9)], []),
        ([EqualTo(("topic",), "t")], WHOLE),
        ([EqualTo(("topic",), "u")], []),
        ([GreaterThanOrEqual(TIMESTAMP, at(20))], [("t", p, 1, 4) for p in range(3)]),
        ([GreaterThan(TIMESTAMP, at(30))], [("t", p, 3, 4) for p in range(3)]),
        ([EqualTo(TIMESTAMP, at(20))], [("t", p, 1, 4) for p in range(3)]),
        ([GreaterThan(TIMESTAMP, at(40))], []),
        # the third record is older than the second one, so that no first newer one is the end
        ([LessThan(TIMESTAMP, at(30))], WHOLE),
        ([Not(EqualTo(PARTITION, 1))], WHOLE),
        ([EqualTo(("key",), b"k")], WHOLE),
        ([StringStartsWith(("topic",), "t")], WHOLE),
        ([EqualTo(("other", "partition"), 1)], WHOLE),
        ([EqualTo(PARTITION, 1.0)], WHOLE),
        ([EqualTo(TIMESTAMP, datetime(2024, 1, 1))], WHOLE),  # noqa: DTZ001 (of no zone)
    ],
)
def test_filters_on_a_rows_place_limit_the_plan(
    log: Any, filters: list[Filter], read: list[Any]
) -> None:
    assert planned(reader_of(log), [MARKED, *filters]) == read


def test_filter_on_topic_leaves_other_topics_out(log: Any) -> None:
    reader = reader_of(log, subscribe="t,u")
    assert planned(reader, [MARKED, In(("topic",), ("u", "v"))]) == [("u", 0, 0, 2)]


def test_plan_is_whole_where_filters_come_without_the_mark(log: Any) -> None:
    """They stand above another DataFrame than the marked one, whose queries may have none."""
    for others in ([], [Not(EqualTo(("timestampType",), -8))], [EqualTo(("timestampType",), -7)]):
        assert (
            planned(reader_of(log, mark=len(others) + 20), [*others, EqualTo(OFFSET, 1)]) == WHOLE
        )


def test_plan_does_for_all_filters_that_the_dataframe_has_met(log: Any) -> None:
    reader = reader_of(log)
    assert planned(reader, [MARKED, EqualTo(PARTITION, 0), LessThan(OFFSET, 1)]) == [("t", 0, 0, 1)]
    later = planned(reader, [MARKED, EqualTo(PARTITION, 0), EqualTo(OFFSET, 2)])
    assert later == [("t", 0, 0, 3)]
    assert planned(reader, [MARKED, EqualTo(PARTITION, 2)]) == [("t", 0, 0, 3), ("t", 2, 0, 4)]
    assert planned(
        reader_of(log, mark=8), [Not(EqualNullSafe(("size",), -8)), EqualTo(OFFSET, 3)]
    ) == [("t", p, 3, 4) for p in range(3)], "another DataFrame has met nothing"


def test_dataframe_that_was_read_whole_stays_whole(log: Any) -> None:
    assert planned(reader_of(log), [MARKED]) == WHOLE
    assert planned(reader_of(log), [MARKED, EqualTo(PARTITION, 0)]) == WHOLE


def test_equal_filters_are_met_once_and_many_different_ones_read_all(
    log: Any, session: Path
) -> None:
    for _ in range(2):
        for offset in range(MOST_LIMITS):
            assert planned(
                reader_of(log), [MARKED, EqualTo(OFFSET, -offset), EqualTo(PARTITION, 0)]
            )
    (file,) = session.iterdir()
    assert len(file.read_text().splitlines()) == MOST_LIMITS
    assert planned(reader_of(log), [MARKED, EqualTo(PARTITION, 0), EqualTo(OFFSET, 9)]) == WHOLE


def test_nothing_is_limited_without_a_directory_of_the_session(
    log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for local in ("", "/not/there"):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", local)
        assert planned(reader_of(log), [MARKED, EqualTo(PARTITION, 0)]) == WHOLE


def test_records_that_are_gone_are_told_as_without_filters(log: Any) -> None:
    log.append("t", 0, [b"x"])
    log.expire("t", 0, 4)
    options = {"startingOffsets": '{"t": {"0": 1, "1": 0, "2": 0}}'}
    filters = [MARKED, GreaterThan(OFFSET, 3)]
    with pytest.raises(OffsetOutOfRange, match="t/0 offsets 1 to 3"):
        planned(reader_of(log, **options), filters)
    assert planned(reader_of(log, **options, failOnDataLoss="false"), filters) == [("t", 0, 4, 5)]


def test_tasks_of_a_limited_plan_read_its_rows(log: Any) -> None:
    reader = reader_of(log)
    reader.pushFilters([MARKED, EqualTo(PARTITION, 2), GreaterThan(OFFSET, 2)])
    rows = rows_of(reader, reader.partitions())
    assert [(row["partition"], row["offset"]) for row in rows] == [(2, 3)]


def test_limits_travel_as_json() -> None:
    limits = Limits.of([In(PARTITION, (1, 2)), GreaterThan(OFFSET, 3), EqualTo(("topic",), "t")])
    assert Limits.unpacked(limits.packed()) == limits != Limits()


def test_limits_of_a_typed_topic_are_those_of_its_place() -> None:
    own, place = EqualTo(("offset",), 1), EqualTo(("_record", "offset"), 2)
    assert Limits.of([own, place], RECORD.name) == Limits.of([EqualTo(OFFSET, 2)])


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({}, False),
        ({"spark.sql.execution.id": "1"}, True),
        ({"spark.sql.execution.id": "1", "spark.sql.python.filterPushdown.enabled": "false"}, True),
        ({"spark.sql.execution.id": "1", "spark.sql.python.filterPushdown.enabled": "true"}, False),
    ],
)
def test_task_of_a_query_whose_filters_were_not_asked_for_fails(
    said: dict[str, str], refused: bool
) -> None:
    task: Any = SimpleNamespace(getLocalProperty=said.get)
    check_still_enabled(None)
    if not refused:
        check_still_enabled(task)
        return
    with pytest.raises(ConfigError, match="was turned off under a DataFrame"):
        check_still_enabled(task)
