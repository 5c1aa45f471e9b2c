"""``dledger users``, as an administrator gives it, and commands that a user gives."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import trustme

from dledger.cli.access import users as command
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal, run
from tests.permit_all import PERMIT_ALL

PASSWORD = "down the rabbit hole"


@pytest.fixture
def user(
    tmp_path: Path, issue: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A group under TLS in a context of its administrator, and what a user has to say to go to it
    without that context."""
    authority = trustme.CA()
    with InProcessGroup(1, **issue(authority=authority)) as group:
        files = issue(authority=authority, nodes=())
        group.client(**files).add_acls(PERMIT_ALL)
        options = " ".join(f"--{name.replace('_', '-')} {path}" for name, path in files.items())
        where = group.bootstrap_servers
        out(f"context add admin -b {where} {options} --use")
        monkeypatch.delenv("DLEDGER_BOOTSTRAP", raising=False)
        yield f"-b {where}"


@pytest.fixture
def as_user(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Gives commands with ``-b`` these credentials."""

    def become(content: str) -> None:
        path = tmp_path / "credentials"
        path.write_text(content)
        path.chmod(0o600)
        ca = next(tmp_path.glob("certificates-*/tls_ca"))
        monkeypatch.setenv("DLEDGER_CREDENTIALS", str(path))
        monkeypatch.setenv("DLEDGER_TLS_CA", str(ca))

    return become  # type: ignore[return-value]


def test_a_user_is_added_lists_topics_is_rotated_and_removed(
    user: str, as_user: Any, tmp_path: Path
) -> None:
    assert out("users add alice --password-file -", PASSWORD + "\nmore") == "user alice is added\n"
    as_user(f"user=alice\npassword={PASSWORD}\n")
    out(f"topics list {user}")
    (tmp_path / "new").write_text("through the looking-glass\n")
    out(f"users rotate alice --password-file {tmp_path / 'new'} --keep 10m")
    out(f"topics list {user}")
    out(f"users rotate alice --password-file {tmp_path / 'new'}")
    assert "no such user, or this is not its password" in refusal(f"topics list {user}")
    as_user("user=alice\npassword=through the looking-glass")
    out(f"topics list {user}")
    assert "with --yes only" in refusal("users remove alice")
    out("users remove alice --yes")
    assert "certificate" in refusal(f"topics list {user}")


def test_a_token_is_printed_once_or_written_for_its_owner_alone(
    user: str, as_user: Any, tmp_path: Path
) -> None:
    out("users add alice --password-file -", PASSWORD)
    printed = out("users token alice --expires 12h").strip()
    as_user(printed)
    out(f"topics list {user}")
    path = tmp_path / "token"
    for _ in range(2):  # it takes the place of the one before
        said = out(f"users token alice --expires 7d --file {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() not in said
    assert not list(tmp_path.glob(".token*"))
    rows = json.loads(out("users list --json"))
    assert [row["user"] for row in rows] == ["alice"] * 4
    assert printed.split("-")[1] == rows[1]["token"]
    for secret in (PASSWORD, printed.split("-", 2)[2]):
        assert secret not in str(rows)
    out(f"users revoke {rows[1]['token']}")
    assert "no such user" in refusal(f"topics list {user}")
    as_user(path.read_text())
    out(f"topics list {user}")


def test_what_cannot_be_is_refused_with_the_way_out(user: str, tmp_path: Path) -> None:
    asked = {
        "users add al/ice --password-file -": "user 'al/ice': use 1 to 127",
        "users add alice": "--password-file FILE",
        "users add alice --password-file nowhere": "nowhere: No such file",
        "users rotate alice --password-file -": "there is no user 'alice'",
        "users remove alice --yes": "there is no user 'alice'",
        "users token alice --expires 12h": "there is no user 'alice'",
        "users token alice --expires soon": "write a time such as",
        "users revoke abc": "there is no token 'abc'",
    }
    for words, said in asked.items():
        assert said in refusal(words, PASSWORD), words
    assert "begin or end with a blank" in refusal("users add alice --password-file -", " 12345678")
    assert "8 characters or more" in refusal("users add alice --password-file -", "short\n")
    out("users add alice --password-file -", PASSWORD)
    assert "rotate it" in refusal("users add alice --password-file -", PASSWORD)
    assert "1 ms to" in refusal("users token alice --expires 9000d")
    assert "No such file or directory; the token is lost" in refusal(
        f"users token alice --expires 1h --file {tmp_path / 'no' / 'token'}"
    )


def test_a_context_names_the_credentials(user: str, tmp_path: Path) -> None:
    out("users add alice --password-file -", PASSWORD)
    out(f"users token alice --expires 1h --file {tmp_path / 'token'}")
    ca = next(tmp_path.glob("certificates-*/tls_ca"))
    out(f"context add alice {user} --tls-ca {ca} --credentials {tmp_path / 'token'}")
    out("topics list --context alice")
    out("users revoke " + (tmp_path / "token").read_text())
    assert "context 'alice'" in refusal("topics list --context alice")


def test_a_password_is_asked_for_on_a_terminal(
    user: str, as_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=terminal))
    monkeypatch.setattr(click, "prompt", lambda *_, **how: PASSWORD * how["hide_input"])
    done = run("users add alice")
    assert done.exit_code == 0, done.output
    assert PASSWORD not in done.output
    as_user(f"user=alice\npassword={PASSWORD}")
    out(f"topics list {user}")
