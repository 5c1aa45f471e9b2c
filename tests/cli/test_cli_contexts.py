"""Contexts, the file of settings and completion: what a user keeps for the command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.testing import InProcessGroup
from tests.cli.commands import out, program, refusal


@pytest.fixture
def no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLEDGER_BOOTSTRAP", raising=False)


def test_first_context_is_used_and_another_by_its_name(
    log: InProcessGroup, no_group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = out(f"context add here -b {log.bootstrap_servers}")
    assert said == f"context here is {log.bootstrap_servers}, and in use\n"
    assert out("context add there -b 127.0.0.1:1") == "context there is 127.0.0.1:1\n"
    out("topics create by-context")
    assert "127.0.0.1:1" in refusal("topics list --context there --timeout 0.2")
    monkeypatch.setenv("DLEDGER_CONTEXT", "there")
    assert "127.0.0.1:1" in refusal("topics list --timeout 0.2")
    assert "by-context" in out("topics list --context here")
    monkeypatch.setenv("DLEDGER_BOOTSTRAP", log.bootstrap_servers)
    assert "by-context" in out("topics list")
    assert "127.0.0.1:1" in refusal("topics list --context there --timeout 0.2")
    monkeypatch.setenv("DLEDGER_BOOTSTRAP", "127.0.0.1:2")
    assert "by-context" in out(f"topics list -b {log.bootstrap_servers}")
    rows = json.loads(out("context list --json"))
    assert [(row["context"], row["used"]) for row in rows] == [("here", True), ("there", False)]
    assert out("context use there") == "context there is in use: 127.0.0.1:1\n"
    assert "there    yes" in out("context list")
    assert out("context remove there") == "context there is removed; none is in use\n"
    monkeypatch.delenv("DLEDGER_BOOTSTRAP")
    monkeypatch.delenv("DLEDGER_CONTEXT")
    assert "which group? Give --bootstrap HOST:PORT" in refusal("topics list")


def test_unknown_context_names_the_nearest(no_group: None, own_config: Path) -> None:
    assert f"{own_config} has no context; make one: dledger context add" in refusal("context list")
    out("context add prod -b 127.0.0.1:1")
    said = f"there is no context 'prd' (did you mean 'prod'?) in {own_config}; there are: prod; "
    for command in ("status --context prd", "context use prd", "context remove prd"):
        assert said + "make one: dledger context add prd -b" in refusal(command)


def test_context_whose_group_is_gone_says_how_to_change_it(no_group: None, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    out(f"context add prod -b {gone}")
    for command in ("status", "topics list", "tail orders", "groups"):
        said = refusal(command)
        assert f"{gone}: there is no group in this directory" in said
        assert "; context 'prod' stands for this group: where it is another one by now, " in said
        assert "dledger context add prod -b HOST:PORT,...|DIR, or remove it" in said
    assert "context 'prod'" not in refusal(f"status -b {gone}")


def test_files_of_a_context_are_those_of_its_client(
    no_group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CA", "CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"DLEDGER_TLS_{name}", str(tmp_path / "of-the-environment"))
    monkeypatch.chdir(tmp_path)
    out("context add prod -b 127.0.0.1:1 --tls-ca ca --tls-certificate own --tls-key key")
    assert json.loads(out("context list --json"))[0]["tls_ca"] == str(tmp_path / "ca")
    assert f"{tmp_path}/ca" in refusal("status --timeout 0.2")
    assert f"{tmp_path}/of-the-environment" in refusal("status -b 127.0.0.1:1 --timeout 0.2")


def test_rack_of_a_command_is_its_contexts_or_the_environments(
    no_group: None, own_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str | None] = []

    def client(addresses: str, **settings: str) -> None:
        found.append(settings.get("rack"))
        raise ConfigError("enough")

    monkeypatch.setattr("dledger.client.Client", client)
    monkeypatch.delenv("DLEDGER_RACK", raising=False)
    assert "rack 'a b': use 1 to 63" in refusal("context add prod -b 127.0.0.1:1 --rack 'a b'")
    out("context add prod -b 127.0.0.1:1 --rack east")
    assert json.loads(out("context list --json"))[0]["rack"] == "east"
    for rack in ("", "west"):
        monkeypatch.setenv("DLEDGER_RACK", rack)
        assert "enough" in refusal("status")
        assert "enough" in refusal("status -b 127.0.0.1:1")
    assert found == ["east", None, "east", "west"]
    own_config.write_text('[contexts.prod]\nbootstrap = "a:1"\nrack = ""\n')
    assert "contexts.prod: rack '': use 1 to 63" in refusal("status --context prod")


def test_changes_keep_comments_and_links_of_the_file(own_config: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(
        '# mine\n[options]\ntimeout = 3  # slow net\n\n[contexts.a]\nbootstrap = "b:1"\n'
    )
    own_config.symlink_to(real)
    out("context add b -b c:1 --use")
    out("context remove a")
    text = real.read_text()
    assert "# mine\n" in text
    assert "timeout = 3  # slow net\n" in text
    assert "[contexts.a]" not in text
    assert json.loads(out("context list --json")) == [
        {"context": "b", "used": True, "bootstrap": "c:1"}
    ]
    assert own_config.is_symlink()


def test_options_of_the_file_are_defaults(named_log: InProcessGroup, own_config: Path) -> None:
    named_log.client().create_topic("defaults")
    named_log.client().append("defaults", [b"%d" % at for at in range(9)])
    own_config.write_text('[options]\npartition = 0\n[options.tail]\nfrom = "-2"\n')
    assert out("tail defaults") == "7\n8\n"
    assert out("tail defaults --from -1") == "8\n"
    own_config.write_text("[options.topics.create]\npartitions = 4\n")
    assert "4 partitions" in out("topics create by-default")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is no TOML: "),
        ("[option]", "unknown option (did you mean 'options'?)"),
        ("[contexts.a]\nbootstrp = ''", "unknown contexts.a.bootstrp (did you mean 'bootstrap'?)"),
        ("[contexts.a]\ntls_ca = 'x'", "contexts.a has no bootstrap: HOST:PORT,... or a directory"),
        ("[contexts.a]\nbootstrap = 5", "contexts.a.bootstrap is text, not 5"),
        ("contexts = 5", "contexts is a table, as in [contexts]"),
        ("context = 5", "context is the name of one"),
        ("[options]\ntimeot = 3", "no command has --timeot (did you mean 'timeout'?)"),
        ("[options.tail]\ncont = 3", "options.tail has no option 'cont' (did you mean 'count'?)"),
        (
            "[options.topics]\npartitons = 3",
            "has no option 'partitons' (did you mean 'partitions'?",
        ),
    ],
)
def test_fault_of_the_file_is_named_with_its_place(own_config: Path, text: str, said: str) -> None:
    own_config.write_text(text)
    found = refusal("status -b 127.0.0.1:1")
    assert str(own_config) in found
    assert said in found


def test_completion_is_printed_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    places = {
        "bash": "XDG_DATA_HOME/bash-completion/completions/dledger",
        "zsh": "XDG_DATA_HOME/zsh/site-functions/_dledger",
        "fish": "XDG_CONFIG_HOME/fish/completions/dledger.fish",
    }
    for shell, place in places.items():
        script = out(f"completion {shell}")
        assert "_DLEDGER_COMPLETE" in script
        assert str(tmp_path / place) in out(f"completion {shell} --install")
        assert (tmp_path / place).read_text() == script
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refusal("completion tcsh")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    said = refusal("completion bash --install")
    assert 'add this to the start of your shell: eval "$(dledger completion bash)"' in said


def test_shell_asks_the_command_for_what_may_come() -> None:
    words = {"_DLEDGER_COMPLETE": "bash_complete", "COMP_WORDS": "dledger gr", "COMP_CWORD": "1"}
    script = "import sys; sys.argv[:] = ['dledger']; from dledger.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,groups\n"


@pytest.mark.parametrize(("variables", "colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(variables: dict[str, str], colour: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **variables}
    with open(ours, "rb", buffering=0) as terminal:
        subprocess.run(program("nonsense"), env=environment, stderr=theirs, check=False)
        os.close(theirs)
        said = terminal.read(1 << 16) or b""
    assert (b"\x1b[31mdledger:" in said) == colour
    assert b"No such command" in said
    assert "\x1b" not in refusal("nonsense")
