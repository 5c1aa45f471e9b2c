"""Series by topic and consumer group: how many there are at most, and that none goes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import core, exposition, parser
from prometheus_client.openmetrics import parser as openmetrics_parser

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
from dledger.node.monitoring.values import Values, buckets_of, of_meters
from dledger.protocol.messages.catalog_commands import CommitOffsets, CreateTopic
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import decode_header
from tests.node.bodies import body

FIXED = 700
"""Series of a node that has no topic, at most: `test_node_has_few_series_without_topics`."""

TEXT = "text/plain"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
PARSERS: dict[str, Any] = {TEXT: parser, OPENMETRICS: openmetrics_parser}
AWKWARD = (
    OTHER, "", '"', "\\", "\n", "\\n", "\\\\", '\\"', "\\\n", 'a"} 1\n', "a\n# EOF\n",
    "# TYPE x gauge", "{a=b,c}", "ü, 名 and \u2028", " ", "\t",
)  # fmt: skip
NUMBERS = (0, 1, 0.1, 1e-9, 123456.75, 999_999, 1_000_000, 123_456_789.25, 2**53 - 1, 1e16, 1e300)


def awkward() -> Values:
    """A value of each metric, and of those with a label one by each awkward one."""
    found: Values = {}
    for at, family in enumerate(FAMILIES.values()):
        numbers = [float(NUMBERS[(at + more) % len(NUMBERS)]) for more in range(len(AWKWARD))]
        if family.label:
            found[family.name] = dict(zip(AWKWARD, numbers, strict=True))
        elif family.kind == "histogram":
            found[family.name] = Histogram()
        else:
            found[family.name] = numbers[0]
    return found


def metrics_of(values: Values) -> list[core.Metric]:
    """The same for the library's encoder."""
    found: list[core.Metric] = []
    for name, value in values.items():
        family = FAMILIES[name]
        if isinstance(value, Histogram):
            made = core.HistogramMetricFamily(name, family.help)
            made.add_metric((), *buckets_of(value))
            found.append(made)
            continue
        kinds = {"gauge": core.GaugeMetricFamily, "counter": core.CounterMetricFamily}
        one = kinds[family.kind](name, family.help, labels=[family.label] if family.label else [])
        if isinstance(value, dict):
            for label, number in value.items():
                one.add_metric([label], number)
        else:
            one.add_metric([], value)
        found.append(one)
    return found


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


@pytest.mark.parametrize("accept", PARSERS)
def test_page_says_what_the_library_would_say_whatever_a_label_has(accept: str) -> None:
    values = awkward()
    encoder, content_type = exposition.choose_encoder(accept)
    theirs = encoder(SimpleNamespace(collect=lambda: metrics_of(values)))
    page, kind = Exposition(lambda: values).text(accept)
    assert kind == content_type
    parse = PARSERS[accept].text_string_to_metric_families
    # those of the process are the library's own, and change meanwhile
    found = [one for one in parse(page.decode()) if one.name.startswith("dledger_")]
    assert found == list(parse(theirs.decode()))
    topics = next(one for one in found if one.name.startswith("dledger_topic_bytes"))
    assert [sample.labels["topic"] for sample in topics.samples] == [*AWKWARD]


@pytest.mark.parametrize("accept", PARSERS)
def test_page_ends_once_in_openmetrics_alone(accept: str) -> None:
    page, _ = Exposition(awkward).text(accept)
    lines = page.decode().split("\n")
    ends = [at for at, line in enumerate(lines) if line == "# EOF"]
    assert ends == ([len(lines) - 2] if accept == OPENMETRICS else [])
    assert page.endswith(b"\n")


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
