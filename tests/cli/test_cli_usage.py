"""The command's words: every mistake is one line on stderr that says the way out, exit code 2,
never a traceback."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.cli.common import is_path, print_table, text_or_base64
from dledger.cli.records.bench import numbers
from dledger.cli.records.inputs import Input, pieces, split_keys
from dledger.client.positions import parse_position
from dledger.errors import ConfigError
from tests.cli.commands import out, process, refusal

COMMANDS = [
    "serve", "status", "topics", "append", "tail", "groups", "transfer", "admit", "verify", "dump",
    "reset-term", "bench", "get-offsets", "stop", "context", "completion", "members",
]  # fmt: skip


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections and that nobody else can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_help_lists_every_command() -> None:
    said = out("--help")
    assert all(f"  {command} " in said for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    out(f"{command} --help")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nonsense", "No such command 'nonsense'; there are serve, "),
        ("tial", "No such command 'tial' (did you mean 'tail'?)"),
        ("topics lst -b h:1", "No such command 'lst' (did you mean 'list'?); there are list, "),
        ("tail t -b h:1 --limt 3", "'--limit'"),
        ("status", "which group? Give --bootstrap HOST:PORT,..."),
        ("status -b host:port", "write host:port"),
        ("status -b /does/not/exist", "there is no group in this directory"),
        ("tail orders -b h:1 --from soon", "earliest, latest"),
        ("append orders -b h:1 --key a --key-separator :", "exclude each other"),
        ("append orders x.csv -b h:1 --value a", "--value and FILE are both records"),
        ("append orders -b h:1 -F json --base64", "--base64 means nothing beside --format json"),
        ("append orders -b h:1 -F file", "--format file: which files? Name them"),
        ("append orders -b h:1 -F parquet", "a pipe takes arrow"),
        ("append orders -b h:1 -H =1 --value a", "--header '=1' has no name: write name=value"),
        ("append orders -b h:1 -D '\\q' --value a", "\\q means nothing: write \\n, "),
        ("tail orders -b h:1 --from 2024-03-10T07:30:00", "write 2024-03-10T07:30:00Z for UTC"),
        ("tail orders -b h:1 -f --to 3", "--follow has no end, and --to is one"),
        ("tail orders -b h:1 -F jsn", "--format 'jsn' (did you mean 'json'?): write one of lines"),
        ("tail orders -b h:1 -F '%x'", "%x means nothing; the letters are %s value, "),
        ("tail orders -b h:1 -F '%O'", "%O means nothing (did you mean 'o'?)"),
        ("tail orders -b h:1 -F parquet", "parquet needs a file: name it with --output"),
        ("tail orders -b h:1 -J --null x", "--null means nothing beside --format json"),
        ("tail orders -b h:1 --length-prefixed -K :", "beside --length-prefixed"),
        ("groups reset g -b h:1", "Give one of --to, --shift and --from-file"),
        ("status -b h:1 --context prod", "--bootstrap and --context both name the group"),
        ("topics create orders -b h:1 --set x", "name=value"),
        ("topics delete orders -b h:1", "--yes"),
        ("bench -b h:1 --sizes 1,x", "--sizes"),
        ("verify /does/not/exist", "does not exist"),
        ("dump /does/not/exist", "does not exist"),
    ],
)
def test_mistake_is_one_line(command: str, said: str) -> None:
    assert said in refusal(command)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--self-id n9", "not one of the peers n0, n1"),
        ("--peers n0:1", "n0-host:port"),
        ("--set segment_byte=1", "did you mean 'segment_bytes'"),
        ("--set segment_bytes=big", "a whole number"),
        ("--set port=1", "unknown setting"),
        ("--set flush=never", "'sync' or 'async'"),
        ("--set heartbeat_ms=900", "three times heartbeat_ms"),
    ],
)
def test_serve_checks_every_setting_before_it_touches_anything(
    options: str, said: str, tmp_path: Path
) -> None:
    given = "--self-id n0 --peers n0-127.0.0.1:1;n1-127.0.0.1:2"
    assert said in refusal(f"serve {given} --dir {tmp_path}/n0 {options}")  # the last one counts
    assert not (tmp_path / "n0").exists()


@pytest.mark.parametrize(
    "command", ["topics list", "tail orders", "groups", "append orders --value x"]
)
def test_address_where_nobody_listens_is_an_error_in_time(command: str, dead_address: str) -> None:
    assert dead_address in refusal(f"{command} -b {dead_address} --timeout 0.5")


def test_verify_and_dump_refuse_files_and_whole_groups(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(f"verify {tmp_path}/file")
    (tmp_path / "group.json").write_text("{}")
    (tmp_path / "n0").mkdir()
    (tmp_path / "n0" / "node.pid").write_text("")
    assert f"name one of its nodes: {tmp_path / 'n0'}" in refusal(f"dump {tmp_path}")


def test_no_traceback_reaches_a_terminal() -> None:
    """As installed, not only under a test's runner."""
    done = process("status -b /does/not/exist")
    assert done.returncode == 2
    assert done.stderr.startswith("dledger: ")
    assert "Traceback" not in done.stderr


