"""Options: one table, case-insensitive, nothing unknown, nothing contradictory."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from dledger.datasource.options import OPTIONS, need_group, need_topics, parse_options
from dledger.errors import ConfigError, UnknownOption

SERVERS = {"dledger.bootstrap.servers": "a:1"}


def test_options_in_any_case_mean_the_same() -> None:
    given = CaseInsensitiveDict({"SUBSCRIBE": "a, b", "maxoffsetspertrigger": "7", "failOnDataLoss": "FALSE"})
    options = parse_options(given)
    assert (options.topics, options.max_offsets, options.fail_on_data_loss) == (("a", "b"), 7, False)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.bootstrap.servers", "dledger.bootstrap.servers"),
        ("dledger.requesttimeoutm", "dledger.request.timeout.ms"),
        ("topics", "topic"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, nearest: str) -> None:
    with pytest.raises(UnknownOption, match=f"did you mean '{nearest}'"):
        parse_options({given: "1"})


@pytest.mark.parametrize("name", ["checkpointLocation", "queryName", "provider", "owner", "option.subscribe"])
def test_an_option_that_spark_adds_is_tolerated(name: str) -> None:
    assert parse_options({name: "x"}) == parse_options({})


def test_every_row_of_the_table_is_taken_by_the_parser() -> None:
    """No option is documented and not read."""
    samples = {"replicas": "3", "dledger.peers": "n0-h:1", "dledger.selfId": "n0", "startingOffsets": "earliest",
               "endingOffsets": "latest", "maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1k", "minPartitions": "1",
               "failOnDataLoss": "false", "includeHeaders": "true", "createTopic": "false",
               "createTopic.partitions": "2", "compression": "zstd", "txnTimeout": "5m", "bootstrap.servers": "h:1",
               "dledger.bootstrap.servers": "h:1"}  # fmt: skip
    for option in OPTIONS:
        if "*" in option.name:
            continue
        given = {option.name: samples.get(option.name, "x")}
        if option.name in {"dledger.peers", "dledger.selfId"}:
            given = {"dledger.peers": "n0-h:1", "dledger.selfId": "n0"}
        assert parse_options(given) != parse_options({}), option.name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerTrigger": "lots"}, "whole number"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"startingOffsets": "{"}, "earliest, latest or offsets"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "offset -3"),
        ({"startingOffsets": '{"a": {}}'}, "no partition"),
        ({"startingOffsets": "[1]"}, "earliest, latest or offsets"),
        ({"compression": "gzip"}, "none, lz4 or zstd"),
        ({"dledger.bootstrap.servers": "nowhere"}, "host:port"),
        ({"path": "s3://bucket/log"}, "local disk"),
        ({"subscribe": "a b"}, "topic 'a b'"),
        ({"subscribe": "a", "topic": "b"}, "needs only one"),
        ({"dledger.peers": "n0-h:1"}, "go together"),
        ({"dledger.peers": "n0-h:1", "dledger.selfId": "n7"}, "none of the peers"),
        ({"dledger.bootstrap.servers": "a:1", "bootstrap.servers": "b:1"}, "give one"),
        ({"txnTimeout": "soon"}, "30s, 10m or 2h"),
        (SERVERS | {"dledger.flush": "async"}, "has its settings already"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_to_write(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(given)


def test_settings_go_to_the_client_or_to_the_group_of_a_path() -> None:
    options = parse_options(
        {"path": "/x", "dledger.request.timeout.ms": "5s", "dledger.flush": "async", "dledger.segmentBytes": "1048576",
         "dledger.idle.timeout": "2m", "dledger.advertise.host": "box", "dledger.disk_full_ratio": "0.5"}
    )
    assert options.settings.client == {"request_timeout_ms": 5000}
    assert options.settings.group == {
        "flush": "async", "segment_bytes": 1048576, "idle_timeout_ms": 120_000, "advertise_host": "box",
        "disk_full_ratio": 0.5,
    }  # fmt: skip


def test_a_path_is_made_absolute_and_loses_its_file_scheme() -> None:
    assert parse_options({"path": "file:///data/log"}).path == "/data/log"
    assert parse_options({"path": "data/log"}).path.startswith("/")


def test_the_topic_is_created_for_a_path_and_not_for_servers_unless_asked() -> None:
    assert parse_options({"path": "/x"}).create_topic
    assert not parse_options(SERVERS).create_topic
    assert parse_options(SERVERS | {"createTopic": "true"}).create_topic


def test_no_group_or_two_are_refused() -> None:
    with pytest.raises(ConfigError, match="which log"):
        need_group(parse_options({}))
    with pytest.raises(ConfigError, match="only one"):
        need_group(parse_options(SERVERS | {"path": "/x"}))


def test_no_topic_to_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="subscribe"):
        need_topics(parse_options(SERVERS))
