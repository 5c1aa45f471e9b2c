"""Offsets by time, the reset of groups, typed topics of a schema, and the end of a path's group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.testing import InProcessGroup
from tests.cli.commands import SMALL, out, refusal

MINUTE = 60_000_000
BEGIN = 1_700_000_000_000_000


@pytest.fixture
def orders(named_log: InProcessGroup) -> Client:
    """A topic of two partitions: ten records, a minute apart, and three at once."""
    client = named_log.client()
    for name in ("orders", "payments"):
        client.create_topic(name, 2)
        times = [BEGIN + MINUTE * at for at in range(10)]
        client.append(name, [b"x"] * 10, partition=0, timestamps=times)
        client.append(name, [b"x"] * 3, partition=1, timestamps=BEGIN)
    return client


@pytest.fixture(autouse=True)
def empty(named_log: InProcessGroup) -> None:
    client = named_log.client()
    for info in client.topics():
        client.delete_topic(info.name)
    for group in client.groups():
        client.delete_group(group)


def offsets(words: str) -> list[int]:
    return [row["offset"] for row in json.loads(out(f"get-offsets {words} --json"))]


def test_offsets_of_topics_by_place_and_time(orders: Client) -> None:
    assert offsets("orders") == [10, 3]
    assert offsets("") == [10, 3, 10, 3]
    assert offsets("orders --time earliest") == [0, 0]
    assert offsets("orders --at -2") == [8, 1]
    assert offsets("orders --at 2023-11-14T22:16:20Z") == [3, 3]
    assert offsets("orders --at @1700000180000") == [3, 3]
    assert offsets("orders --at -1h") == [10, 3]
    assert out("get-offsets orders").splitlines()[-1].split() == ["orders", "1", "3"]
    assert "there is no topic 'order' (did you mean 'orders'?)" in refusal("get-offsets order")
    assert "the time zone is missing" in refusal("get-offsets orders --at 2023-11-14T22:16:20")


def plan(words: str) -> list[tuple[str, int, int]]:
    rows = json.loads(out(f"groups reset {words} --json"))
    return [(row["topic"], row["partition"], row["new_offset"]) for row in rows]


def test_reset_shows_and_only_execute_does_it(orders: Client) -> None:
    orders.commit_offsets("readers", {"orders": {0: 4, 1: 1}})
    said = out("groups reset readers --to earliest")
    assert said.splitlines()[-1].split() == ["orders", "1", "1", "0", "3"]
    assert orders.group("readers").offsets == {"orders": {0: 4, 1: 1}}
    assert "group readers goes on there" in out("groups reset readers --to earliest --execute")
    assert orders.group("readers").offsets == {"orders": {0: 0, 1: 0}}


def test_reset_goes_to_ends_offsets_times_and_shifts(orders: Client) -> None:
    orders.commit_offsets("readers", {"orders": {0: 4, 1: 1}})
    wanted = {
        "--to latest": (10, 3),
        "--to 7": (7, 3),  # an offset behind the end is the end
        "--to -2": (8, 1),
        "--to 2023-11-14T22:16:20Z": (3, 3),
        "--to current": (4, 1),
        "--shift 2": (6, 3),
        "--shift -2": (2, 0),
    }
    for words, (first, second) in wanted.items():
        rows = [("orders", 0, first), ("orders", 1, second)]
        assert plan(f"readers {words}") == rows, words
    assert plan("readers --to 5 --topic orders:0") == [("orders", 0, 5)]
    both = "--topic payments --topic orders:1"
    assert [row[:2] for row in plan(f"readers --to latest {both}")] == [
        ("orders", 1), ("payments", 0), ("payments", 1),
    ]  # fmt: skip
    assert orders.group("readers").offsets == {"orders": {0: 4, 1: 1}}


def test_a_plan_goes_out_and_in(orders: Client, tmp_path: Path) -> None:
    orders.commit_offsets("readers", {"orders": {0: 4, 1: 1}})
    file = tmp_path / "plan.csv"
    file.write_text(out("groups reset readers --to current --export"))
    assert file.read_text() == "orders,0,4\norders,1,1\n"
    out("groups reset readers --to latest --execute")
    out(f"groups reset readers --from-file {file} --execute")
    out(f"groups reset others --from-file {file} --execute")
    assert orders.group("readers").offsets == orders.group("others").offsets
    assert orders.group("others").offsets == {"orders": {0: 4, 1: 1}}
    file.write_text("orders,0,4\norders,x,1\n")
    said = refusal(f"groups reset readers --from-file {file}")
    assert f"--from-file {file}: line 2 is 'orders,x,1': write topic,partition,offset" in said
    file.write_text("orders,7,4\n")
    assert "has partitions 0..1, not 7" in refusal(f"groups reset readers --from-file {file}")
    assert "No such file" in refusal(f"groups reset readers --from-file {file}.gone")


def test_reset_of_what_is_not_there_names_what_is(orders: Client) -> None:
    orders.commit_offsets("readers", {"orders": {0: 4}})
    said = refusal("groups reset reader --to earliest")
    assert "there is no group 'reader' (did you mean 'readers'?); there are: readers" in said
    assert "a new one needs --topic" in said
    assert "(did you mean 'orders'?)" in refusal("groups reset readers --to latest --topic order")
    assert "write them as in orders:0,1" in refusal("groups reset g --to latest --topic orders:2")
    assert "--to soon: write earliest" in refusal("groups reset readers --to soon")
    assert "give one" in refusal("groups reset readers --topic orders --from-file x")
    out("groups reset new --to latest --topic orders:1 --execute")
    assert orders.group("new").offsets == {"orders": {1: 3}}


def test_reset_of_a_group_with_members_is_refused(orders: Client) -> None:
    with orders.consumer("workers", ["orders"]) as consumer:
        consumer.poll(20)
        said = refusal("groups reset workers --topic orders --to latest --execute")
        assert "'workers' has 1 members" in said
        assert "end them" in said
        assert not consumer.committed()


def test_names_of_commands_are_groups_behind_list(orders: Client) -> None:
    orders.commit_offsets("reset", {"orders": {0: 4}})
    assert "reset" in out("groups list")
    (row,) = json.loads(out("groups list reset --json"))
    assert (row["offset"], row["lag"]) == (4, 6)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id bigint not null, at timestamp", ["id bigint not null", "at timestamp"]),
        ("`a b` STRING, t array<map<string,int>>", ["a b string", "t array<map<string,int>>"]),
        ("s struct<x: decimal(10,2), y date not null>", [
            "s struct<x:decimal(10,2),y:date not null>",
        ]),
    ],
)  # fmt: skip
def test_typed_topic_is_made_of_columns(
    named_log: InProcessGroup, text: str, columns: list[str]
) -> None:
    out(f'topics create made --from-schema "{text}"')
    client = named_log.client()
    assert [str(one) for one in client.schemas(client.topic("made"))[0].fields] == columns
    out(f'topics create made --from-schema "{text}" --if-absent')
    said = refusal("topics create made --from-schema 'x int' --if-absent")
    assert "topic 'made' is there with other columns" in said


def test_typed_topic_is_made_of_a_json_schema_and_of_sparks(
    named_log: InProcessGroup, tmp_path: Path
) -> None:
    file = tmp_path / "clicks.json"
    properties = {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "raw": {"type": ["string", "null"], "contentEncoding": "base64"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}},
        "more": {"type": "object", "additionalProperties": {"type": ["boolean", "null"]}},
    }
    file.write_text(json.dumps({"properties": properties, "required": ["id", "raw"]}))
    out(f"topics create clicks --from-schema {file} --key id --time at")
    client = named_log.client()
    columns = client.schemas(client.topic("clicks"))[0]
    assert (columns.key, columns.time) == ("id", "at")
    assert [str(one) for one in columns.fields] == [
        "id bigint not null",
        "at timestamp",
        "raw binary",
        "tags array<string>",
        "where struct<x:double>",
        "more map<string,boolean>",
    ]
    file.write_text(columns.text)
    out(f"topics create again --from-schema {file}")
    assert client.schemas(client.topic("again"))[0] == columns


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("'id bigit'", "column 'id' has the type 'bigit', which there is not (did you mean 'bigi"),
        ("'id bigint x int'", "'x' stands where a comma belongs; write columns as in 'id bigint"),
        ("'id array<int'", "'>' is missing before 'the end'"),
        ("'id int, '", "the name of a column is missing"),
        ("'id int, ID int'", "columns 'id' and 'ID' have one name to Spark: rename one"),
        ("'id int' --key x", "the key column 'x' is none of the columns, id"),
        ("nowhere.json", "--from-schema nowhere.json: No such file"),
    ],
)
def test_schema_that_cannot_be_is_named(named_log: InProcessGroup, schema: str, said: str) -> None:
    assert said in refusal(f"topics create wrong --from-schema {schema}")
    assert not named_log.client().topics()


def test_json_that_is_no_schema_is_named(named_log: InProcessGroup, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, said in (
        ("{", "is no JSON"),
        ("[]", "is neither a JSON Schema (an object with properties) nor the JSON of Spark's"),
        ('{"properties": {"a": {"oneOf": []}}}', "property 'a' has no one type that a column can"),
        ('{"properties": {"a": {"type": "array"}}}', "property 'a', items has no one type"),
    ):
        file.write_text(text)
        found = refusal(f"topics create wrong --from-schema {file}")
        assert str(file) in found
        assert said in found
    assert "name columns of --from-schema" in refusal("topics create wrong --key a")


@pytest.mark.cluster
def test_stop_ends_a_paths_nodes_unless_a_program_uses_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with EmbeddedGroup(path, replicas=1, **SMALL) as group:
        said = refusal(f"stop {path}")
        assert f"{path} is in use by process " in said
        assert "end it first, or say --force" in said
        assert group.nodes["n0"].pid
        assert out(f"stop {path} --force") == f"{path}: n0 stopped\n"
        assert group.nodes["n0"].pid is None
    assert out(f"stop {path}") == f"{path} did not run\n"
    assert "there is no group in this directory" in refusal(f"stop {tmp_path}")
