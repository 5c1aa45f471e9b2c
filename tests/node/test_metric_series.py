"""Series by topic and consumer group: how many there are at most, and that none goes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.node.access.traffic import MOST_NAMES
from dledger.node.meters import BOUNDS_S, Histogram, Meters, Served
from dledger.node.monitoring.exposition import Exposition
from dledger.node.monitoring.families import (
    FAMILIES,
    MOST_GROUPS,
    MOST_SERIES,
    MOST_TOPICS,
    OTHER,
)
from dledger.node.monitoring.series import Counted, Named
from dledger.node.monitoring.topics import LagSeries, TopicSeries
from dledger.node.monitoring.values import buckets_of, of_meters
from dledger.protocol.messages.catalog_commands import CommitOffsets, CreateTopic
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import decode_header
from tests.node.bodies import body

FIXED = 700
"""Series of a node that has no topic, at most: `test_node_has_few_series_without_topics`."""


def filled(topics: int, *, first: int = 0) -> Catalog:
    """So many topics of three records each, and a consumer group for each that has read one."""
    catalog = Catalog(MemoryTables())
    index = 0
    for number in range(first, first + topics):
        made = catalog.apply_command(
            index, CreateTopic(name=f"t{number}", partitions=1, log_id=f"{number}")
        )
        assert made.code is Code.SUCCESS
        topic_id = catalog.topic(f"t{number}").topic_id
        header = decode_header(body(topic_id, count=3))
        catalog.apply_data(index + 1, index * 100, 50, header, 0)
        commit = CommitOffsets(consumer_group=f"g{number}", offsets={f"t{number}": {0: 1}})
        catalog.apply_command(index + 2, commit)
        index += 3
    return catalog


def test_topics_and_groups_beyond_the_most_are_summed_as_other() -> None:
    count = max(MOST_TOPICS, MOST_GROUPS) + 100
    catalog = filled(count)
    served = {catalog.topic(f"t{count - 1}").topic_id: Served(9, 900)}
    series = TopicSeries().series(catalog, served) | LagSeries(lambda: 0.0).series(catalog)
    assert sum(map(len, series.values())) <= MOST_SERIES - FIXED
    for name, values in series.items():
        most = MOST_TOPICS if "topic" in name else MOST_GROUPS
        assert len(values) == most + 1, name
    assert series["dledger_topic_records_total"][OTHER] == 3 * (count - MOST_TOPICS)
    assert series["dledger_topic_bytes_total"][OTHER] == 50 * (count - MOST_TOPICS)
    assert series["dledger_topic_read_records_total"][OTHER] == 9
    assert series["dledger_consumer_group_lag_records"][OTHER] == 2 * (count - MOST_GROUPS)
    assert series["dledger_topic_records_total"]["t0"] == 3


def test_node_has_few_series_without_topics() -> None:
    """With every code refused that there is."""
    meters = Meters()
    for code in Code:
        meters.refused[code] += 1
    text, _ = Exposition(lambda: of_meters(meters)).text("")
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    by_principal = sum(one.label == "principal" for one in FAMILIES.values())
    assert len(lines) + by_principal * (MOST_NAMES + 1) + 100 < FIXED


def test_topic_with_the_name_of_the_others_is_among_them() -> None:
    assert Named(5).own({OTHER: 1, "a": 1}) == {"a"}


def test_sum_of_the_others_never_falls() -> None:
    """A counter that goes back is taken for one that began anew, by which a rate is far too
    high."""
    counted = Counted(Named(1))
    assert counted.series({"a": 5, "b": 7, "c": 2}) == {"a": 5, OTHER: 9}
    assert counted.series({"a": 6, "b": 8}) == {"a": 6, OTHER: 10}
    # b was among the others, and stays there although there is a place
    assert counted.series({"b": 9, "d": 1}) == {"d": 1, OTHER: 11}
    assert counted.series({"e": 4}) == {"e": 4, OTHER: 11}


def test_histogram_has_each_duration_in_its_bucket() -> None:
    histogram = Histogram()
    histogram.observe(BOUNDS_S[0])
    histogram.observe(0.3, 10)
    histogram.observe(99.0)
    buckets, total = buckets_of(histogram)
    assert total == BOUNDS_S[0] + 3.0 + 99.0
    by_end = dict(buckets)
    assert (by_end[str(BOUNDS_S[0])], by_end["0.25"], by_end["0.5"]) == (1, 1, 11)
    assert (by_end["10.0"], by_end["+Inf"]) == (11, 12)


def test_dictionary_that_grows_while_it_is_read_is_read_again() -> None:
    from dledger.node.monitoring.monitor import _steady

    tries: list[int] = []

    def read() -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return {"a": SimpleNamespace()}

    assert _steady(read).keys() == {"a"}
