"""Batch reads of RocketMQ's and DLedger's files, without a JVM."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from dledger.datasource.options.store_options import USED, parse_store_options
from dledger.datasource.stores.store_schema import store_schema
from dledger.datasource.stores.stores import StoreReader
from dledger.errors import ConfigError, CorruptEntry, PathError, UnknownOption
from pyspark_dledger import DefaultSource
from tests.datasource.documented import documented_columns
from tests.datasource.hops import batches_of, rows_of


def reader_of(path: Path, schema: StructType | None = None, /, **options: str) -> StoreReader:
    given = {"path": str(path), "layout": "rocketmq", **options}
    return StoreReader(given, schema or store_schema(given))


def read(path: Path, schema: StructType | None = None, /, **options: str) -> list[dict[str, Any]]:
    """What Spark gets, with every hop pickled."""
    reader = reader_of(path, schema, **options)
    batches = batches_of(reader, reader.partitions())
    expected = to_arrow_schema(reader.schema, timezone="UTC")
    assert all(batch.schema == expected for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def upgraded(tmp_path: Path, stores: Any) -> Path:
    """A store with a plain commit log, and one of DLedger mode behind it."""
    stores.upgraded(tmp_path)
    return tmp_path


def test_a_store_is_a_table_with_a_column_for_every_field(upgraded: Path, stores: Any) -> None:
    rows = read(upgraded)
    assert len(rows) == 100
    first, last = rows[0], rows[-1]
    time = datetime.fromtimestamp(stores.FIRST / 1000, UTC)
    shown = {"topic": "orders", "queueId": 0, "queueOffset": 0, "physicalOffset": 0}
    shown |= {"keys": "k0", "tags": "t0", "transaction": "none"}
    shown |= {"storeTimestamp": time, "storeHost": "10.1.2.3:10911"}
    assert {name: first[name] for name in shown} == shown
    assert dict(first["properties"]) == {"KEYS": "k0", "TAGS": "t0"}
    assert first["body"] == b"000000".ljust(100, b".")
    assert (first["entryIndex"], last["entryIndex"], last["entryTerm"]) == (None, 59, 3)


def test_a_read_is_cut_into_as_many_tasks_as_asked_for_and_gives_the_same(
    upgraded: Path, stores: Any
) -> None:
    assert len(reader_of(upgraded, minPartitions="9").partitions()) >= 9
    slices: Any = reader_of(upgraded, maxBytesPerPartition="1000").partitions()
    assert all(one.range.bytes <= 1000 for one in slices)
    whole = read(upgraded)
    assert read(upgraded, minPartitions="9") == read(upgraded, maxBytesPerPartition="1000") == whole


def test_topics_and_times_are_chosen_by_options(upgraded: Path, stores: Any) -> None:
    rows = read(upgraded)
    assert read(upgraded, subscribe="orders") == [row for row in rows if row["topic"] == "orders"]
    assert read(upgraded, subscribePattern="pay.*", minPartitions="5") == [
        r for r in rows if r["topic"] == "payments"
    ]
    assert read(upgraded, subscribe="%RETRY%nobody") == []
    first, last = stores.FIRST + 10_000, stores.FIRST + 20_000
    chosen = read(upgraded, startingTimestamp=str(first), endingTimestamp=str(last))
    assert chosen == rows[10:20]
    assert read(upgraded, startingOffsets=str(rows[90]["physicalOffset"] - 48)) == rows[90:]
    assert read(upgraded, endingOffsets=str(rows[7]["physicalOffset"])) == rows[:7]


def test_columns_are_chosen_by_a_schema(upgraded: Path, stores: Any) -> None:
    """Spark tells a Python source nothing of which columns it needs."""
    schema = StructType([StructField("body", BinaryType()), StructField("TOPIC", StringType())])
    rows = read(upgraded, schema)
    assert [set(row) for row in rows] == [{"body", "TOPIC"}] * 100
    with pytest.raises(ConfigError, match=r"no column 'queue'.*did you mean 'queueId'"):
        read(upgraded, StructType([StructField("queue", StringType())]))
    with pytest.raises(ConfigError, match="column 'body' is binary, not int"):
        read(upgraded, StructType([StructField("body", IntegerType())]))


def test_entries_of_a_dledger_node_are_a_table(stores: Any) -> None:
    rows = read(stores.GOLDEN / "dledger_clean_n0", layout="dledger")
    assert [row["entryIndex"] for row in rows] == list(range(6))
    assert all(row["size"] == 48 + len(row["body"]) and row["magic"] == 1 for row in rows)


@pytest.mark.parametrize(
    ("header", "options"),
    [("rocketmq", {}), ("dledger", {"layout": "dledger"}), ("damage", {"metadata": "damage"})],
)
def test_the_columns_are_those_that_are_documented(header: str, options: dict[str, str]) -> None:
    schema = store_schema({"path": "/data/store", "layout": "rocketmq", **options})
    columns = [f"{field.name} {field.dataType.simpleString()}" for field in schema]
    assert documented_columns(header) == columns


def damaged(root: Path, stores: Any) -> tuple[Path, list[int]]:
    log = stores.Log(root / "commitlog", 4096)
    places = log.append(stores.some(60))
    for n in (5, 40):
        with log.path(places[n]).open("r+b") as file:
            file.seek(places[n] % 4096 + 100)
            file.write(b"!")
    return log.path(0), places


def test_damage_is_an_error_that_says_where_or_is_left_out_with_a_count(
    tmp_path: Path, stores: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, places = damaged(tmp_path, stores)
    with pytest.raises(CorruptEntry) as caught:
        read(tmp_path)
    assert (
        f"{path}: bytes {places[5]} to {places[6]} of the log are damaged: the body's CRC is"
        in str(caught.value)
    )
    assert "'onDamage' to skip" in str(caught.value)
    with caplog.at_level(logging.WARNING, "dledger.spark"):
        rows = read(tmp_path, onDamage="skip")
    assert [row["physicalOffset"] for row in rows] == [
        p for n, p in enumerate(places) if n not in (5, 40)
    ]
    assert "1 places with" in caplog.text
    assert f"bytes {places[40]} to {places[41]} of the log" in caplog.text


@pytest.mark.parametrize("tasks", ["1", "7"])
def test_all_damage_is_a_table(tmp_path: Path, stores: Any, tasks: str) -> None:
    path, places = damaged(tmp_path, stores)
    (tmp_path / "commitlog" / f"{4096:020d}").rename(tmp_path / "elsewhere")
    rows = read(tmp_path, metadata="damage", minPartitions=tasks)
    assert {(row["file"], row["start"], row["end"], row["kind"]) for row in rows} >= {
        (str(path), places[5], places[6], "damage"),
        (str(tmp_path), 4096, 8192, "damage"),
    }
    assert all(row["bytes"] == row["end"] - row["start"] and row["reason"] for row in rows)
    with pytest.raises(CorruptEntry, match="no file has these bytes"):
        read(tmp_path)


def test_message_with_body_that_does_not_unpack_is_shown_without_it(
    tmp_path: Path, stores: Any
) -> None:
    """Such a body is damage."""
    log = stores.Log(tmp_path / "commitlog", 4096)
    messages = stores.some(3)
    object.__setattr__(messages[1], "sys_flag", 1)
    log.append(messages)
    with pytest.raises(CorruptEntry, match="does not unpack"):
        read(tmp_path)
    rows = read(tmp_path, onDamage="skip")
    assert [row["body"] is None for row in rows] == [False, True, False]
    assert len(read(tmp_path, metadata="damage")) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_file_that_is_deleted_while_it_is_read_is_an_error_or_left_out(
    tmp_path: Path, stores: Any, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(60))
    reader = reader_of(tmp_path, failOnDataLoss=str(fails).lower())
    slices = reader.partitions()
    log.path(0).unlink()
    if fails:
        with pytest.raises(
            PathError, match="0 was deleted while it was read; to go on without it set option"
        ):
            [batch for one in slices for batch in reader.read(one)]
    else:
        rows = [row for one in slices for batch in reader.read(one) for row in batch.to_pylist()]
        assert [row["physicalOffset"] for row in rows] == [
            place for place in places if place >= 4096
        ]
        assert "was deleted while it was read; going on" in caplog.text


def test_an_unfinished_message_at_the_end_is_told_and_is_no_error(
    tmp_path: Path, stores: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(10))
    with log.path(0).open("r+b") as file:
        file.seek(places[-1] + 60)
        file.write(bytes(300))
    assert len(read(tmp_path)) == 9
    assert f"bytes {places[-1]} to" in caplog.text
    assert [row["kind"] for row in read(tmp_path, metadata="damage")] == ["tail"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layout": "kafka"}, ConfigError, "write rocketmq or dledger"),
        ({"onDamge": "skip"}, UnknownOption, "did you mean 'onDamage'"),
        ({"onDamage": "ignore"}, ConfigError, "write fail or skip"),
        (
            {"groupId": "g"},
            ConfigError,
            "'groupId' says nothing to a read of files with 'layout' rocketmq",
        ),
        ({"maxRecordsPerPartition": "5"}, ConfigError, "give 'maxBytesPerPartition'"),
        ({"dledger.request.timeout.ms": "5"}, ConfigError, "says nothing to a read of files"),
        ({"maxBytesPerTrigger": "5m"}, ConfigError, "is for a stream read"),
        ({"startingOffsets": "latest"}, ConfigError, "would read nothing"),
        ({"startingOffsets": "-100"}, ConfigError, "a place in the log in bytes"),
        ({"subscribe": "a", "subscribePattern": "b"}, ConfigError, "both say what to read"),
        ({"layout": "dledger", "subscribe": "a"}, ConfigError, "neither topic nor time"),
        ({"storageOptions": '{"a": 1}'}, ConfigError, "local path"),
        ({"storageOptions": "secret"}, ConfigError, "is no JSON object"),
        ({"metadata": "topics"}, ConfigError, "with 'layout' there is damage"),
        ({"metadata": "damage", "subscribe": "a"}, ConfigError, "says nothing to the table"),
        ({"path": ""}, ConfigError, "which store"),
        ({"path": "/nowhere/store"}, PathError, "does not exist"),
    ],
)
def test_a_read_that_cannot_be_is_refused(
    upgraded: Path, stores: Any, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        read(upgraded, **options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(USED) - {"layout", "topic"}))
def test_every_option_of_such_a_read_changes_what_the_parser_gives(name: str) -> None:
    """No option is documented and not read."""
    numbers = ("startingOffsets", "minPartitions", "maxBytesPerPartition", "maxBytesPerTrigger")
    times = ("startingTimestamp", "endingTimestamp", "endingOffsets", "fetch.maxWaitMs")
    words = {"path": "s3://b/other", "storageOptions": '{"anon": true}', "onDamage": "skip"}
    words |= {"failOnDataLoss": "false", "metadata": "damage"}
    sample = (dict.fromkeys(numbers + times, "5") | words).get(name, "x")
    given = {"path": "s3://b/store", "layout": "rocketmq"}
    assert parse_store_options({**given, name: sample}) != parse_store_options(given)


def test_a_read_of_nothing_has_no_rows(upgraded: Path, stores: Any) -> None:
    assert read(upgraded, startingOffsets="99999999") == []
    assert list(reader_of(upgraded).read(InputPartition(None))) == []


def test_the_format_finds_the_reader_by_the_layout(upgraded: Path, stores: Any) -> None:
    source = DefaultSource({"path": str(upgraded), "layout": "rocketmq"})
    reader = source.reader(schema=source.schema())
    assert sum(b.num_rows for one in reader.partitions() for b in reader.read(one)) == 100
    with pytest.raises(ConfigError, match=r"'layout' is for .* and says nothing to a write"):
        DefaultSource({"path": str(upgraded), "layout": "rocketmq"}).writer(
            schema=source.schema(), overwrite=False
        )
    with pytest.raises(ConfigError, match="give the option 'layout' too"):
        DefaultSource({"path": str(upgraded), "storageOptions": "{}"}).schema()


def test_a_sql_table_of_a_store_keeps_its_options(upgraded: Path, stores: Any) -> None:
    said = {"path": str(upgraded), "layout": "rocketmq", "subscribe": "orders"}
    created = {f"option.{name}": text for name, text in said.items()} | said
    schema = DefaultSource({"provider": "dledger", **created}).schema()
    reader = DefaultSource({}).reader(schema=schema)
    assert {row["topic"] for row in rows_of(reader, reader.partitions())} == {"orders"}
