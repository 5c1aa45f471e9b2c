"""Filters that limit what is read, with a real Spark: each trap of it, and any filters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dledger import Client
from dledger.errors import ConfigError
from dledger.spark import load_with_pushdown

pytestmark = pytest.mark.spark

SETTING = "spark.sql.python.filterPushdown.enabled"
START_US = 1_700_000_000_000_000
STEP_US = 1_000_000
ROWS = 6
"""Of each of two partitions."""


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


def fill(client: Client, topic: str) -> None:
    """Two partitions, each of entries of one record, whose times do not only grow."""
    client.create_topic(topic, partitions=2)
    for partition in range(2):
        for number in (0, 1, 4, 2, 3, 5):
            client.append(
                topic,
                [b"%d" % number],
                partition=partition,
                keys=[b"k%d" % (number % 2)],
                timestamps=START_US + number * STEP_US,
            )


def load(table: Any, topic: str, **options: Any) -> DataFrame:
    return load_with_pushdown(table.spark.read.options(subscribe=topic, **options), table.path)


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.collect())


ONE_EACH = {"maxRecordsPerPartition": 1}


def tasks(frame: DataFrame) -> int:
    """Of its plan; as many as records, where each task reads one."""
    return frame.rdd.getNumPartitions()


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    fill(client, topic)
    return topic


def test_filters_limit_the_tasks_of_a_read(table: Any, filled: str) -> None:
    for filters, expected in {
        "partition = 1": 6,
        "partition = 1 AND offset > 3": 2,
        "offset BETWEEN 1 AND 2": 4,
        "offset IN (0, 1)": 4,
        "timestamp >= timestamp_micros(1700000005000000)": 2,
        "topic = 'other'": 1,  # the one that Spark makes of none
        "key = 'k1'": 12,
        "partition = 1 OR offset = 2": 12,
    }.items():
        frame = load(table, filled, **ONE_EACH).where(filters)
        assert tasks(frame) == expected, filters


def test_each_query_over_a_dataframe_gets_its_own_rows(table: Any, filled: str) -> None:
    """Spark keeps the plan of the query before, which has two rows."""
    frame = load(table, filled, **ONE_EACH)
    few = frame.where("offset > 4")
    assert few.count() == 2
    assert tasks(few) == 2
    assert frame.count() == 12
    assert frame.where("offset % 2 = 0").count() == 6
    assert frame.where("offset < 1").count() == 2


def test_each_place_of_a_dataframe_in_one_query_gets_its_own_rows(table: Any, filled: str) -> None:
    low, high = ("offset < 1", "offset > 4")
    frame = load(table, filled)
    both = frame.where(low).union(frame.where(high))
    assert places(both) == [(0, 0), (0, 5), (1, 0), (1, 5)]
    frame = load(table, filled)
    assert frame.where(low).union(frame).count() == 14
    frame = load(table, filled)
    joined = frame.where(low).alias("a").join(frame.alias("b"), "partition")
    assert joined.count() == 12


def test_views_and_caches_of_a_dataframe_give_right_rows(
    spark: SparkSession, table: Any, filled: str
) -> None:
    view = filled.replace("-", "_") + "_limited"
    load(table, filled).createOrReplaceTempView(view)
    try:
        assert spark.sql(f"SELECT * FROM {view} WHERE offset = 0").count() == 2
        assert spark.sql(f"SELECT * FROM {view}").count() == 12
        query = f"SELECT 1 FROM {view} WHERE offset = (SELECT max(offset) FROM {view})"
        assert spark.sql(query).count() == 2
    finally:
        spark.catalog.dropTempView(view)
    frame = load(table, filled)
    kept = frame.where("partition = 0").cache()
    try:
        assert (kept.count(), frame.count(), kept.where("offset = 1").count()) == (6, 12, 1)
    finally:
        kept.unpersist()


def test_plan_made_before_another_query_still_does_for_its_own(table: Any, filled: str) -> None:
    """Spark asks for a plan when it optimizes a query, and reads by it when the query runs."""
    frame = load(table, filled)
    first = frame.where("offset = 0")
    first.explain()
    assert places(frame.where("offset = 5")) == [(0, 5), (1, 5)]
    assert places(first) == [(0, 0), (1, 0)]


def test_query_that_hides_the_mark_reads_all_and_is_right(table: Any, filled: str) -> None:
    """Spark puts the value of an equality into the mark, which falls away."""
    frame = load(table, filled, **ONE_EACH).where("timestampType = 0 AND offset = 5")
    assert places(frame) == [(0, 5), (1, 5)]
    assert tasks(frame) == 12


def test_setting_that_is_off_is_an_error_not_wrong_rows(
    spark: SparkSession, table: Any, filled: str
) -> None:
    frame = load(table, filled)
    assert frame.where("offset = 0").count() == 2
    spark.conf.set(SETTING, "false")
    with pytest.raises(PySparkException, match="was turned off under a DataFrame"):
        frame.count()
    with pytest.raises(PySparkException, match=f"DATA_SOURCE_PUSHDOWN_DISABLED.*{SETTING}"):
        load(table, filled).count()


def test_records_that_come_later_are_of_later_queries(
    client: Client, table: Any, filled: str
) -> None:
    frame = load(table, filled)
    assert frame.where("offset >= 5").count() == 2
    client.append(filled, [b"late"], partition=0)
    assert frame.where("offset >= 4").count() == 5


def test_typed_topic_is_limited_by_the_place_of_its_rows(
    spark: SparkSession, table: Any, topic: str
) -> None:
    frame = spark.range(0, 8, 1, 1).selectExpr("id AS offset")
    table.write(frame, topic)
    found = load(table, topic, includeMetadata="true", **ONE_EACH).where(
        "_record.offset >= 6 AND offset < 7"
    )
    assert [row.offset for row in found.collect()] == [6]
    assert tasks(found) == 2
    with pytest.raises(ConfigError, match="with a typed topic set option 'includeMetadata'"):
        load(table, topic, columns="value", valueFormat="json")


def numbers(column: str, least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    compared = st.builds(
        lambda sign, n: f"{column} {sign} {n}",
        st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "<>"]),
        number,
    )
    named = st.lists(number, min_size=1, max_size=3).map(
        lambda found: f"{column} IN ({', '.join(map(str, found))})"
    )
    return compared | named


TIMES = st.builds(
    lambda sign, n: f"timestamp {sign} timestamp_micros({START_US + n * STEP_US // 2})",
    st.sampled_from(["=", "<", "<=", ">", ">="]),
    st.integers(-1, 2 * ROWS + 1),
)
FILTERS = st.recursive(
    numbers("partition", -1, 2)
    | numbers("offset", -1, ROWS + 1)
    | TIMES
    | st.sampled_from(["key = 'k1'", "key >= 'k1'", "offset % 2 = 0", "key IS NULL"]),
    lambda some: (
        st.builds("({} AND {})".format, some, some)
        | st.builds("({} OR {})".format, some, some)
        | some.map("NOT ({})".format)
    ),
    max_leaves=4,
)


def test_any_filters_give_the_rows_that_they_give_without_the_option(
    table: Any, filled: str
) -> None:
    plain = table.read(filled).cache()
    shared = load(table, filled)

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(FILTERS, FILTERS)
    def equal(one: str, other: str) -> None:
        ways = [
            plain.where(one),
            load(table, filled).where(one),
            shared.where(one),
            plain.where(other),
            shared.where(other),
        ]
        marked = [way.selectExpr(f"{n} AS way", "*") for n, way in enumerate(ways)]
        rows = reduce(DataFrame.union, marked).collect()
        found = [sorted((r.partition, r.offset) for r in rows if r.way == n) for n in range(5)]
        assert found[0] == found[1] == found[2]
        assert found[3] == found[4]

    try:
        equal()
    finally:
        plain.unpersist()
