"""Options: one table, case-insensitive, nothing unknown, nothing contradictory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from dledger.config import ClientConfig
from dledger.datasource.options.kafka_options import ADVICE
from dledger.datasource.options.option_table import ALL, OPTIONS, is_for
from dledger.datasource.options.options import need_group, need_topics, parse_options
from dledger.datasource.options.rate_limits import RateLimits
from dledger.datasource.options.settings import spark_name
from dledger.errors import ConfigError, UnknownOption

SERVERS = {"dledger.bootstrap.servers": "a:1"}


def test_options_in_any_case_mean_the_same() -> None:
    given = {"SUBSCRIBE": "a, b", "maxoffsetspertrigger": "7", "failOnDataLoss": "FALSE"}
    options = parse_options(CaseInsensitiveDict(given))
    found = (options.selection.names, options.limits.rows, options.fail_on_data_loss)
    assert found == (("a", "b"), 7, False)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("dledger.requesttimeoutm", "dledger.request.timeout.ms"),
        ("topics", "topic"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, nearest: str) -> None:
    with pytest.raises(UnknownOption, match=f"did you mean '{nearest}'"):
        parse_options({given: "1"})


@pytest.mark.parametrize(
    "name", ["checkpointLocation", "queryName", "provider", "owner", "option.subscribe"]
)
def test_an_option_that_spark_adds_is_tolerated(name: str) -> None:
    assert parse_options({name: "x"}) == parse_options({})


NUMBERS = (
    "replicas", "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions",
    "maxRecordsPerPartition", "maxBytesPerPartition", "fetch.maxWaitMs", "startingEntry",
    "createTopic.partitions", "txnTimeout", "schemaVersion", "filterPushdown",
)  # fmt: skip
VALUES = dict.fromkeys(NUMBERS, "5") | {
    "dledger.bootstrap.servers": "h:1",
    "bootstrap.servers": "h:1",
    "dledger.peers": "n0-h:1",
    "dledger.selfId": "n0",
    "assign": '{"a": [0]}',
    "startingOffsets": "earliest",
    "startingOffsetsByTimestamp": '{"a": {"0": 5}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsets": "-100",
    "endingOffsetsByTimestamp": '{"a": {"0": 5}}',
    "holdRetention": "false",
    "failOnDataLoss": "false",
    "onDamage": "skip",
    "onTopicRecreate": "restart",
    "includeHeaders": "true",
    "includeMetadata": "true",
    "metadata": "commits",
    "createTopic": "false",
    "partitioner": "roundRobin",
    "deliveryGuarantee": "at-least-once",
    "compression": "zstd",
    "onReplayMismatch": "keep",
    "topicType": "typed",
    "schemaEvolution": "add",
    "valueFormat": "json",
}
"""An option -> a value that is not its default; for all others any text will do."""
BESIDE = {
    "dledger.peers": {"dledger.selfId": "n0"},
    "dledger.selfId": {"dledger.peers": "n0-h:1"},
    "startingOffsetsByTimestampStrategy": {"startingTimestamp": "5"},
    "groupId": {"startingOffsets": "committed"},
    "holdRetention": {"groupId": "g"},
    "maxTriggerDelay": {"minOffsetsPerTrigger": "2"},
    "startingEntry": {"metadata": "commits"},
}
"""An option -> what it needs beside it."""


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"dledger.*", "layout", "storageOptions"}))
def test_every_row_of_the_table_changes_what_the_parser_gives(name: str) -> None:
    """No option is documented and not read."""
    beside = BESIDE.get(name, {})
    # some of what it needs cannot be without it
    alone = {} if name in {"groupId", "dledger.peers", "dledger.selfId"} else beside
    assert parse_options({name: VALUES.get(name, "x"), **beside}) != parse_options(alone)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"columns": " , "}, "write the names"),
        ({"columns": "value,key,Value"}, "each once"),
        ({"columns": "value", "includeHeaders": "true"}, "name them there"),
        ({"columns": "value", "includeMetadata": "false"}, "name them there"),
        ({"columns": "value", "metadata": "topics"}, "'columns' is for records"),
        ({"filterPushdown": "true"}, r"load_with_pushdown\(reader, path\)"),
        ({"filterPushdown": "0"}, r"load_with_pushdown\(reader, path\)"),
    ],
)
def test_columns_are_named_once_and_alone(given: dict[str, str], says: str) -> None:
    assert parse_options({"columns": "value, key"}).columns == ("value", "key")
    with pytest.raises(ConfigError, match=says):
        parse_options(given)


@pytest.mark.parametrize("name", [name for name, where in OPTIONS.items() if where != ALL])
@pytest.mark.parametrize("use", ["batch read", "stream read", "write"])
def test_an_option_is_refused_where_it_says_nothing(name: str, use: str) -> None:
    given = {name: VALUES.get(name, "x")}
    if is_for(OPTIONS[name], use):
        check_use(given, use)
    else:
        refusal = f"option '{re.escape(name)}' is for .* says nothing to a {use}"
        with pytest.raises(ConfigError, match=refusal):
            parse_options(given, use)


def check_use(given: Mapping[str, str], use: str) -> None:
    """Whatever else may be missing beside this one option, it is not the use."""
    said = ""
    try:
        parse_options(given, use)
    except ConfigError as error:
        said = str(error)
    assert "says nothing" not in said


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, RateLimits(None, 1 << 30, 0, 900_000)),
        ({"maxOffsetsPerTrigger": "7"}, RateLimits(7, None, 0, 900_000)),
        ({"maxBytesPerTrigger": "none"}, RateLimits(None, None, 0, 900_000)),
        (
            {"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "2k"}
            | {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "1s"},
            RateLimits(7, 2048, 3, 1000),
        ),
    ],
)
def test_limits_of_a_micro_batch(given: dict[str, str], limits: RateLimits) -> None:
    """A batch that nothing limits would be all of a long backlog, so something always does unless
    told otherwise."""
    assert parse_options(given).limits == limits


@pytest.mark.parametrize("name", list(ADVICE))
def test_an_option_of_kafka_is_refused_with_what_to_do(name: str) -> None:
    """The option here is one, and none of Kafka's is guessed to be another one."""
    advice = ADVICE[name]
    known = OPTIONS.keys() | {spark_name(field.name) for field in fields(ClientConfig)}
    assert not advice.here or advice.here in known
    given = name.replace("*", "x")
    for spelled in (given, given.upper()):
        with pytest.raises(UnknownOption) as refusal:
            parse_options({spelled: "secret"})
        says = str(refusal.value)
        assert f"unknown option '{spelled}' of Kafka, {advice}" in says
        assert "did you mean" not in says
        assert "secret" not in says


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kafka.sasl.jaas.config", "write 'dledger.credentials'"),
        ("sasl.jaas.config", "write 'dledger.credentials'"),
        ("ssl.key.password", "drop it: TLS takes PEM files"),
        ("group.id", "write 'groupId'"),
        ("acks", "drop it: a majority's disks acknowledge"),
        ("kafka.of.the.future", "drop it: it is for a client of Kafka"),
    ],
)
def test_an_option_of_kafka_is_known_with_and_without_prefix(name: str, says: str) -> None:
    with pytest.raises(UnknownOption, match=re.escape(says)):
        parse_options({name: "1"})


