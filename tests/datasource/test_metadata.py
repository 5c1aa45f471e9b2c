"""The log's own tables, without Spark's JVM: each hop pickled as Spark does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger import Client, EmbeddedGroup
from dledger.datasource.options.option_table import BATCH, STREAM, TABLES, WRITE
from dledger.datasource.options.options import parse_options
from dledger.datasource.read.metadata import MetadataReader, parse_writer
from dledger.datasource.read.reader import LogReader
from dledger.datasource.table.metadata_schema import SCHEMAS, metadata_schema
from dledger.datasource.table.schema import read_schema, table_schema
from dledger.errors import ConfigError, UnknownOption
from dledger.records.columns.types import Atom, Columns, Field
from pyspark_dledger import DefaultSource
from tests.datasource.documented import documented_columns
from tests.datasource.hops import hop, rows_of


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    path = tmp_path_factory.mktemp("metadata") / "log"
    with EmbeddedGroup(path, replicas=1, segment_bytes=16 << 20, index_file_bytes=1 << 20) as group:
        yield group


@pytest.fixture(scope="module")
def client(running: EmbeddedGroup) -> Iterator[Client]:
    """A log with two topics, three transactions and a group."""
    with Client(running.bootstrap_servers) as client:
        client.create_topic("orders", 2, description="of the shop")
        client.create_topic("empty")
        info = client.create_topic("clicks", type="typed")
        client.evolve_schema(
            info, 0, Columns((Field("id", Atom("long"), nullable=False), Field("at", Atom("date"))))
        )
        client.append("orders", [b"x"] * 5, partition=0, timestamps=1_700_000_000_000_000)
        query = "11111111-2222-3333-4444-555555555555"
        for writer, sequence in (
            (f"spark/{query}", 0),
            (f"spark/{query}/orders/late", 1),
            ("txn/nightly", 0),
        ):
            with client.transaction(writer, sequence) as one:
                one.append("orders", [b"y"] * 3, partition=0)
                one.append("orders", [b"z"] * 2, partition=1)
        client.commit_offsets("readers", {"orders": {0: 4, 1: 6}})
        yield client


def rows(running: EmbeddedGroup, table: str, **options: str) -> list[dict[str, Any]]:
    given = {"dledger.bootstrap.servers": running.bootstrap_servers, "metadata": table, **options}
    source = hop(DefaultSource(given))
    reader = hop(source.reader(source.schema()))
    return rows_of(reader, reader.partitions())


def has(row: dict[str, Any], **wanted: Any) -> bool:
    """Whether these columns of a row are so."""
    return {name: row[name] for name in wanted} == wanted


def test_topics_are_listed_with_what_they_hold(running: EmbeddedGroup, client: Client) -> None:
    clicks, empty, orders = rows(running, "topics")
    assert has(clicks, type="typed", schemaVersion=1, schema="id bigint not null, at date")
    assert has(orders, type="raw", schemaVersion=None, schema=None)
    assert has(orders, topic="orders", logId=client.topic("orders").log_id, partitions=2)
    assert has(orders, records=20, bytes=sum(one.bytes for one in client.partitions()))
    assert orders["settings"] == [("description", "of the shop")]
    assert orders["newest"].year >= 2026
    assert has(empty, topic="empty", records=0, bytes=0, newest=None)


def test_partitions_are_listed_with_their_offsets(running: EmbeddedGroup, client: Client) -> None:
    names = ("topic", "partition", "beginOffset", "endOffset", "records")
    found = [tuple(row[name] for name in names) for row in rows(running, "partitions")]
    assert found[1:] == [("empty", 0, 0, 0, 0), ("orders", 0, 0, 14, 14), ("orders", 1, 0, 6, 6)]


def test_groups_are_listed_with_their_lag(running: EmbeddedGroup, client: Client) -> None:
    behind, level = rows(running, "groups")
    assert has(behind, groupId="readers", topic="orders", partition=0)
    assert has(behind, offset=4, endOffset=14, lag=10)
    assert behind["lagBytes"] > 0
    assert behind["lagSeconds"] > 3600, "its first unread batch has records of years ago"
    assert behind["committed"] is not None
    assert has(level, lag=0, lagBytes=0, lagSeconds=0.0, holdsRetention=False)


def test_commits_reconcile_with_the_offsets_of_their_topics(
    running: EmbeddedGroup, client: Client
) -> None:
    stream, batch, job = rows(running, "commits")
    query = "11111111-2222-3333-4444-555555555555"
    assert has(stream, source="stream", query=query, batch=0, txnId=None, rows=5)
    assert has(batch, source="foreachBatch", query=query, batch=1, txnId="late", rows=5)
    assert has(job, source="batch", query=None, batch=None, txnId="nightly", rows=5)
    assert stream["ranges"] == [
        {"topic": "orders", "partition": 0, "startOffset": 5, "endOffset": 8},
        {"topic": "orders", "partition": 1, "startOffset": 0, "endOffset": 2},
    ]
    assert stream["topics"] == ["orders"]
    ends = {one["partition"]: one["endOffset"] for one in job["ranges"]}
    assert ends == client.end_offsets("orders")
    assert rows(running, "commits", startingEntry=str(job["entryIndex"])) == [job]


def test_entries_are_listed_from_the_first_or_from_the_end(
    running: EmbeddedGroup, client: Client
) -> None:
    entries = rows(running, "entries")
    assert [one["entryIndex"] for one in entries] == list(range(len(entries)))
    assert sum(one["records"] for one in entries) == 20
    plain = next(one for one in entries if one["kind"] == "data")
    assert has(plain, topic="orders", partition=0, offset=0, command=None)
    assert "CommitProgress" in {one["command"] for one in entries}
    assert rows(running, "entries", startingEntry="-2") == entries[-2:]
    assert rows(running, "entries", startingEntry="-9999") == entries


def test_nodes_are_listed_with_how_they_are(running: EmbeddedGroup, client: Client) -> None:
    (node,) = rows(running, "nodes")
    assert has(node, node="n0", role="LEADER", error=None, diskLevel="OK")
    assert node["address"] == running.bootstrap_servers
    assert node["endIndex"] >= node["committedIndex"] > 0
    assert (node["member"], node["rack"]) == ("VOTER", None)
    client.upgrade_group()
    client.label_member("n0", rack="east")
    assert has(rows(running, "nodes")[0], member="VOTER", rack="east")


def test_a_table_of_sql_is_one_of_these_too(running: EmbeddedGroup, client: Client) -> None:
    """Spark gives CREATE TABLE the options, and later reads nothing but the columns that it then
    got."""
    said = {
        "option.metadata": "partitions",
        "option.dledger.bootstrap.servers": running.bootstrap_servers,
    }
    columns = DefaultSource({"provider": "dledger", "owner": "me", **said}).schema()
    reader = hop(DefaultSource({}).reader(columns))
    assert rows_of(reader, reader.partitions()) == rows(running, "partitions")


def test_metadata_tables_have_columns_and_unknown_name_is_refused() -> None:
    """The error names the nearest table."""
    assert tuple(SCHEMAS) == TABLES
    for table in TABLES:
        assert table_schema({"metadata": table}) == metadata_schema(table)
        created = table_schema(
            {"option.metadata": table, "provider": "dledger", "my.property": "1"}
        )
        assert created.simpleString() == metadata_schema(table).simpleString()
    with pytest.raises(ConfigError, match=r"did you mean 'topics'.*partitions.*or entries"):
        table_schema({"metadata": "topcis"})
    with pytest.raises(ConfigError, match="did you mean 'topics'"):
        table_schema({"option.metadata": "topcis", "provider": "dledger"})
    with pytest.raises(UnknownOption, match="metadata"):
        parse_options({"metdata": "topics"})


@pytest.mark.parametrize(
    ("given", "use", "message"),
    [
        ({"subscribe": "orders"}, BATCH, r"'subscribe' is for records.*\.where"),
        ({"topic": "orders"}, BATCH, "'topic' is for records"),
        ({"startingOffsets": "earliest"}, BATCH, "'startingOffsets' is for records"),
        ({}, STREAM, "says nothing to a stream read"),
        ({}, WRITE, "says nothing to a write"),
        ({"startingEntry": "5"}, BATCH, "for 'metadata' commits or entries"),
        ({"metadata": "commits", "startingEntry": "first"}, BATCH, "write an entry's index"),
    ],
)
def test_an_option_that_says_nothing_to_such_a_table_is_refused(
    given: dict[str, str], use: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({"path": "/log", "metadata": "topics", **given}, use)


def test_a_schema_of_the_users_own_is_refused(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "metadata": "nodes"}
    with pytest.raises(ConfigError, match=r"leave \.schema"):
        MetadataReader(given, read_schema(False))
    assert isinstance(DefaultSource(given).reader(metadata_schema("nodes")), MetadataReader)
    plain = DefaultSource({"path": str(tmp_path), "subscribe": "t"})
    assert isinstance(plain.reader(plain.schema()), LogReader)


@pytest.mark.parametrize("writer", ["somebody", "spark/", "job", "other/5f0f6c1e-8a54-4d0e", ""])
def test_a_writer_of_another_program_is_a_client(writer: str) -> None:
    assert parse_writer(writer, 7) == dict.fromkeys(("query", "batch", "txnId", "repeat")) | {
        "source": "client"
    }


@pytest.mark.parametrize(
    ("writer", "source", "txn_id", "repeat"),
    [
        ("spark/q/orders", "stream", None, "nothing"),
        ("spark/q", "stream", None, "nothing"),
        ("spark/q/orders/", "foreachBatch", None, "nothing"),
        ("spark/q/orders/late", "foreachBatch", "late", "nothing"),
        ("txn/load/orders", "batch", "load", "nothing"),
        ("txn/load", "batch", "load", "nothing"),
        ("job/4", "batch", None, "again"),
    ],
)
def test_a_writers_name_says_which_write_it_was(
    writer: str, source: str, txn_id: str | None, repeat: str
) -> None:
    """Names of this release, and of the ones before it."""
    query, batch = ("q", 7) if writer.startswith("spark/") else (None, None)
    assert parse_writer(writer, 7) == {
        "source": source, "query": query, "batch": batch, "txnId": txn_id, "repeat": repeat,
    }  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_are_those_that_are_documented(table: str) -> None:
    columns = [f"{field.name} {field.dataType.simpleString()}" for field in metadata_schema(table)]
    assert columns == SCHEMAS[table].split(", ")
    assert documented_columns(table) == columns
