"""The settings of ``dledger serve``: one file, the environment, the command line, and a check of
all."""

from __future__ import annotations

import fcntl
import re
import socket
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.config.example import example
from dledger.config.layers import Layers
from dledger.config.sections import all_settings, as_toml
from dledger.config.toml_lines import key_lines
from dledger.embedded.ports import free_ports
from dledger.net.secret import create_secret
from tests.cli.commands import out, refusal, run

EXAMPLE = Path(__file__).parents[2] / "deploy" / "dledger.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Settings of a node that could start."""
    (port,) = free_ports("127.0.0.1", 1)
    path = tmp_path / "node.toml"
    path.write_text(
        f'[group]\npeers = "n0-127.0.0.1:{port}"\n[node]\nself_id = "n0"\n'
        f'directory = "{tmp_path}/n0"\n'
    )
    return path


def errors(words: str) -> list[str]:
    """What a check finds; nothing is served."""
    done = run(f"serve --check {words}")
    assert done.exit_code == 1, done.output
    lines = done.stderr.splitlines()
    assert all(line.startswith("dledger: ") for line in lines)
    return [line.removeprefix("dledger: ") for line in lines]


def test_command_line_comes_before_environment_file_and_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file.open("a") as more:
        more.write("cache_bytes = 1\nidle_timeout_ms = 1\n[retention]\nretention_ms = 1\n")
    monkeypatch.setenv("DLEDGER_SERVE_CACHE_BYTES", "2_000")
    monkeypatch.setenv("DLEDGER_SERVE_RETENTION_MS", "2")
    monkeypatch.setenv("DLEDGER_SERVE_CONFIG", str(file))
    monkeypatch.setenv("DLEDGER_CACHE_BYTES", "of clients")
    said = out("serve --check --set retention_ms=3 --group orders").splitlines()
    assert {
        "retention_ms = 3  # --set",
        'group = "orders"  # --group',
        "cache_bytes = 2000  # DLEDGER_SERVE_CACHE_BYTES",
        f"idle_timeout_ms = 1  # {file}, line 7",
        "retention_bytes = 0  # default",
        "# nothing is wrong",
    } <= set(said)
    assert tomllib.loads("\n".join(said))["retention"]["retention_ms"] == 3


