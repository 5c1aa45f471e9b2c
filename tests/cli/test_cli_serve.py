"""``dledger serve`` as a process: it serves, ends on SIGTERM, and says in one line why it
cannot."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger import Client
from dledger.embedded.ports import free_ports
from tests.cli.commands import process, program, refused, serving

pytestmark = pytest.mark.cluster


def serve(port: int, directory: Path, options: str = "") -> str:
    return serving(f"n0-127.0.0.1:{port}", "n0", directory, options)


@contextmanager
def node(command: list[str], port: int, log: str = "") -> Iterator[Client]:
    """A client of a node that serves until SIGTERM, and whose log has these words."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        with Client(f"127.0.0.1:{port}") as client:
            yield client
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0
    assert log in said


def test_node_serves_until_it_is_asked_to_end(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    command = program(serve(port, tmp_path / "n0", "--group orders"))
    with node(command, port, log="orders") as client:
        client.create_topic("t")
        assert client.append("t", b"x").end == 1
    assert "orders" in refused(serve(port, tmp_path / "n0"))


def test_node_has_more_partitions_than_its_shell_allows_open_files(tmp_path: Path) -> None:
    port, partitions = free_ports("127.0.0.1", 1)[0], 150
    limited = ["sh", "-c", 'ulimit -Sn 100 && exec "$@"', "sh"]
    with node([*limited, *program(serve(port, tmp_path / "n0"))], port) as client:
        client.create_topic("t", partitions)
        with client.transaction("one of each", 0) as transaction:
            for partition in range(partitions):
                transaction.append("t", b"x", partition=partition)
        assert client.end_offsets("t") == dict.fromkeys(range(partitions), 1)


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert refused(serve(port, tmp_path / "n0")).startswith(f"dledger: 127.0.0.1:{port}")


def test_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "n0").write_text("")
    refused(serve(free_ports("127.0.0.1", 1)[0], tmp_path / "n0"))


def test_single_node_that_lost_entries_goes_on_with_the_index_it_names(
    tmp_path: Path,
) -> None:
    """Its newest catalog sums up entries that are gone, so that it goes back to an older one, or to
    the log."""
    port, directory = free_ports("127.0.0.1", 1)[0], tmp_path / "n0"
    lost = ("data", "index", "mark")
    # each start saves what is committed with its new term
    for value in (b"kept", b"lost", b"lost too"):
        with node(program(serve(port, directory)), port) as client:
            client.create_topic("t", if_absent=True)
            client.append("t", value)
        if value == b"kept":
            for name in lost:
                subprocess.run(["cp", "-a", directory / name, tmp_path / name], check=True)
    for name in lost:
        subprocess.run(["rm", "-r", directory / name], check=True)
        subprocess.run(["cp", "-a", tmp_path / name, directory / name], check=True)
    said = refused(serve(port, directory))
    assert "the disk has lost them" in said
    index = said.partition("--accept-loss ")[2].partition("'")[0]
    other = process(serve(port, directory, f"--accept-loss {int(index) + 1}"))
    assert f"its log ends at entry {index}" in other.stderr
    for options in (f"--accept-loss {index}", ""):
        with node(program(serve(port, directory, options)), port) as client:
            assert client.end_offsets("t") == {0: 1}
            rows = [row for batch in client.read("t", 0, 0, 1) for row in batch.to_pylist()]
            assert [row["value"] for row in rows] == [b"kept"]


def test_settings_of_a_file_change_while_the_node_runs(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    file = tmp_path / "node.toml"
    text = (
        f'[group]\npeers = "n0-127.0.0.1:{port}"\n[node]\nself_id = "n0"\n'
        f'directory = "{tmp_path}/n0"\n[logs]\nlog_level = "LEVEL"\n'
    )
    file.write_text(text.replace("LEVEL", "info"))
    command = program(f"serve --config {file}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("listens on" in line for line in running.stderr)
        file.write_text(text.replace("LEVEL", "debug"))
        running.send_signal(signal.SIGHUP)
        assert any("log_level is 'debug', was 'info'" in line for line in running.stderr)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert running.returncode == 0