def test_one_error_names_all_unknown_options() -> None:
    given = {
        "kafka.bootstrap.servers": "a:9092",
        "subscribe": "orders",
        "startingOffset": "earliest",
        "kafka.sasl.jaas.config": "...",
        "dledger.requesttimeoutm": "1",
    }
    with pytest.raises(UnknownOption) as refusal:
        parse_options(given)
    assert str(refusal.value).splitlines() == [
        "4 unknown options; docs/options.md has all of them:",
        "  'kafka.bootstrap.servers' of Kafka, write 'dledger.bootstrap.servers': host:port of "
        "dledger's nodes; or give a path in its place",
        "  'startingOffset' (did you mean 'startingOffsets'?)",
        "  'kafka.sasl.jaas.config' of Kafka, write 'dledger.credentials': a file with user and "
        "password, or a token, and no JAAS text",
        "  'dledger.requesttimeoutm' (did you mean 'dledger.request.timeout.ms'?)",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerTrigger": "lots"}, "whole number"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        (
            {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"},
            "'minOffsetsPerTrigger' is 3, above.*2",
        ),
        ({"maxTriggerDelay": "1m"}, "give that too"),
        ({"minOffsetsPerTrigger": "3", "maxTriggerDelay": "soon"}, "30s, 10m or 2h"),
        ({"maxBytesPerPartition": "none"}, "whole number"),
        ({"onTopicRecreate": "ignore"}, "fail or restart"),
        ({"fetch.maxWaitMs": "long"}, "500ms"),
        ({"startingOffsets": "committed"}, "by whom.*'groupId'"),
        ({"groupId": ""}, "option 'groupId' ''"),
        ({"holdRetention": "true"}, "'holdRetention' is for a consumer group"),
        ({"startingOffsets": "committed", "groupId": "g h"}, "option 'groupId' 'g h'"),
        ({"startingOffsets": "{"}, "earliest, latest, committed"),
        ({"endingOffsets": "soon"}, "option 'endingOffsets' is 'soon'"),
        ({"subscribePattern": "*"}, "option 'subscribePattern'"),
        ({"compression": "gzip"}, "none, lz4 or zstd"),
        ({"partitioner": "random"}, "murmur2, roundRobin or explicit"),
        ({"deliveryGuarantee": "exactly_once"}, "exactly-once or at-least-once"),
        ({"deliveryGuarantee": "at-least-once", "txnId": "x"}, "'txnId' is for transactions"),
        (
            {"deliveryGuarantee": "at-least-once", "txnTimeout": "1h"},
            "'txnTimeout' is for transactions",
        ),
        (SERVERS | {"createTopic.partitions": "3"}, "set 'createTopic' to true"),
        (
            {"createTopic": "false", "createTopic.description": "x"},
            "'createTopic.description' is for",
        ),
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
def test_a_value_that_cannot_be_is_refused_with_what_to_write(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(given)


def test_a_group_alone_is_for_a_stream_and_says_nothing_to_a_batch_read() -> None:
    assert parse_options({"groupId": "g"}, "stream read").group_id == "g"
    with pytest.raises(ConfigError, match="'endingOffsets' to committed"):
        parse_options({"groupId": "g"}, "batch read")


def test_settings_go_to_the_client_or_to_the_group_of_a_path() -> None:
    options = parse_options(
        {
            "path": "/x",
            "dledger.request.timeout.ms": "5s",
            "dledger.flush": "async",
            "dledger.segmentBytes": "1048576",
            "dledger.idle.timeout": "2m",
            "dledger.advertise.host": "box",
            "dledger.disk_full_ratio": "0.5",
        }
    )
    assert options.settings.client == {"request_timeout_ms": 5000}
    assert options.settings.group == {
        "flush": "async",
        "segment_bytes": 1048576,
        "idle_timeout_ms": 120_000,
        "advertise_host": "box",
        "disk_full_ratio": 0.5,
    }


@pytest.mark.parametrize("where", [{"path": "/x"}, {"dledger.bootstrap.servers": "a:1"}])
def test_files_of_tls_are_for_the_client_and_for_the_group_of_a_path(where: dict[str, str]) -> None:
    files = {
        "dledger.tls.ca": "/ca.pem",
        "dledger.tls.certificate": "/own.pem",
        "dledger.tls.key": "/own.key",
    }
    settings = parse_options({**where, **files}).settings
    assert (
        settings.client
        == settings.group
        == {"tls_ca": "/ca.pem", "tls_certificate": "/own.pem", "tls_key": "/own.key"}
    )


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