WRONG = {
    "[retention]\nretention_m = 1": "line 2: unknown setting retention_m (did you mean "
    "'retention_ms'?)",
    "\n[retnetion]": "line 2: unknown section [retnetion] (did you mean 'retention'?)",
    '[retention]\nretention_ms = "1d"': "line 2: retention_ms = '1d': give a whole number",
    "[node]\n\n\nflush = 7": "line 4: flush = 7: give text",
    "[disk]\ndisk_full_ratio = true": "line 2: disk_full_ratio = True: give a number",
    "[node]\ncache_bytes = true": "line 2: cache_bytes = True: give a whole number",
    "[security]\nclients_prove = 1": "line 2: clients_prove = 1: give true or false",
    '[elections]\npreferred_leaders = ["n0", 1]': "give nodes, as",
    "[node]\nretention_ms = 1": "line 2: retention_ms belongs to [retention]",
    'group = "x"': "line 1: group belongs to [group]",
    "cache_bytes = 1": "line 1: cache_bytes belongs to [node]",
    "[node]\ncache_bytes = 1\ncache_bytes = 2": "line 3: node.cache_bytes stands a second time; "
    "the first one is on line 2",
    "[node]\ncache_bytes = 1\n[disk]\n[node]": "line 4: node stands a second time; the first one "
    "is on line 1",
    "[node]\ncache_bytes = ": "Invalid value",
    "[node]\ncache_bytes = " + "9" * 5000: "4300 digits",
    "[node]\ncache_bytes = " + "[" * 5000: "",
    '[node]\n"\\u001b[31m\\u202e" = 5': "unknown setting '\\x1b[31m\\u202e'",
    "[node]\nport = 5": "unknown setting port",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_key_or_value_of_the_file_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    (error,) = errors(f"--config {tmp_path}/wrong.toml")
    assert error.startswith(f"{tmp_path}/wrong.toml")
    assert WRONG[text] in error


def test_all_errors_are_told_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file.open("a") as more:
        more.write("chache_bytes = 1\n[disk]\nscrub_pause_ms = 0.5\n")
    monkeypatch.setenv("DLEDGER_SERVE_RETENTON_MS", "5")
    monkeypatch.setenv("DLEDGER_SERVE_CLIENTS_PROVE", "perhaps")
    words = f"--config {file} --set max_topcs=1 --set nothing"
    found = errors(words)
    assert len(found) == 6, found
    assert "DLEDGER_SERVE_RETENTON_MS: unknown setting (did you mean 'retention_ms'?)" in found
    assert "DLEDGER_SERVE_CLIENTS_PROVE=perhaps: give true or false" in found
    assert "--set max_topcs: unknown setting (did you mean 'max_topics'?)" in found
    refused = refusal(f"serve {words}")
    assert all(error in refused for error in found)


def test_values_that_cannot_be_together_are_told_for_group_and_node(file: Path) -> None:
    found = errors(f"--config {file} --set election_ms=1 --set disk_warn_ratio=2")
    assert [error.partition(" ")[0] for error in found] == ["election_ms", "disk_warn_ratio"]


def test_each_setting_without_a_default_is_named_with_its_three_ways() -> None:
    found = errors("")
    assert [error.partition(" ")[0] for error in found] == ["peers", "self_id", "directory"]
    assert (
        "directory is not given: --dir, DLEDGER_SERVE_DIRECTORY in the environment, or directory "
        "in [node] of the file"
    ) in found


def test_settings_take_the_type_of_their_field() -> None:
    layers = Layers()
    text = "segment_bytes=1_000_000_000 disk_full_ratio=0.9 flush=async preferred_leaders=n0,n1"
    layers.add_texts(["flush=sync", *text.split()])  # the last one counts
    assert {name: given.value for name, given in layers.given.items()} == {
        "segment_bytes": 1_000_000_000,
        "disk_full_ratio": 0.9,
        "flush": "async",
        "preferred_leaders": ("n0", "n1"),
    }
    assert layers.errors == []


def test_peers_may_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[group.peers]\nn0 = "a:7001"\nn1 = "b:7001"\n')
    layers = Layers()
    layers.add_file(tmp_path / "node.toml")
    assert layers.given["peers"].value == "n0-a:7001;n1-b:7001"


def test_check_finds_what_keeps_a_node_from_starting(file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        found = errors(
            f"--config {file} --peers n0-127.0.0.1:{port} --dir {tmp_path}/file/n0 "
            f"--secret-file {tmp_path}/nowhere --set tls_ca={tmp_path}/ca --set "
            f"tls_certificate={tmp_path}/c --set tls_key={tmp_path}/k"
        )
    assert len(found) == 4
    assert f"secret file {tmp_path}/nowhere" in found[0]
    assert str(tmp_path / "ca") in found[1]
    assert f"{tmp_path}/file is a file" in found[2]
    assert found[3] == f"127.0.0.1:{port}: Address already in use"
    assert "192.0.2.1" in errors(f"--config {file} --host 192.0.2.1")[0]
    open_to_all = f"--config {file} --set metrics_port=0 --set metrics_host=0.0.0.0"
    (found_one,) = errors(open_to_all)
    assert "metrics_host 0.0.0.0 is reached from other machines" in found_one
    assert "nothing is wrong" in out(f"serve --check {open_to_all} --set insecure=true")
    audit = f"--config {file} --set audit_topic=true"
    assert "nothing is wrong" in out(f"serve --check {audit}")
    (no_topic,) = errors(f"{audit} --set commit_log=rocketmq")
    assert "audit_topic: there is no such topic where commit_log is rocketmq" in no_topic


def test_secret_that_others_may_read_is_found(file: Path, tmp_path: Path) -> None:
    create_secret(tmp_path / "secret")
    words = f"--config {file} --secret-file {tmp_path}/secret"
    assert "nothing is wrong" in out(f"serve --check {words}")
    (tmp_path / "secret").chmod(0o644)
    (found,) = errors(words)
    assert "chmod 600" in found


def test_check_beside_a_running_node_does_not_want_its_port(file: Path, tmp_path: Path) -> None:
    (tmp_path / "n0").mkdir()
    port = int(re.findall(r":(\d+)", file.read_text())[0])
    with (tmp_path / "n0" / "lock").open("w") as lock, socket.socket() as held:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held.bind(("127.0.0.1", port))
        held.listen()
        assert "a node runs on" in out(f"serve --check --config {file}")


def test_a_check_leaves_nothing_behind(file: Path, tmp_path: Path) -> None:
    out(f"serve --check --config {file}")
    assert not (tmp_path / "n0").exists()


def test_example_has_every_setting_with_its_default() -> None:
    """``dledger serve --print-config > deploy/dledger.toml`` makes it anew."""
    assert EXAMPLE.read_text() == out("serve --print-config") == example()
    shown = re.sub(r"(?m)^# ([a-z_]+ = )", r"\1", example())
    tables = tomllib.loads(shown)
    for name, setting in all_settings().items():
        assert setting.meaning, name
        value = tables[setting.section][name]
        if setting.default is not None:
            assert value == (list(setting.default) if setting.kind is tuple else setting.default)


def test_the_example_is_taken_as_it_is() -> None:
    layers = Layers()
    layers.add_file(EXAMPLE)
    group, node, addresses = layers.configs()
    assert (list(addresses), node.node_id, node.port) == (["n0", "n1", "n2"], "n0", 7001)
    assert group.members == ("n0", "n1", "n2")


def test_every_setting_is_taken_from_the_environment() -> None:
    layers, settings = Layers(), all_settings()
    texts = {int: "1", float: "0.5", bool: "true", tuple: "n0,n1"}
    layers.add_environment({one.variable: texts.get(one.kind, "x") for one in settings.values()})
    assert layers.errors == []
    assert layers.given.keys() == settings.keys()
    assert {one.source for one in layers.given.values()} == {
        one.variable for one in settings.values()
    }


@given(st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.text())))
def test_values_are_written_as_toml_reads_them(value: object) -> None:
    assert tomllib.loads(f"x = {as_toml(value)}")["x"] == value


def test_lines_of_keys_are_found_behind_values_of_several_lines() -> None:
    text = (
        'a = """\nb = 1\n"""\n[t]\nc = [\n  1, # ]\n  2,\n]\n# d = 1\n"d e".f = {g = 1}\n'
        "[[list]]\nx = 1\n[ t . u ]\nh = '''\n[t]\n'''\n"
    )
    assert key_lines(text) == {
        ("a",): [1],
        ("t",): [4],
        ("t", "c"): [5],
        ("t", "d e", "f", "g"): [10],
        ("list",): [11],
        ("list", "x"): [12],
        ("t", "u"): [13],
        ("t", "u", "h"): [14],
    }
