"""``dledger serve`` as a process: it serves, ends on SIGTERM, and says in one line why it cannot."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dledger import Client
from dledger.embedded.ports import free_ports

pytestmark = pytest.mark.cluster


def serve(port: int, directory: Path, *options: str) -> list[str]:
    small = ["--set", f"segment_bytes={16 << 20}", "--set", f"index_file_bytes={1 << 20}"]
    peers = f"n0-127.0.0.1:{port}"
    arguments = ["serve", "--self-id", "n0", "--peers", peers, "--dir", str(directory), *small, *options]
    return [sys.executable, "-m", "dledger", *arguments]


def test_node_serves_until_it_is_asked_to_end(tmp_path: Path) -> None:
    port = free_ports("127.0.0.1", 1)[0]
    command = serve(port, tmp_path / "n0", "--group", "orders")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        with Client(f"127.0.0.1:{port}") as client:
            client.create_topic("t")
            assert client.append("t", b"x").end == 1
        node.send_signal(signal.SIGTERM)
        _, log = node.communicate(timeout=30)
    assert node.returncode == 0
    assert "orders" in log
    refused = subprocess.run(serve(port, tmp_path / "n0"), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("dledger: ")
    assert "orders" in refused.stderr.splitlines()[-1]


def test_node_has_more_partitions_than_its_shell_allows_open_files(tmp_path: Path) -> None:
    port, partitions = free_ports("127.0.0.1", 1)[0], 150
    command = ["sh", "-c", 'ulimit -Sn 100 && exec "$@"', "sh", *serve(port, tmp_path / "n0")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        with Client(f"127.0.0.1:{port}") as client:
            client.create_topic("t", partitions)
            with client.transaction("one of each", 0) as transaction:
                for partition in range(partitions):
                    transaction.append("t", b"x", partition=partition)
            assert client.end_offsets("t") == dict.fromkeys(range(partitions), 1)
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=30)
    assert node.returncode == 0


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        done = subprocess.run(serve(port, tmp_path / "n0"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"dledger: 127.0.0.1:{port}")
    assert "Traceback" not in done.stderr


def test_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "n0").write_text("")
    command = serve(free_ports("127.0.0.1", 1)[0], tmp_path / "n0")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("dledger: ")
    assert "Traceback" not in done.stderr
