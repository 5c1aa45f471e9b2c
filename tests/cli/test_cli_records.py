"""``dledger append`` and ``tail``: every form that records have, in and out again."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dledger.testing import InProcessGroup
from tests.cli.commands import out, raw, refusal, run

pytestmark = pytest.mark.usefixtures("named_log")
BINARY = bytes(range(256))
NULLS = "a\\x00b"


@pytest.fixture
def topic(log: InProcessGroup, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of three partitions, for one test."""
    name = f"t-{abs(hash(request.node.name))}"
    log.client().create_topic(name, 3)
    yield name
    log.client().delete_topic(name)


@pytest.fixture
def mixed(log: InProcessGroup, topic: str) -> str:
    """With keys and values that are null, empty, text and no text, and with headers."""
    client = log.client()
    client.append(
        topic,
        [b"plain", None, b"", BINARY, 'né"\\\n\x01'.encode()],
        keys=[b"k", None, b"", BINARY, b"\xff"],
        partition=1,
        headers=[[("a", b"1"), ("a", None)], None, [], [("b", BINARY)], [("é", b"")]],
        timestamps=[0, 1, 1_700_000_000_000_001, 1_700_000_000_123_456, 5],
    )
    client.append(topic, [b"later"], partition=2, timestamps=[1_800_000_000_000_000])
    return topic


