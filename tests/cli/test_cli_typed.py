"""Typed topics from a shell: made of tables, and their rows in and out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dledger.testing import InProcessGroup
from tests.cli.commands import out, raw, refusal

ROWS: list[dict[str, Any]] = [
    {"id": 1, "page": 'a, "b"', "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "tags": ["x"]},
    {"id": 2, "page": None, "at": None, "tags": None},
    {"id": 3, "page": "", "at": dt.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=dt.UTC), "tags": []},
]
FLAT = [{name: value for name, value in row.items() if name != "tags"} for row in ROWS]


@pytest.fixture(autouse=True)
def empty(named_log: InProcessGroup) -> None:
    client = named_log.client()
    for info in client.topics():
        client.delete_topic(info.name)


def rows(log: InProcessGroup, topic: str) -> list[dict[str, object]]:
    batches = log.client().read(topic, 0, 0)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_table_makes_a_typed_topic_and_comes_out_as_it_was(
    named_log: InProcessGroup, tmp_path: Path, form: str
) -> None:
    table = pa.Table.from_pylist(ROWS)
    path = tmp_path / f"clicks.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    out(f"append clicks {path} --create")
    assert rows(named_log, "clicks") == ROWS
    again = tmp_path / f"again.{form}"
    out(f"tail clicks -O {again}")
    out(f"append clicks {again}")
    assert rows(named_log, "clicks") == ROWS * 2


def test_rows_come_out_and_in_as_csv_and_json(named_log: InProcessGroup, tmp_path: Path) -> None:
    named_log.client().create_topic("flat", schema=pa.Table.from_pylist(FLAT).schema)
    named_log.client().append("flat", FLAT)
    for form, printed in (("csv", raw("tail flat -F csv")), ("json", raw("tail flat"))):
        out(f"append flat -F {form}", printed)
    assert rows(named_log, "flat") == FLAT * 3
    path = tmp_path / "new.csv"
    path.write_bytes(raw("tail flat -c 3 -o 0 -F csv"))
    out(f"append made {path} --create")
    assert rows(named_log, "made") == FLAT
    named_log.client().create_topic("nested", schema=pa.Table.from_pylist(ROWS).schema)
    named_log.client().append("nested", ROWS)
    assert "--format csv cannot hold every column of the topic" in refusal("tail nested -F csv")
    out("append nested -F json", raw("tail nested"))
    assert rows(named_log, "nested") == ROWS * 2


def test_rows_go_where_their_key_says_and_count_is_kept(named_log: InProcessGroup) -> None:
    out("topics create keyed --partitions 3 --from-schema 'id bigint' --key id")
    text = "".join(f'{{"id": {at}}}\n' for at in range(100))
    out("append keyed -F json -c 90", text.encode())
    client = named_log.client()
    client.create_topic("same", 3, schema=pa.schema([("id", pa.int64())]), key_column="id")
    client.append("same", {"id": list(range(90))})
    assert client.end_offsets("keyed") == client.end_offsets("same")
    assert len(out("tail keyed -o earliest -c 50 -F csv").splitlines()) == 51


def test_new_columns_need_a_word(named_log: InProcessGroup, tmp_path: Path) -> None:
    out("topics create clicks --from-schema 'id bigint'")
    path = tmp_path / "more.csv"
    path.write_text("id,nope\n1,x\n")
    said = refusal(f"append clicks {path}")
    assert "the frame does not fit topic 'clicks': say --evolve to change the topic's" in said
    assert "| nope string" in said
    assert not rows(named_log, "clicks")
    out(f"append clicks {path} --evolve")
    assert rows(named_log, "clicks") == [{"id": 1, "nope": "x"}]
    parquet = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pa.table({"id": ["text"]}), parquet)
    said = refusal(f"append clicks {parquet} --evolve")
    assert "cast, rename or drop the columns, or write to another topic" in said
    assert "id bigint" in said


@pytest.mark.parametrize("form", ["parquet", "arrow", "feather"])
def test_topic_is_made_of_a_tables_schema_alone(
    named_log: InProcessGroup, tmp_path: Path, form: str
) -> None:
    table = pa.Table.from_pylist(ROWS)
    path = tmp_path / f"clicks.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        make = pa.ipc.new_file if form == "feather" else pa.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table)
    out(f"topics create clicks --from-schema {path} --key id --time at")
    client = named_log.client()
    columns = client.schemas(client.topic("clicks"))[0]
    assert [str(one) for one in columns.fields] == [
        "id bigint", "page string", "at timestamp", "tags array<string>",
    ]  # fmt: skip
    assert (columns.key, columns.time) == ("id", "at")
    assert not rows(named_log, "clicks")
    path.write_text("no table")
    assert (
        f"{path} is no {'parquet' if form == 'parquet' else 'arrow'} file, or a damaged"
        in refusal(f"topics create wrong --from-schema {path}")
    )
    assert "No such file" in refusal(f"topics create wrong --from-schema {tmp_path}/x.{form}")


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (
            "append t",
            b"x\n",
            "topic 't' is typed (id, at): append its rows with --format json, csv",
        ),
        ("append t --value x", b"", "topic 't' is typed (id, at)"),
        ("append t -F csv -k a", b"id\n1\n", "--key and --header are for keys and values"),
        ("append t -F json", b'{"id": 1}\n{"id": "x"}\n', 'line 2 (b\'{"id": "x"}\')'),
        ("append t -F json", b'{"nope": 1}\n', "a line is an object with any of id, at"),
        ("append t -F csv", b"id\n1\nx\n", "row 3: CSV conversion error to int64"),
        (
            "append b -F json",
            b"{}\n",
            "column 'raw' of topic 'b' is binary, which JSON rows do not",
        ),
        ("append e -F json", b"{}\n", "topic 'e' has no columns yet, which JSON does not say"),
        ("tail e -F csv", b"", "topic 'e' has no columns yet: nothing was appended to it"),
        ("tail t -F csv -f", b"", "--follow prints the rows of a typed topic as lines of JSON"),
        ("tail t -F csv --base64", b"", "--base64 is for keys and values, and topic 't' is typed"),
    ],
)
def test_what_a_typed_topic_does_not_take_is_named(words: str, text: bytes, said: str) -> None:
    out("topics create t --from-schema 'id bigint, at timestamp'")
    out("topics create b --from-schema 'raw binary'")
    out("topics create e --set type=typed")
    assert said in refusal(words, text)
