"""``dledger secret`` and ``serve --secret-file``: the file is made, and refused where it tells
strangers."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dledger import Client
from dledger.embedded.ports import free_ports
from tests.cli.commands import out, process, program, refusal, refused, serving

pytestmark = pytest.mark.cluster


@contextmanager
def nodes(ports: list[int], directory: Path, options: str = "") -> Iterator[str]:
    """A group of real nodes; its addresses."""
    peers = ";".join(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(ports))
    with ExitStack() as running:
        started = []
        for name in (f"n{at}" for at in range(len(ports))):
            words = serving(peers, name, directory / name, options)
            node = subprocess.Popen(program(words), stderr=subprocess.DEVNULL)
            started.append(running.enter_context(node))
        for node in started:  # all of them, before it is waited for their ends
            running.callback(node.send_signal, signal.SIGTERM)
        yield ",".join(f"127.0.0.1:{port}" for port in ports)


def test_secret_is_made_once_and_readable_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    done, again = [process(f"secret create {path}") for _ in range(2)]
    assert done.returncode == 0
    assert "--secret-file" in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert path.read_text().strip() not in done.stdout + done.stderr + again.stderr


def all_connected(status: dict[str, Any]) -> bool:
    """Whether each node has a connection to each other one."""
    return all(all(state.get("peers_connected", {"": False}).values()) for state in status.values())


@pytest.mark.parametrize("named", [False, True])
def test_nodes_on_one_machine_need_no_further_step(tmp_path: Path, named: bool) -> None:
    options = ""
    if named:
        out(f"secret create {tmp_path}/secret")
        options = f"--secret-file {tmp_path}/secret"
    ports = free_ports("127.0.0.1", 3)
    with nodes(ports, tmp_path, options) as servers, Client(servers) as client:
        client.create_topic("t")
        assert client.append("t", b"x").end == 1
        while not all_connected(status := json.loads(out(f"status --json -b {servers}"))):
            pass
        assert sorted(status) == ["n0", "n1", "n2"]
        proved = {"has": True, "required": True, "unproved": []}
        assert [state["secret"] for state in status.values()] == [proved] * 3
        said = out(f"secret enforce -b {servers}")
        assert said == "every member has to prove the secret now\n"


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
    peers = f"n0-127.0.0.1:{port};n1-127.0.0.1:{port + 1}"
    last = refused(serving(peers, "n0", tmp_path / "n0", f"--secret-file {path}"))
    assert said in last
    assert str(path) in last


def test_node_that_other_machines_can_reach_wants_a_secret(tmp_path: Path) -> None:
    peers = "n0-127.0.0.1:7001;n1-10.1.2.3:7002"
    assert "dledger secret create FILE" in refused(serving(peers, "n0", tmp_path / "n0"))
    assert not (tmp_path / "n0").exists()


def test_clients_name_the_secret_where_they_are_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "secret")
    out(f"secret create {path}")
    options = f"--secret-file {path} --set clients_prove=true"
    with nodes(free_ports("127.0.0.1", 1), tmp_path, options) as servers:
        with Client(servers, secret_file=path) as client:
            client.create_topic("t")
        said = "takes only programs that have its secret"
        assert said in refusal(f"topics list -b {servers}")
        monkeypatch.setenv("DLEDGER_SECRET_FILE", path)
        out(f"topics list -b {servers}")


def test_no_member_is_shut_out_by_mistake(tmp_path: Path) -> None:
    """A group of one has no member to know, and so no secret."""
    with nodes(free_ports("127.0.0.1", 1), tmp_path) as servers:
        with Client(servers) as client:
            client.create_topic("t")
        said = "n0, which leads, has no secret itself"
        assert said in refusal(f"secret enforce -b {servers}")