def records(log: InProcessGroup, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """Time, key, value and headers of each record, by partition."""
    client = log.client()
    names = ("timestamp", "key", "value", "headers")
    return {
        at: [
            tuple(row[name] for name in names)
            for batch in client.read(topic, at, 0)
            for row in batch.to_pylist()
        ]
        for at in range(3)
    }


def bare(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Key and value alone."""
    return [(key, value) for _, key, value, _ in rows]


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_what_tail_prints_append_takes_byte_for_byte(
    log: InProcessGroup, mixed: str, form: str
) -> None:
    """Keys and values that are null, empty and no text, headers, times, and the partition."""
    before = records(log, mixed)
    printed = raw(f"tail {mixed} -o earliest -F {form}")
    done = json.loads(out(f"append {mixed} -F {form} --json", printed))
    assert (done["records"], done["offsets"]) == (6, {"1": [[5, 10]], "2": [[1, 2]]})
    empty_is_none = {
        at: [(*row[:3], row[3] or None) for row in rows] for at, rows in before.items()
    }
    after = {
        at: [(*row[:3], row[3] or None) for row in rows][len(before[at]) :]
        for at, rows in records(log, mixed).items()
    }
    assert after == empty_is_none


def test_a_file_of_parquet_comes_back_as_it_was(
    log: InProcessGroup, mixed: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.parquet"
    out(f"tail {mixed} -o earliest -O {path}")
    table = pyarrow.parquet.read_table(path)
    assert table.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert table.column("value").to_pylist()[3] == BINARY
    assert f"{path} is there already; name another file" in refusal(f"tail {mixed} -O {path}")
    out(f"append {mixed} {path}")
    after = records(log, mixed)
    assert bare(after[1][:5]) == bare(after[1][5:])
    assert list(tmp_path.iterdir()) == [path]


def test_csv_goes_out_and_in_with_nulls_quotes_and_headers(
    log: InProcessGroup, topic: str, tmp_path: Path
) -> None:
    client = log.client()
    values = [b"one", None, b"", b'say "hi", twice\n']
    headers = [[("h", b"1")], None, None, [("n", None)]]
    client.append(topic, values, keys=[b"k", b"", None, b"k"], partition=0, headers=headers)
    path = tmp_path / "rows.csv"
    path.write_bytes(raw(f"tail {topic} -F csv"))
    out(f"append {topic} {path}")
    found = records(log, topic)[0]
    assert found[4:] == found[:4]
    client.append(topic, [BINARY], partition=0)
    said = refusal(f"tail {topic} -p 0 -F csv")
    assert "at or behind offset 8 that is no text: say --base64, or --format arrow" in said
    assert "AAECAwQF" in out(f"tail {topic} -p 0 -o 8 -F csv --base64")


def test_file_that_cannot_be_completed_is_not_there(
    log: InProcessGroup, topic: str, tmp_path: Path
) -> None:
    log.client().append(topic, [b"text"] * 3 + [BINARY], partition=0)
    assert "that is no text" in refusal(f"tail {topic} -o 0 -p 0 -O {tmp_path}/out.csv")
    assert not list(tmp_path.iterdir())
    assert "cannot be made: No such file" in refusal(f"tail {topic} -O {tmp_path}/no/out.csv")


def test_any_bytes_pass_by_base64_lengths_and_delimiters(log: InProcessGroup, topic: str) -> None:
    values = [b"", BINARY, b"two\nlines"]
    lines = b"".join(struct.pack(">i", len(one)) + one for one in values) + struct.pack(">i", -1)
    out(f"append {topic} -p 0 --length-prefixed", lines)
    assert bare(records(log, topic)[0]) == [(None, one) for one in [*values, None]]
    assert raw(f"tail {topic} --length-prefixed") == lines
    out(f"append {topic} -p 1 --base64 -K :", raw(f"tail {topic} -p 0 --base64 -K :"))
    assert [value for _, value in bare(records(log, topic)[1])] == [*values, b""]
    out(f"append {topic} -p 2 -D '<>' -K '\\0'", b"k\0one\n<>\0two")
    assert bare(records(log, topic)[2]) == [(b"k", b"one\n"), (b"", b"two")]
    assert raw(f"tail {topic} -p 2 -K '\\t' -D '%\\x41'") == b"k\tone\n%A\ttwo%A"


def test_null_and_empty_are_told_apart(log: InProcessGroup, topic: str) -> None:
    out(f"append {topic} -p 0 -K : -Z", b"k:\n:v\n")
    out(f"append {topic} -p 0 -K : --null nil", b"k:nil\nnil:\n")
    out(f"append {topic} -p 0 -Z --value ''")
    wanted = [(b"k", None), (None, b"v"), (b"k", None), (None, b""), (None, None)]
    assert bare(records(log, topic)[0]) == wanted
    assert out(f"tail {topic} -K : -Z") == "k:NULL\nNULL:v\nk:NULL\nNULL:\nNULL:NULL\n"
    assert out(f"tail {topic} -K : --null nil -c 1") == "k:nil\n"
    assert out(f"tail {topic} -F '%k:%s;' -c 2") == "k:;:v;"


def test_key_and_headers_of_an_option_are_on_every_record(log: InProcessGroup, topic: str) -> None:
    out(f"append {topic} -p 0 -k all -H trace=a=b -H bare", b"one\ntwo\n")
    rows = records(log, topic)[0]
    headers = [{"key": "trace", "value": b"a=b"}, {"key": "bare", "value": None}]
    assert [row[1:] for row in rows] == [(b"all", b"one", headers), (b"all", b"two", headers)]
    assert out(f"tail {topic} -F '%h\\n' -c 1") == "trace=a=b,bare\n"


def test_keys_are_spread_as_a_producer_spreads_them(log: InProcessGroup, topic: str) -> None:
    client = log.client()
    places = {client.append(topic, b"x", keys=key).partition for key in (b"a", b"b", b"c", b"d")}
    assert len(places) > 1
    known = {key: client.append(topic, b"x", keys=key).partition for key in (b"a", b"b", b"c")}
    out(f"append {topic} -K :", b"".join(b"%c:%d\n" % (b"abc"[i % 3], i) for i in range(3000)))
    found = records(log, topic)
    for key, partition in known.items():
        mine = [int(value) for k, value in bare(found[partition]) if k == key and value != b"x"]  # type: ignore[call-overload]
        assert mine == list(range(b"abc".index(key), 3000, 3))


def test_each_file_is_one_record_or_its_lines(
    log: InProcessGroup, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(BINARY)
    (tmp_path / "b").write_bytes(b"one\ntwo")
    out(f"append {topic} -p 0 -F file {tmp_path}/a {tmp_path}/b")
    out(f"append {topic} -p 1 {tmp_path}/b -", b"three")
    found = records(log, topic)
    assert [value for _, value in bare(found[0])] == [BINARY, b"one\ntwo"]
    assert [value for _, value in bare(found[1])] == [b"one", b"two", b"three"]
    assert "nowhere: No such file" in refusal(f"append {topic} {tmp_path}/nowhere")
    assert "nowhere: No such file" in refusal(f"append {topic} -F file {tmp_path}/nowhere")


def test_format_string_has_kcats_letters(log: InProcessGroup, mixed: str) -> None:
    text = out(f"tail {mixed} -p 2 -f '%t %p %o %T %K %S %s%%\\n'")
    assert text == f"{mixed} 2 0 1800000000000 -1 5 later%\n"
    sizes = out(f"tail {mixed} -p 1 -F '%K,%S '")
    assert sizes == "1,5 -1,-1 0,0 256,256 1,7 "
    assert raw(f"tail {mixed} -p 1 -F %R%s -c 2") == b"\0\0\0\5plain\xff\xff\xff\xff"
    assert out(f"tail {mixed} -F 'x\\n' -o 0 -p 1") == "x\n" * 5


def test_start_and_end_by_offset_time_and_count(log: InProcessGroup, topic: str) -> None:
    client = log.client()
    times = [1_700_000_000_000_000 + 60_000_000 * at for at in range(10)]
    client.append(topic, [b"%d" % at for at in range(10)], partition=0, timestamps=times)

    def found(options: str) -> str:
        return "".join(out(f"tail {topic} -p 0 {options}").split())

    assert found("-o 2 --to 4") == "23"
    assert found("-o beginning --to -7") == "012"
    assert found("-o 2023-11-14T22:15:20Z --to 2023-11-14T22:17:20+00:00") == "23"
    assert found("-o @1700000120000 -c 2") == found("-o s@1700000120000 --count 2") == "23"
    assert found("-o -10m --to latest -e") == ""
    assert found("-o earliest --to 99") == "0123456789"
    assert found("-o earliest --to @1") == ""
    assert "write earliest, latest, an offset, -N" in refusal(f"tail {topic} -o 10x")


def test_count_ends_an_append_before_the_input_does(log: InProcessGroup, topic: str) -> None:
    done = json.loads(out(f"append {topic} -c 2 --json", b"one\ntwo\nthree\n"))
    assert done["records"] == 2


def test_topic_is_made_only_where_there_are_records(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("key,value\nk\n")
    assert "row 2" in refusal(f"append made-late --create {tmp_path}/bad.csv")
    assert "there is no topic 'made-late'" in refusal("tail made-late")
    assert run("append made-late --create", b"").stderr == "nothing to append\n"
    assert "there is no topic 'made-late'" in refusal("tail made-late")
    out("append made-late --create --value x")
    out("topics delete made-late --yes")


def test_csv_with_broken_rows_names_them_and_appends_nothing(
    log: InProcessGroup, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value\nk,1\nbroken\nk,2\na,b,c\n")
    said = refusal(f"append {topic} {path}")
    assert f"{path}: row 3 ('broken'), row 5 ('a,b,c'): not as many columns as the header" in said
    assert "mend them, or quote what has commas in it" in said
    assert not any(records(log, topic).values())
    path.write_text("partition,value\n0,1\nzero,2\n")
    said = refusal(f"append {topic} {path}")
    assert f"{path}: column 0: row 3: CSV conversion error to int64: invalid value 'zero'" in said
    rows = "".join(f"{at},{'x' * 100}\n" for at in range(100_000))
    path.write_text(f"key,value\n{rows}broken\n")
    assert "row 100002 ('broken')" in refusal(f"append {topic} {path}")
    assert not any(records(log, topic).values())  # a file is looked through before


def test_bad_line_far_behind_says_how_far_it_got(log: InProcessGroup, topic: str) -> None:
    lines = b"k:%s\n" % (b"x" * 100) * 30_000
    said = refusal(f"append {topic} -K :", lines + b"broken\n" + lines)
    sent = sum(map(len, records(log, topic).values()))
    assert f"line 30001 (b'broken') has no key delimiter b':'; {sent:,} records are app" in said
    assert 20_000 < sent <= 30_000


def test_table_with_other_columns_is_refused_with_both(topic: str, tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    pyarrow.parquet.write_table(pa.table({"id": [1], "page": ["x"]}), path)
    said = refusal(f"append {topic} {path}")
    assert f"{path} has the columns id, page, and topic '{topic}' takes records of value" in said
    assert "rename them, or append to a typed topic" in said
    path.write_bytes(b"no parquet")
    assert f"{path} is no parquet file, or a damaged one" in refusal(f"append {topic} {path}")
    assert "stdin is no arrow file, or a damaged one" in refusal(f"append {topic} -F arrow", b"x")


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        ("-F json", b'{"value": "a"}\n\n{"value": 5}\n', "stdin: line 3 (b'{\"value\": 5}'): JSON"),
        ("-F json", b'{"value": "a"\n', "leave out --format json to append lines as they are"),
        ("-F json", b'{"valu": "a"}\n', "with any of topic, partition, offset"),
        ("-F json", b'{"value_base64": "?"}\n', "value_base64 is no base64"),
        ("-F json", b'{"value": "a", "partition": 3}\n', "partition 3, and topic"),
        ("-K :", b"a:1\nb\n", "stdin: line 2 (b'b') has no key delimiter b':'"),
        ("--base64", b"YQ==\n!\n", "stdin: line 2 (b'!') is no base64"),
        ("--length-prefixed", b"\0\0\0\1a\0\0\0\5ab", "frame 2 says 5 bytes and 2 are there"),
        ("--length-prefixed", b"\0\0", "frame 1 ends within its length"),
        ("-p 3", b"a\n", "has partitions 0 to 2, not 3"),
    ],
)
def test_bad_input_is_named_with_its_place(
    topic: str, options: str, text: bytes, said: str
) -> None:
    assert said in refusal(f"append {topic} {options}", text)
