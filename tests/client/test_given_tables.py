"""Tables and rows of Python through both clients, in a real group: what is written, what is read,
and what is refused with which words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

from dledger import AsyncClient, Client
from dledger.client import Appended
from dledger.errors import (
    ConfigError,
    OffsetOutOfRange,
    SchemaMismatch,
    TopicNotFound,
    TopicRecreated,
)
from dledger.records.columns.partitioner import partition_for
from dledger.testing import InProcessGroup


@dataclass
class Click:
    id: int
    path: list[str]
    score: float | None = None


@dataclass
class LongClick(Click):
    seconds: int = 0


CLICKS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field(
            "path", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False
        ),
        pa.field("score", pa.float64()),
    ]
)
PLACE = ["partition", "offset", "timestamp"]


@pytest.fixture(scope="module")
def group() -> Iterator[InProcessGroup]:
    with InProcessGroup(1) as made:
        yield made


@pytest.fixture
def client(group: InProcessGroup) -> Iterator[Client]:
    with Client(group.bootstrap_servers) as made:
        for info in made.topics():
            made.delete_topic(info.name)
        made.create_topic("clicks", 3, schema=Click, key_column="id")
        made.create_topic("orders", 3)
        yield made


def rows(count: int, first: int = 0) -> pa.Table:
    ids = list(range(first, first + count))
    paths = [[f"p{n}"] * (n % 3) for n in ids]
    return pa.table({"id": ids, "path": paths, "score": [n / 4 for n in ids]})


def of_library(name: str) -> Callable[[pa.Table], Any]:
    """The table as another library has it."""
    module = pytest.importorskip(name)
    return {
        "polars": lambda table: module.from_arrow(table),
        "pandas": lambda table: table.to_pandas(),
        "duckdb": lambda given: module.sql("FROM given"),
    }[name]


GIVEN: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "batch": lambda table: table.to_batches()[0],
    "reader": lambda table: table.to_reader(),
    "dataset": pyarrow.dataset.dataset,
    "scanner": lambda table: pyarrow.dataset.dataset(table).scanner(),
    "dicts": lambda table: table.to_pylist(),
    "columns": lambda table: table.to_pydict(),
    "dataclasses": lambda table: [Click(**row) for row in table.to_pylist()],
    "polars": lambda table: of_library("polars")(table),
    "pandas": lambda table: of_library("pandas")(table),
    "duckdb": lambda table: of_library("duckdb")(table),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_table_of_any_kind_is_appended_and_read_back(client: Client, kind: str) -> None:
    wanted = rows(20)
    done = client.append("clicks", GIVEN[kind](wanted))
    assert sum(part.end - part.start for part in done.parts) == 20
    found = client.table("clicks", columns=["id", "path", "score"])
    assert found.schema == CLICKS
    assert found.sort_by("id").to_pydict() == wanted.to_pydict()
    assert client.topic("clicks").typed
    assert len(client.schemas(client.topic("clicks"))) == 1


def test_rows_go_to_the_partition_of_their_key_and_keep_order(client: Client) -> None:
    client.append("clicks", rows(50))
    client.append("clicks", rows(50))
    table = client.table("clicks")
    assert table.schema.names == [*PLACE, *CLICKS.names]
    for partition in range(3):
        part = table.filter(pa.compute.equal(table["partition"], partition)).to_pydict()
        assert part["offset"] == list(range(len(part["offset"])))
        assert {partition_for(str(key).encode(), 3) for key in part["id"]} == {partition}
        assert part["id"] == 2 * sorted(set(part["id"]))


def test_append_to_one_partition_is_one_entry_and_named_one_counts(client: Client) -> None:
    assert client.append("clicks", [Click(1, [])], partition=2) == Appended("clicks", 2, 0, 1)
    assert client.append("clicks", Click(1, []), partition=2) == Appended("clicks", 2, 1, 2)
    with pytest.raises(ConfigError, match="partitions 0 to 2, not 3"):
        client.append("clicks", [Click(1, [])], partition=3)


def test_large_table_is_cut_and_visible_as_a_whole(client: Client) -> None:
    """Of a stream in which a late row does not fit, no row is there."""
    large = pa.table({"id": list(range(60)), "path": [["x" * 200_000]] * 60})
    client.append("clicks", large, partition=0)
    assert client.end_offsets("clicks")[0] == 60
    assert len([*client.fetch_bodies("clicks", 0, 0, 60)]) > 1
    batches = [
        *large.to_batches(),
        pa.record_batch({"id": pa.array([None], pa.int64()), "path": [["x"]]}),
    ]
    with pytest.raises(SchemaMismatch, match="column 'id' is null"):
        client.append("clicks", pa.RecordBatchReader.from_batches(large.schema, batches))
    assert sum(client.end_offsets("clicks").values()) == 60
    assert client.table("clicks").num_rows == 60


def test_first_table_says_the_columns_of_a_typed_topic(client: Client) -> None:
    client.create_topic("new", type="typed")
    with pytest.raises(ConfigError, match="has no columns yet"):
        client.table("new")
    client.append("new", {"a": [1, 2], "b": ["x", None]})
    assert client.table("new").column("b").to_pylist() == ["x", None]
    with pytest.raises(ConfigError, match="the table has no rows"):
        client.append("new", pa.table({"z": pa.array([], pa.int64())}), evolve=True)
    assert len(client.schemas(client.topic("new"))) == 1


def test_columns_evolve_when_that_is_asked_for(client: Client) -> None:
    client.append("clicks", [Click(1, ["a"])], partition=0)
    longer = [LongClick(2, ["b"], seconds=3)]
    with pytest.raises(SchemaMismatch, match=r"pass evolve=True .*\n(.*\n)+! .*seconds bigint"):
        client.append("clicks", longer)
    reader = client.read("clicks", 0, 0, follow=True)
    assert next(reader).schema == CLICKS
    client.append("clicks", longer, partition=0, evolve=True)
    assert next(reader).to_pylist() == [{"id": 2, "path": ["b"], "score": None, "seconds": 3}]
    client.append("clicks", [Click(3, ["c"])], partition=0)
    assert client.table("clicks", columns=["seconds"]).to_pydict() == {"seconds": [None, 3, None]}


def test_read_gives_columns_and_places_or_json(client: Client) -> None:
    client.append("clicks", rows(4), partition=1)
    (plain,) = client.read("clicks", 1, 1, 3)
    assert plain.schema == CLICKS
    assert plain["id"].to_pylist() == [1, 2]
    (placed,) = client.read("clicks", 1, 1, 3, with_metadata=True)
    assert placed.schema.names == [*PLACE, *CLICKS.names]
    assert (placed["partition"].to_pylist(), placed["offset"].to_pylist()) == ([1, 1], [1, 2])
    assert abs((datetime.now(UTC) - placed["timestamp"][0].as_py()).total_seconds()) < 3600
    (text,) = client.read("clicks", 1, 1, 2, value_format="json")
    assert text["value"].to_pylist() == [b'{"id":1,"path":["p1"],"score":0.25}']
    with pytest.raises(ConfigError, match="value_format is 'avro'"):
        client.read("clicks", 1, 1, value_format="avro")
    client.append("orders", "x", partition=2)
    (raw,) = client.read("orders", 2, 0, with_metadata=True)
    assert raw.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]


def test_place_whose_name_is_taken_begins_with_an_underscore(client: Client) -> None:
    client.create_topic("taken", schema=pa.schema({"Offset": pa.string(), "timestamp": pa.int64()}))
    client.append("taken", {"Offset": ["a"], "timestamp": [7]})
    table = client.table("taken")
    assert table.schema.names == ["partition", "_offset", "_timestamp", "Offset", "timestamp"]
    assert table.select(["_offset", "Offset", "timestamp"]).to_pylist() == [
        {"_offset": 0, "Offset": "a", "timestamp": 7}
    ]


def test_scan_goes_from_place_to_place(client: Client) -> None:
    early, late, never = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))
    for at in range(3):
        client.append("orders", ["a", "b", "c"], partition=at, timestamps=[early, late, late])

    def places(*args: Any, **more: Any) -> list[tuple[int, int]]:
        table = client.scan("orders", *args, **more).read_all()
        return list(zip(*table.select(["partition", "offset"]).to_pydict().values(), strict=True))

    everything = [(at, offset) for at in range(3) for offset in range(3)]
    assert places() == everything
    assert places("latest") == []
    assert places(late) == [(at, offset) for at, offset in everything if offset]
    assert places(early.replace(tzinfo=None), late) == [(at, 0) for at in range(3)]
    assert places(never) == []
    assert places(partitions=[2, 1], columns=["offset", "partition"])[:3] == [
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    assert places({1: 2}, {0: 1}) == [(0, 0), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert places({1: 2}, {1: 2, 0: 0, 2: 0}) == []
    for start, partitions, words in (
        ({1: 9}, None, r"start: .* has the offsets \[0, 3\), not 9"),
        ({9: 0}, None, "partitions 0 to 2, not 9"),
        ("earliest", [7], "partitions 0 to 2, not 7"),
    ):
        with pytest.raises(OffsetOutOfRange, match=words):
            client.table("orders", start, partitions=partitions)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="start is 5: give 'earliest'"):
        client.table("orders", 5)  # type: ignore[arg-type]


def test_selected_columns_may_be_places_alone(client: Client) -> None:
    client.append("clicks", rows(5), partition=0)
    assert client.table("clicks", columns=["offset"]).to_pydict() == {"offset": [0, 1, 2, 3, 4]}
    assert client.table("clicks", {0: 3}, columns=["score", "id"]).to_pydict() == {
        "score": [0.75, 1.0],
        "id": [3, 4],
    }
    assert client.table("clicks", columns=["timestamp"]).num_rows == 5
    with pytest.raises(ConfigError, match=r"no column 'offst' \(did you mean 'offset'\?\)"):
        client.table("clicks", columns=["offst"])


def test_tables_of_records_are_routed_and_copied(client: Client) -> None:
    times = [datetime(2020, 1, 1, tzinfo=UTC), None, None, None]
    table = pa.table(
        {
            "key": ["a", "b", None, "c"],
            "value": ["1", None, "3", "4"],
            "headers": pa.array([[{"key": "h", "value": b"x"}], None, None, None]),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
            "partition": pa.array([None, None, None, 2], pa.int32()),
        }
    )
    client.append("orders", table)
    found = {row["value"]: row for row in client.table("orders").to_pylist()}
    assert found[b"1"]["partition"] == partition_for(b"a", 3)
    assert found[None]["partition"] == partition_for(b"b", 3)
    assert found[b"4"]["partition"] == 2
    assert found[b"1"]["timestamp"] == times[0]
    assert found[b"1"]["headers"] == [{"key": "h", "value": b"x"}]
    client.create_topic("copy", 3)
    client.append("copy", client.scan("orders"))
    assert client.table("copy").equals(client.table("orders"))
    client.append("copy", [{"key": "k", "value": "v", "headers": [("h", b"1")], "partition": 1}])
    assert client.table("copy", partitions=[1]).to_pylist()[-1]["headers"][0]["value"] == b"1"


def test_one_record_has_a_key_and_text_is_utf8(client: Client) -> None:
    done = client.append("orders", "é", key="k")
    assert done.partition == partition_for(b"k", 3)
    assert client.append("orders", b"x", key=b"k").partition == done.partition
    (first, _) = client.table("orders").to_pylist()
    assert (first["key"], first["value"]) == (b"k", "é".encode())
    for values, more in ((["a"], {}), (b"a", {"keys": [b"k"]})):
        with pytest.raises(ConfigError, match="key is that of one value"):
            client.append("orders", values, key=b"k", **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="surrogates not allowed"):
        client.append("orders", "\ud800")
    with pytest.raises(ConfigError, match="headers is for values of bytes"):
        client.append("orders", {"value": ["a"]}, headers=[("a", b"b")])


REFUSED: dict[str, tuple[str, Any, type[Exception], str]] = {
    "other type": (
        "clicks",
        {"id": ["x"], "path": [[]]},
        SchemaMismatch,
        "column 'id' of type int64",
    ),
    "other Arrow type": (
        "clicks",
        pa.table({"id": [1], "path": ["x"]}),
        SchemaMismatch,
        r"does not fit topic 'clicks': cast(.*\n)+! path .*string does not go into array<string>",
    ),
    "missing column": (
        "clicks",
        pa.table({"id": [1]}),
        SchemaMismatch,
        "path .*has no such column",
    ),
    "null": ("clicks", [{"path": []}], SchemaMismatch, "path"),
    "nested null": ("clicks", [{"id": 1, "path": [None]}], SchemaMismatch, r"'path\[\]' is null"),
    "nested null of a table": (
        "clicks",
        pa.Table.from_arrays([[1], [[None]], [None]], schema=CLICKS),
        SchemaMismatch,
        r"'path\[\]' is null",
    ),
    "no rows": ("clicks", pa.table({"id": pa.array([], pa.int64())}), ConfigError, "has no rows"),
    "no topic": ("click", [{"id": 1}], TopicNotFound, r"'click' \(did you mean 'clicks'\?\)"),
    "bytes": ("clicks", b"x", SchemaMismatch, "topic 'clicks' is typed, and its records are rows"),
    "list of bytes": ("clicks", [b"x"], SchemaMismatch, "topic 'clicks' is typed"),
    "rows": ("orders", [Click(1, [])], SchemaMismatch, "keys and values.*not id, path, score"),
    "no value": ("orders", {"key": ["a"]}, SchemaMismatch, "value must be among them"),
    "partition": (
        "orders",
        {"value": ["a"], "partition": [9]},
        ConfigError,
        "has partitions 0 to 2",
    ),
    "partition name": (
        "orders",
        pa.table({"value": ["a"], "partition": ["x"]}),
        ConfigError,
        "column 'partition' has type string",
    ),
    "one row": ("clicks", {"id": 1, "path": ["a"]}, SchemaMismatch, r"one row is \[row\]"),
    "mixed rows": ("clicks", [{"id": 1}, 2], SchemaMismatch, "row 1 is of type int"),
    "mixed classes": (
        "clicks",
        [Click(1, []), LongClick(1, [])],
        SchemaMismatch,
        "row 1 is of type LongClick, where the first one is a Click",
    ),
    "ragged": ("clicks", {"id": [1, 2], "path": [[]]}, SchemaMismatch, "id 2, path 1"),
    "no Arrow type": (
        "clicks",
        pa.table({"id": pa.array([None], pa.month_day_nano_interval())}),
        ConfigError,
        "column 'id' has the Arrow type month_day_nano_interval",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_the_way_out(client: Client, case: str) -> None:
    topic, data, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        client.append(topic, data)
    with pytest.raises(kind, match=words), client.producer(topic) as producer:
        producer.append(data)
    with pytest.raises(kind, match=words), client.transaction("w", 1) as transaction:
        transaction.append(topic, data)
    assert not any(client.end_offsets("clicks").values())
    assert not any(client.end_offsets("orders").values())


def test_producer_and_transaction_take_tables(client: Client) -> None:
    with client.producer("clicks") as producer:
        futures = [producer.append(rows(30)), producer.append([Click(40, [])])]
        assert sum(part.end - part.start for part in futures[0].result().parts) == 30
        assert futures[1].result().partition == partition_for(b"40", 3)
    with client.producer("orders", partition=1) as producer:
        assert producer.append({"value": ["a", "b"]}).result() == Appended("orders", 1, 0, 2)
    with client.producer("orders") as producer:
        keys = ["a", "b", "c", "d"]
        done = producer.append(keys, keys=keys).result()
        assert {part.partition for part in done.parts} == {
            partition_for(key.encode(), 3) for key in keys
        }
        assert producer.append(b"x", key="a").result().partition == partition_for(b"a", 3)
    with client.transaction("w", 1) as transaction:
        transaction.append("clicks", rows(3, first=100))
        with pytest.raises(SchemaMismatch):
            transaction.append("clicks", [{"id": 1, "path": [None]}])
        transaction.append("orders", "é", key="k")
        committed = transaction.commit()
    assert (committed.records, client.table("clicks").num_rows) == (4, 34)


def test_topic_is_created_with_columns_once(client: Client) -> None:
    columns = client.schemas(client.topic("clicks"))
    again = {"if_absent": True, "key_column": "id"}
    client.create_topic("clicks", 3, schema=CLICKS, **again)
    client.create_topic("clicks", 3, schema=rows(1), **again)
    assert client.schemas(client.topic("clicks")) == columns
    with pytest.raises(SchemaMismatch, match="append with evolve=True"):
        client.create_topic("clicks", 3, schema=LongClick, **again)
    with pytest.raises(ConfigError, match="'orders' is one of keys and values"):
        client.create_topic("orders", 3, schema=Click, if_absent=True)
    with pytest.raises(ConfigError, match="key_column and time_column name columns of a schema"):
        client.create_topic("more", key_column="id")
    with pytest.raises(ConfigError, match="the key column 'ID2' is none of the columns"):
        client.create_topic("more", schema=Click, key_column="ID2")
    with pytest.raises(ConfigError, match=r"schema is of type int: give a pyarrow\.Schema"):
        client.create_topic("more", schema=5)
    assert [info.name for info in client.topics()] == ["clicks", "orders"]


def test_time_column_says_the_times_of_rows(client: Client) -> None:
    @dataclass
    class Event:
        at: datetime

    client.create_topic("events", schema=Event, time_column="at")
    times = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    client.append("events", [Event(time) for time in times])
    assert client.table("events", times[1], columns=["timestamp"]).to_pydict() == {
        "timestamp": times[1:]
    }


def test_rows_made_for_a_topic_that_is_gone_are_not_written(
    client: Client, group: InProcessGroup
) -> None:
    client.append("clicks", rows(3))
    with Client(group.bootstrap_servers) as other:
        other.delete_topic("clicks")
        other.create_topic("clicks", schema=pa.schema({"id": pa.string()}))
    with pytest.raises(TopicRecreated, match="append again"):
        client.append("clicks", [Click(1, [])], partition=0)
    client.append("clicks", {"id": ["a"]})
    assert client.table("clicks", columns=["id"]).to_pydict() == {"id": ["a"]}


def test_asyncio_client_does_the_same(client: Client, group: InProcessGroup) -> None:
    async def use() -> None:
        async with AsyncClient(group.bootstrap_servers) as made:
            done = await made.append("clicks", rows(20))
            assert len(done.parts) > 1
            with pytest.raises(SchemaMismatch, match="pass evolve=True"):
                await made.append("clicks", [LongClick(1, [])])
            table = await made.table("clicks", columns=["id"])
            assert sorted(table["id"].to_pylist()) == list(range(20))
            assert sum([batch.num_rows async for batch in made.scan("clicks")]) == 20
            found = [batch async for batch in made.read("clicks", 0, 0, with_metadata=True)]
            assert found[0].schema.names == [*PLACE, *CLICKS.names]
            async with await made.producer("clicks") as producer:
                done = await (await producer.append(rows(30)))
                assert sum(part.end - part.start for part in done.parts) == 30
                with pytest.raises(SchemaMismatch, match="is typed"):
                    await producer.append(b"x")
            async with await made.transaction("async", 1) as transaction:
                await transaction.append("clicks", rows(2))
            done = await made.append("orders", ["a", "b", "c"], keys=["a", "b", "c"])
            assert sum(part.end - part.start for part in done.parts) == 3

    asyncio.run(use())
    assert client.table("clicks").num_rows == 52
