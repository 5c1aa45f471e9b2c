"""Typed topics without Spark's JVM: what is written as it is comes back so, whatever became of the
columns since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Not
from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructField, StructType

from dledger.datasource.read.pushdown import LimitedReader
from dledger.datasource.read.reader import LogReader
from dledger.datasource.read.reading import schema_of_table
from dledger.datasource.table.column_text import columns
from dledger.datasource.table.schema import read_schema
from dledger.datasource.table.typed import columns_of, spark_schema
from dledger.datasource.write.sink_task import Task
from dledger.datasource.write.writer import BatchWriter
from dledger.errors import ConfigError, SchemaMismatch, TopicNotFound
from dledger.records.body.typed import arrow_schema
from dledger.records.columns.types import Columns
from dledger.streaming.reader import LogStreamReader
from dledger.streaming.writer import LogStreamWriter
from tests.datasource.hops import batches_of, hop
from tests.datasource.spark_writes import Writes
from tests.streaming.stream_engine import Engine


def frame(text: str) -> StructType:
    """``id bigint not null, name string``."""
    schema = columns(text.replace(" not null", ""))
    for field, said in zip(schema, text.split(", "), strict=True):
        field.nullable = not said.endswith(" not null")
    return schema


def arrow(columns: str, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """What Spark gives a task of these rows."""
    schema = arrow_schema(columns_of(frame(columns)))
    return iter([pa.RecordBatch.from_pylist(rows, schema=schema)])


class Topic(Writes):
    """Writes frames to a group and reads them, as Spark does, with every hop pickled."""

    def write(self, columns: str, rows: list[dict[str, Any]], **options: str) -> None:
        writer = BatchWriter(self.options(**options), frame(columns), overwrite=False)
        writer.commit([hop(writer).write(arrow(columns, rows))])

    def evolves(self, columns: str) -> BatchWriter:
        return BatchWriter(self.options(schemaEvolution="add"), frame(columns), overwrite=False)

    def reading(self, **options: str) -> dict[str, str]:
        return {"dledger.bootstrap.servers": self.group.address, "subscribe": "t", **options}

    def schema(self, **options: str) -> str:
        found = schema_of_table(self.reading(**options))
        return ", ".join(
            f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' not null'}"
            for f in found
        )

    def read(self, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
        given = self.reading(**options)
        wanted = schema or schema_of_table(given)
        reader = LogReader(given, wanted)
        batches = batches_of(reader, reader.partitions())
        for batch in batches:
            assert batch.schema.names == wanted.names
            batch.validate(full=True)
        return [row for batch in batches for row in batch.to_pylist()]

    def versions(self) -> list[Columns]:
        return self.group.schemas(self.group.topic("t"))  # type: ignore[no-any-return]


@pytest.fixture
def topic(group: Any, monkeypatch: pytest.MonkeyPatch) -> Topic:
    return Topic(group, monkeypatch)


def test_frame_of_any_columns_makes_typed_topic_and_keeps_its_schema(
    topic: Topic,
) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    topic.write("id bigint not null, name string", rows)
    assert topic.group.topic("t").typed
    assert topic.schema() == "id bigint not null, name string"
    assert topic.read() == rows


def test_key_value_frame_makes_raw_topic_unless_typed_is_requested(
    topic: Topic,
) -> None:
    topic.write("key string, value string", [{"key": "k", "value": "v"}])
    assert not topic.group.topic("t").typed
    topic.group.delete_topic("t")
    topic.write("key string, value string", [{"key": "k", "value": "v"}], topicType="typed")
    assert topic.group.topic("t").typed
    topic.write("value string, key string", [{"key": "k", "value": "w"}])
    assert topic.read() == [{"key": "k", "value": "v"}, {"key": "k", "value": "w"}], (
        "the topic knows that it is"
    )


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id bigint", {}, "'id'.*cannot be written"),
        ("id bigint", {"topicType": "typed"}, "'topicType' is typed, but topic 't' is raw"),
        ("value string", {"keyColumn": "value"}, "'keyColumn' is for typed topics"),
    ],
)
def test_a_raw_topic_stays_one(
    topic: Topic, columns: str, options: dict[str, str], message: str
) -> None:
    topic.group.create_topic("t")
    with pytest.raises(ConfigError, match=message):
        topic.write(columns, [], **options)


def test_key_value_frame_of_wrong_types_makes_no_typed_topic_by_mistake(
    topic: Topic,
) -> None:
    """The topic of the frame is a new one."""
    with pytest.raises(ConfigError, match="'value' is int; it must be a string or binary"):
        topic.write("key string, value int", [])
    assert topic.group.topics() == []


def test_columns_without_topic_or_permission_to_create_it_are_refused(topic: Topic) -> None:
    with pytest.raises(ConfigError, match="which topic"):
        topic.write("id bigint", [], topic="")
    with pytest.raises(TopicNotFound, match="type='typed'"):
        topic.write("id bigint", [], createTopic="false")
    with pytest.raises(ConfigError, match=r"explicit.*keyColumn"):
        topic.write("id bigint", [], partitioner="explicit")


def test_missing_frame_columns_are_null_and_narrower_numbers_fit(
    topic: Topic,
) -> None:
    """The schema of the topic does not change."""
    topic.write("id bigint, name string", [{"id": 1, "name": "a"}])
    topic.write("ID int", [{"ID": 2}])
    topic.write("name string, id bigint", [{"name": "c", "id": 3}])
    assert topic.read() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    assert len(topic.versions()) == 1


def test_new_columns_and_wider_numbers_need_leave_to_change_the_topic(topic: Topic) -> None:
    topic.write("id int, name string", [{"id": 1, "name": "a"}])
    for change in ("id int, note string", "id bigint, name string"):
        way = r"set option 'schemaEvolution' to add[^!]*marked with !\n.*the frame"
        with pytest.raises(SchemaMismatch, match=way):
            topic.write(change, [])
    topic.write(
        "id bigint, note string not null", [{"id": 1 << 40, "note": "n"}], schemaEvolution="add"
    )
    assert topic.schema() == "id bigint, name string, note string"
    assert topic.read() == [
        {"id": 1, "name": "a", "note": None},
        {"id": 1 << 40, "name": None, "note": "n"},
    ]
    topic.write("id int", [{"id": 5}])
    assert topic.read()[-1] == {"id": 5, "name": None, "note": None}


def test_other_schema_difference_is_error_that_shows_both_schemas(
    topic: Topic,
) -> None:
    """The schemas stand side by side and the topic is not changed."""
    topic.write("id bigint not null, at timestamp, n double", [])
    with pytest.raises(SchemaMismatch) as error:
        topic.write("at string, n double", [], schemaEvolution="add")
    lines = [" ".join(line.split()) for line in str(error.value).splitlines()]
    assert "! id bigint not null | - must not be null, and the frame has no such column" in lines
    assert "! at timestamp | at string string does not go into timestamp" in lines
    assert "n double | n double" in lines
    assert len(topic.versions()) == 1


def test_a_null_where_the_topic_allows_none_fails_the_write(topic: Topic) -> None:
    topic.write("id bigint not null", [{"id": 1}])
    topic.write("id bigint", [{"id": 2}])
    with pytest.raises(SchemaMismatch, match="'id' is null in some rows"):
        topic.write("id bigint", [{"id": None}])
    assert [row["id"] for row in topic.read()] == [1, 2]


def test_second_of_two_evolving_writers_adds_to_columns_of_first(
    topic: Topic,
) -> None:
    topic.write("id int", [])
    topic.group.before_evolving = [lambda: topic.evolves("id int, a string")]
    topic.write("id bigint, b string", [{"id": 1, "b": "x"}], schemaEvolution="add")
    assert topic.schema() == "id bigint, a string, b string"
    assert [len(one.fields) for one in topic.versions()] == [1, 2, 3]
    assert topic.read() == [{"id": 1, "a": None, "b": "x"}]


def test_a_second_writer_that_contradicts_the_first_is_told(topic: Topic) -> None:
    topic.write("id int", [])
    topic.group.before_evolving = [lambda: topic.evolves("id int, a string")]
    with pytest.raises(SchemaMismatch, match=r"version 2[^!]*the frame[\s\S]*! a string.*a double"):
        topic.write("id int, a double", [], schemaEvolution="add")


def test_a_transaction_over_a_change_keeps_each_row_under_its_version(topic: Topic) -> None:
    """Tasks of one write may run before and after others change the columns."""
    topic.write("id int", [])
    writer = BatchWriter(topic.options(), frame("id int"), overwrite=False)
    first: Any = writer.write(arrow("id int", [{"id": 1}]))
    topic.write("id bigint, a string", [{"id": 9, "a": "x"}], schemaEvolution="add")
    second: Any = writer.write(arrow("id int", [{"id": 2}]))
    assert first.transaction == second.transaction
    writer.commit([first, second])
    assert topic.read() == [{"id": 9, "a": "x"}, {"id": 1, "a": None}, {"id": 2, "a": None}]


def test_a_reader_may_keep_to_a_version_or_to_some_columns(topic: Topic) -> None:
    topic.write("id int, a string", [{"id": 1, "a": "x"}])
    topic.write(
        "id int, a string, b string", [{"id": 2, "a": "y", "b": "z"}], schemaEvolution="add"
    )
    assert topic.schema(schemaVersion="1") == "id int, a string"
    assert topic.read(schemaVersion="1") == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]
    assert topic.read(frame("b string, id bigint")) == [{"b": None, "id": 1}, {"b": "z", "id": 2}]
    with pytest.raises(ConfigError, match=r"'schemaVersion'.*versions 1 to 2, not 3"):
        topic.schema(schemaVersion="3")
    shown = r"! a string +\| a timestamp +string is not read as timestamp\n[\s\S]*no such column"
    with pytest.raises(SchemaMismatch, match=shown):
        topic.read(frame("a timestamp, c string"))


def test_a_query_goes_on_under_the_columns_that_it_began_with(topic: Topic) -> None:
    """New columns wait for the next start; a number that does not fit is an error and never another
    number."""
    topic.write("id int, a string", [{"id": 1, "a": "x"}])
    given = topic.reading(startingOffsets="earliest")
    query = Engine(LogStreamReader, given, schema_of_table(given))
    query.trigger()
    topic.write("id bigint, b string", [{"id": 2, "b": "y"}], schemaEvolution="add")
    query.trigger()
    assert query.sink == {0: [{"id": 1, "a": "x"}], 1: [{"id": 2, "a": None}]}
    topic.write("id bigint", [{"id": 1 << 40}])
    with pytest.raises(SchemaMismatch, match="column 'id' of type bigint in int"):
        query.trigger()
    query.crash()
    query.schema = schema_of_table(given)
    query.trigger()
    assert [row["id"] for row in query.sink[2]] == [1 << 40]


def test_rows_of_one_key_stay_in_one_partition_as_in_a_raw_topic(topic: Topic) -> None:
    rows = [{"id": i % 7, "n": i} for i in range(100)]
    topic.write("id int, n int", rows, keyColumn="id", **{"createTopic.partitions": "4"})
    raw = [{"key": str(i), "value": str(i)} for i in range(7)]
    topic.write("key string, value string", raw, topic="raw", **{"createTopic.partitions": "4"})
    places: dict[int, set[int]] = {}
    for row in topic.read(includeMetadata="true"):
        places.setdefault(row["id"], set()).add(row["_record"]["partition"])
    expected = {i: {p} for p in range(4) for i in map(int, topic.group.values("raw", p))}
    assert places == expected
    topic.write("n int, id int", [{"n": 100, "id": 3}])
    assert {
        r["_record"]["partition"] for r in topic.read(includeMetadata="true") if r["n"] == 100
    } == expected[3]
    with pytest.raises(SchemaMismatch, match="key column, but the topic's is id"):
        topic.write("id int, n int", [], keyColumn="n")


@pytest.mark.parametrize("options", [{}, {"includeMetadata": "true"}, {"valueFormat": "json"}])
def test_partitions_sharing_a_task_are_read_under_columns_of_the_read(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    parts = {"keyColumn": "id", "createTopic.partitions": "4"}
    topic.write("id int, a string", [{"id": i, "a": "x"} for i in range(30)], **parts)
    topic.write(
        "id bigint, b string", [{"id": i, "b": "y"} for i in range(30, 60)], schemaEvolution="add"
    )
    schema = read_schema(False) if "valueFormat" in options else None
    rows = topic.read(schema, **options)
    monkeypatch.setattr("dledger.datasource.read.planning.MANY_TASKS", 1)
    assert len(LogReader(topic.reading(), schema_of_table(topic.reading())).partitions()) == 1
    assert topic.read(schema, **options) == rows
    assert len(rows) == 60


def test_event_times_are_the_records_times_and_places_can_be_seen(topic: Topic) -> None:
    rows = [{"at": 5_000_000, "n": 1}, {"at": None, "n": 2}]
    topic.write("at timestamp, n int", rows, timeColumn="at")
    first, second = (row["_record"] for row in topic.read(includeMetadata="true"))
    assert (first["topic"], first["partition"], first["offset"]) == ("t", 0, 0)
    assert first["timestamp"].second == 5
    assert second["offset"] == 1
    assert second["timestamp"] > first["timestamp"]
    assert topic.schema(includeMetadata="true").endswith(
        "_record struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "term:int,entryIndex:bigint>"
    )


def test_filters_limit_a_typed_topic_by_the_place_of_its_rows(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    topic.write("offset int, a string", [{"offset": n, "a": "x"} for n in range(4)])
    given = topic.reading(filterPushdown="7", includeMetadata="true")
    reader = LimitedReader(given, schema_of_table(given))
    mark, own = Not(EqualTo(("_record", "term"), -7)), EqualTo(("offset",), 0)
    reader.pushFilters([mark, own, EqualTo(("_record", "offset"), 2)])
    partitions: Any = reader.partitions()
    assert [(one.start, one.end) for one in partitions] == [(2, 3)]
    given = topic.reading(filterPushdown="7")
    with pytest.raises(ConfigError, match="only with option 'includeMetadata'"):
        LimitedReader(given, schema_of_table(given))


def test_option_columns_names_columns_of_a_typed_topic(topic: Topic) -> None:
    topic.write("id int, a string", [{"id": 1, "a": "x"}])
    assert topic.schema(columns="A") == "a string"
    assert topic.read(columns="a") == [{"a": "x"}]
    assert topic.read(columns("value binary, offset bigint"), valueFormat="json") == [
        {"value": b'{"id":1,"a":"x"}', "offset": 0}
    ]
    (row,) = topic.read(columns="id, _record")
    assert (row["id"], row["_record"]["offset"]) == (1, 0)
    with pytest.raises(ConfigError, match=r"'b'.*there are id, a, _record"):
        topic.schema(columns="b")
    with pytest.raises(ConfigError, match="last column"):
        topic.read(columns="_record, id")
    with pytest.raises(TopicNotFound, match="nowhere"):
        topic.schema(columns="id", subscribe="nowhere")


def test_a_typed_topic_reads_as_keys_and_values_for_who_wants_them(topic: Topic) -> None:
    topic.write(
        "id int, at timestamp", [{"id": 7, "at": 5_000_000}], keyColumn="id", timeColumn="at"
    )
    topic.write("id int, s string", [{"id": 8, "s": 'é"'}], schemaEvolution="add")
    assert topic.schema(valueFormat="json").startswith("key binary, value binary, topic string")
    for given in ({"valueFormat": "json"}, {"includeHeaders": "true", "valueFormat": "json"}):
        rows = topic.read(read_schema("includeHeaders" in given), **given)
        assert [(r["key"], r["value"].decode(), r["offset"]) for r in rows] == [
            (b"7", '{"id":7,"at":"1970-01-01T00:00:05.000000Z"}', 0),
            (b"8", '{"id":8,"s":"é\\""}', 1),
        ]
        assert rows[0]["timestamp"].second == 5


def test_topics_of_one_shape_are_read_together_and_others_only_as_json(topic: Topic) -> None:
    topic.write("id int", [{"id": 1}])
    topic.write("id int", [{"id": 2}], topic="u")
    topic.write("x int", [{"x": 3}], topic="v")
    topic.write("value string", [{"value": "4"}], topic="raw")
    assert sorted(r["id"] for r in topic.read(subscribe="t,u")) == [1, 2]
    with pytest.raises(ConfigError, match=r"have other columns.*one by one"):
        topic.schema(subscribe="t,v")
    with pytest.raises(ConfigError, match="'raw' is raw and 't' typed"):
        topic.schema(subscribe="t,raw")
    rows = topic.read(subscribe="t,u,v,raw", valueFormat="json")
    assert sorted(r["value"] for r in rows) == [b"4", b'{"id":1}', b'{"id":2}', b'{"x":3}']


def test_at_least_once_writes_typed_rows_too(topic: Topic) -> None:
    topic.write("id int", [{"id": 1}], deliveryGuarantee="at-least-once")
    assert topic.read() == [{"id": 1}]


def test_stream_writes_batch_once_also_when_rerun_after_schema_change(
    topic: Topic,
) -> None:
    topic.task = Task(0, 0, "q", "r", 5)
    for text in ("id int", "id int, a string"):
        writer = LogStreamWriter(topic.options(schemaEvolution="add"), frame(text), overwrite=False)
        writer.commit([hop(writer).write(arrow(text, [{"id": 1, "a": None}]))], 5)
    assert topic.read() == [{"id": 1, "a": None}]


def test_a_topic_without_columns_yet_says_so(topic: Topic) -> None:
    topic.group.create_topic("t", type="typed")
    with pytest.raises(ConfigError, match="typed and has no columns yet"):
        topic.schema()


def test_notes_that_spark_made_for_a_query_are_not_kept_and_a_comment_is() -> None:
    schema = frame("id int")
    schema.fields[0].metadata = {
        "spark.watermarkDelayMs": 5,
        "__autoGeneratedAlias": "true",
        "comment": "c",
    }
    assert spark_schema(columns_of(schema)).fields[0].metadata == {"comment": "c"}


def test_columns_come_back_as_sparks_own_schema() -> None:
    inner = MapType(
        StringType(), ArrayType(DecimalType(9, 2), containsNull=False), valueContainsNull=False
    )
    schema = StructType([StructField("m", inner, nullable=False)])
    assert spark_schema(columns_of(schema)) == schema
