"""Schemas of typed topics through the client: asked for, kept, changed, and held against what is
appended."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dledger.catalog.topics import schemas as kept
from dledger.client import Client
from dledger.errors import ConfigError, SchemaMismatch, TopicNotFound
from dledger.protocol.messages.catalog_commands import EvolveSchema
from dledger.protocol.messages.client import ExecuteRequest, SchemasRequest
from dledger.records.body.typed import stamped
from dledger.records.columns.types import Atom, Columns, Field

A = Columns((Field("a", Atom("integer")),))
AB = Columns((*A.fields, Field("b", Atom("string"))))


@pytest.fixture
def client(group: Any, fast: dict[str, Any]) -> Any:
    with Client(group.bootstrap, **fast) as made:
        made.create_topic("rows", type="typed")
        made.create_topic("raw")
        yield made


def rows(columns: Columns, version: int, *values: Any) -> pa.RecordBatch:
    schema = stamped(columns, version)
    arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_columns_are_set_changed_and_listed(client: Client) -> None:
    info = client.topic("rows")
    assert client.schemas(info) == []
    assert client.evolve_schema(info, 0, A) == (True, 1, A)
    assert client.evolve_schema(info, 1, AB) == (True, 2, AB)
    assert client.evolve_schema(info, 1, Columns((*A.fields, Field("c", Atom("date"))))) == (
        False,
        2,
        AB,
    )
    assert client.schemas(info) == [A, AB]


def test_a_change_whose_answer_is_lost_is_made_once(client: Client, group: Any) -> None:
    info = client.topic("rows")
    group.fault(ExecuteRequest, "lose")
    assert client.evolve_schema(info, 0, A) == (True, 1, A)
    assert len(group.commands(EvolveSchema)) == 2
    assert len(client.schemas(info)) == 1


def test_batch_of_schema_version_is_appended_and_other_kind_is_refused(
    client: Client,
) -> None:
    info = client.topic("rows")
    client.evolve_schema(info, 0, A)
    assert client.append_batch("rows", 0, rows(A, 1, 5)).end == 1
    for topic, batch in ("rows", rows(AB, 2, 5, "x")), ("raw", rows(A, 1, 5)):
        with pytest.raises(SchemaMismatch, match=topic):
            client.append_batch(topic, 0, batch)
    with pytest.raises(SchemaMismatch, match="typed, and its records are rows"):
        client.append("rows", b"v")


def test_many_long_schemas_come_in_several_answers(
    client: Client, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_ANSWER", len(A.text) + len(AB.text) + 10)
    info, columns = client.topic("rows"), A
    versions = [columns]
    client.evolve_schema(info, 0, columns)
    for number in range(4):
        columns = Columns((*columns.fields, Field(f"f{number}", Atom("long"))))
        client.evolve_schema(info, len(versions), columns)
        versions.append(columns)
    assert client.schemas(info) == versions
    asked = [message.after for message in group.requests(SchemasRequest)]
    assert len(asked) > 2
    assert asked == sorted(asked)


def test_rows_read_as_keys_and_json_and_are_found_by_their_event_time(client: Client) -> None:
    columns = Columns(
        (Field("id", Atom("long")), Field("at", Atom("timestamp"))), key="id", time="at"
    )
    info = client.topic("rows")
    client.evolve_schema(info, 0, columns)
    schema = stamped(columns, 1)
    arrays = [pa.array([7, 8, 9]), pa.array([10, 20, 30], schema.field("at").type)]
    client.append_batch("rows", 0, pa.RecordBatch.from_arrays(arrays, schema=schema))
    (batch,) = client.read("rows", 0, 1, value_format="json")
    assert batch.column("key").to_pylist() == [b"8", b"9"]
    assert batch.column("offset").to_pylist() == [1, 2]
    assert batch.column("value")[0].as_py() == b'{"id":8,"at":"1970-01-01T00:00:00.000020Z"}'
    assert [client.offsets_for_times("rows", time)[0] for time in (5, 10, 11, 30, 31)] == [
        0,
        0,
        1,
        2,
        -1,
    ]


def test_a_raw_topic_has_no_schemas(client: Client) -> None:
    with pytest.raises(ConfigError, match="type='typed'"):
        client.evolve_schema(client.topic("raw"), 0, A)
    with pytest.raises(TopicNotFound):
        client.schemas(client.topic("raw"))
