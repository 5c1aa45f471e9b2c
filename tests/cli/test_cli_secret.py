"""``dledger secret`` and ``serve --secret-file``: the file is made, and refused where it tells
strangers."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dledger import Client
from dledger.embedded.ports import free_ports

pytestmark = pytest.mark.cluster


def dledger(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dledger", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def nodes(ports: list[int], directory: Path, *options: str) -> Iterator[str]:
    """A group of real nodes; its addresses."""
    peers = ";".join(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(ports))
    small = ["--set", f"segment_bytes={16 << 20}", "--set", f"index_file_bytes={1 << 20}"]
    with ExitStack() as running:
        started = []
        for at in range(len(ports)):
            command = [
                sys.executable,
                "-m",
                "dledger",
                "serve",
                "--self-id",
                f"n{at}",
                "--peers",
                peers,
                "--dir",
                str(directory / f"n{at}"),
                *small,
                *options,
            ]
            started.append(
                running.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            )
        try:
            yield ",".join(f"127.0.0.1:{port}" for port in ports)
        finally:
            for node in started:
                node.send_signal(signal.SIGTERM)


def test_secret_is_made_once_and_readable_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    done = dledger("secret", "create", str(path))
    assert done.returncode == 0
    assert "--secret-file" in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = dledger("secret", "create", str(path))
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert path.read_text().strip() not in done.stdout + done.stderr + again.stderr


def all_connected(status: dict[str, Any]) -> bool:
    """Whether each node has a connection to each other one."""
    return all(all(state.get("peers_connected", {"": False}).values()) for state in status.values())


@pytest.mark.parametrize("named", [False, True])
def test_nodes_on_one_machine_need_no_further_step(tmp_path: Path, named: bool) -> None:
    options: tuple[str, ...] = ()
    if named:
        assert dledger("secret", "create", str(tmp_path / "secret")).returncode == 0
        options = ("--secret-file", str(tmp_path / "secret"))
    with (
        nodes(free_ports("127.0.0.1", 3), tmp_path, *options) as servers,
        Client(servers) as client,
    ):
        client.create_topic("t")
        assert client.append("t", b"x").end == 1
        while not all_connected(
            status := json.loads(dledger("status", "--json", "-b", servers).stdout)
        ):
            pass
        assert sorted(status) == ["n0", "n1", "n2"]
        assert all(
            state["secret"] == {"has": True, "required": True, "unproved": []}
            for state in status.values()
        )
        done = dledger("secret", "enforce", "-b", servers)
        assert (done.returncode, done.stdout) == (0, "every member has to prove the secret now\n")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "dledger secret create"),
        (b"", 0o600, "is empty"),
        (b"x" * 64, 0o644, "chmod 600"),
    ],
)
def test_node_with_a_file_that_is_no_secret_does_not_start(
    tmp_path: Path, content: bytes | None, mode: int, said: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    port = free_ports("127.0.0.1", 1)[0]
    refused = dledger(
        "serve",
        "--self-id",
        "n0",
        "--peers",
        f"n0-127.0.0.1:{port};n1-127.0.0.1:{port + 1}",
        "--dir",
        str(tmp_path / "n0"),
        "--secret-file",
        str(path),
    )
    assert refused.returncode == 2
    assert said in refused.stderr.splitlines()[-1]
    assert str(path) in refused.stderr.splitlines()[-1]


def test_node_that_other_machines_can_reach_wants_a_secret(tmp_path: Path) -> None:
    peers = "n0-127.0.0.1:7001;n1-10.1.2.3:7002"
    refused = dledger("serve", "--self-id", "n0", "--peers", peers, "--dir", str(tmp_path / "n0"))
    assert refused.returncode == 2
    assert "dledger secret create FILE" in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "n0").exists()


def test_clients_name_the_secret_where_they_are_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "secret")
    assert dledger("secret", "create", path).returncode == 0
    options = ("--secret-file", path, "--set", "clients_prove=true")
    with nodes(free_ports("127.0.0.1", 1), tmp_path, *options) as servers:
        with Client(servers, secret_file=path) as client:
            client.create_topic("t")
        refused = dledger("topics", "list", "-b", servers)
        assert refused.returncode == 2
        assert "takes only programs that have its secret" in refused.stderr
        monkeypatch.setenv("DLEDGER_SECRET_FILE", path)
        assert dledger("topics", "list", "-b", servers).returncode == 0


def test_no_member_is_shut_out_by_mistake(tmp_path: Path) -> None:
    """A group of one has no member to know, and so no secret."""
    with nodes(free_ports("127.0.0.1", 1), tmp_path) as servers:
        with Client(servers) as client:
            client.create_topic("t")
        refused = dledger("secret", "enforce", "-b", servers)
    assert refused.returncode == 2
    assert "n0, which leads, has no secret itself" in refused.stderr