def test_command_does_not_load_arrow_before_it_needs_it() -> None:
    script = "import sys, dledger.cli.main; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not {"pyarrow", "pyspark", "rich", "asyncio"} & set(done.stdout.split())


def test_bootstrap_is_a_path_or_addresses(tmp_path: Path) -> None:
    assert [is_path(t) for t in ("/data/log", "./log", "log", str(tmp_path))] == [True] * 4
    assert [is_path(t) for t in ("host:7000", "a:1,b:2")] == [False] * 2


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("earliest", 5),
        ("start", 5),
        ("latest", 20),
        ("end", 20),
        ("7", 7),
        ("-10", 10),
        ("-100", 5),
    ],
)
def test_tail_begins_where_it_is_told(text: str, first: int) -> None:
    assert parse_position("--from", text).within(begin=5, end=20) == first


@pytest.mark.parametrize("text", ["-9999999d", "-99999999999999999999d", "yesterday"])
def test_time_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--from"):
        parse_position("--from", text)


def test_lines_come_whole_however_they_are_cut() -> None:
    for delimiter in (b"\n", b"<>"):
        text = b"one\ntwo\n\nlast".replace(b"\n", delimiter)
        for size in (1, 2, 3, 100):
            given = Input("stdin", io.BufferedReader(Trickle(text, size)))
            lines = [one for piece in pieces(given, delimiter) for one in piece.split(delimiter)]
            assert lines == [b"one", b"two", b"", b"last"], (delimiter, size)


class Trickle(io.RawIOBase):
    """Gives a few bytes at a time, as a slow pipe does."""

    def __init__(self, content: bytes, size: int) -> None:
        self._rest = content
        self._size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece, self._rest = self._rest[: self._size], self._rest[self._size :]
        buffer[: len(piece)] = piece
        return len(piece)


def test_keys_stand_before_the_delimiter() -> None:
    found = split_keys([b"a:1", b"b:2:3"], b":", "stdin", 1)
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "key": [b"a", b"b"],
        "value": [b"1", b"2:3"],
    }
    with pytest.raises(ConfigError, match=r"stdin: line 8 \(b'nothing'\) has no key delimiter"):
        split_keys([b"a:1", b"nothing"], b":", "stdin", 7)


@given(
    st.lists(st.text("a:\t\u00e9", max_size=8), min_size=1, max_size=8),
    st.sampled_from([":", "\t", "::", "aa", "\u00e9"]),
)
def test_keys_and_values_are_the_bytes_around_the_first_delimiter(
    texts: list[str], delimiter: str
) -> None:
    between = delimiter.encode()
    lines = [(text + delimiter * (delimiter not in text)).encode() for text in texts]
    parts = [line.partition(between) for line in lines]
    found = split_keys(lines, between, "stdin", 1)
    assert found["key"].to_pylist() == [key for key, _, _ in parts]
    assert found["value"].to_pylist() == [value for _, _, value in parts]


def test_bytes_in_json_are_text_where_they_can_be() -> None:
    assert text_or_base64("value", "né".encode()) == {"value": "né"}
    assert text_or_base64("value", b"\xff") == {"value_base64": "/w=="}
    assert json.dumps(text_or_base64("key", None)) == '{"key": null}'


def test_numbers_by_commas() -> None:
    assert numbers("--sizes", "1, 2_000") == [1, 2000]
    with pytest.raises(ConfigError):
        numbers("--sizes", "0")


def test_a_cell_of_a_table_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["\x1b[31mred\x07\r\n\u202e"]])
    assert capsys.readouterr().out.splitlines()[-1] == "\\x1b[31mred\\x07\\r\\n\\u202e"
