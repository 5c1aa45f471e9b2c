"""``dledger serve`` as a process: it serves, ends on SIGTERM, and says in one line why it
cannot."""

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
    arguments = [
        "serve",
        "--self-id",
        "n0",
        "--peers",
        peers,
        "--dir",
        str(directory),
        *small,
        *options,
    ]
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
    refused = subprocess.run(
        serve(port, tmp_path / "n0"), capture_output=True, text=True, check=False
    )
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
        done = subprocess.run(
            serve(port, tmp_path / "n0"), capture_output=True, text=True, check=False
        )
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


def stop(node: subprocess.Popen[str]) -> None:
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=30)
    assert node.returncode == 0


def test_single_node_that_lost_entries_goes_on_with_the_index_it_names(
    tmp_path: Path,
) -> None:
    """Its newest catalog sums up entries that are gone, so that it goes back to an older one, or to
    the log."""
    port, directory = free_ports("127.0.0.1", 1)[0], tmp_path / "n0"
    lost = ("data", "index", "mark")
    # each start saves what is committed with its new term
    for value in (b"kept", b"lost", b"lost too"):
        with subprocess.Popen(serve(port, directory), stderr=subprocess.PIPE, text=True) as node:
            with Client(f"127.0.0.1:{port}") as client:
                if value == b"kept":
                    client.create_topic("t")
                client.append("t", value)
            stop(node)
        if value == b"kept":
            for name in lost:
                subprocess.run(["cp", "-a", directory / name, tmp_path / name], check=True)
    for name in lost:
        subprocess.run(["rm", "-r", directory / name], check=True)
        subprocess.run(["cp", "-a", tmp_path / name, directory / name], check=True)
    refused = subprocess.run(serve(port, directory), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the disk has lost them" in refused.stderr
    index = refused.stderr.partition("--accept-loss ")[2].partition("'")[0]
    other = serve(port, directory, "--accept-loss", str(int(index) + 1))
    assert (
        f"its log ends at entry {index}"
        in subprocess.run(other, capture_output=True, text=True, check=False).stderr
    )
    for options in (("--accept-loss", index), ()):
        with subprocess.Popen(
            serve(port, directory, *options), stderr=subprocess.PIPE, text=True
        ) as node:
            with Client(f"127.0.0.1:{port}") as client:
                ends = client.end_offsets("t")
                rows = [
                    row["value"] for batch in client.read("t", 0, 0, 1) for row in batch.to_pylist()
                ]
            stop(node)
        assert (ends, rows) == ({0: 1}, [b"kept"])
