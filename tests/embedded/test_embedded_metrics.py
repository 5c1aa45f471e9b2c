"""Metrics of the nodes of a path: asked for, at ports of their own, for the owner alone."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.embedded.ports import free_ports

pytestmark = pytest.mark.cluster
SMALL = {"segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}


def first_of_three() -> int:
    """A port that is free together with the two behind it."""
    while True:
        (port,) = free_ports("127.0.0.1", 1)
        try:
            for each in range(port, port + 3):
                socket.create_server(("127.0.0.1", each)).close()
        except OSError:
            continue
        return port


def status_of(port: int, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_nodes_of_a_path_answer_their_owner_at_ports_of_their_own(log_path: Path) -> None:
    port = first_of_three()
    with EmbeddedGroup(log_path, replicas=3, metrics_port=port, **SMALL) as group:
        tokens = set()
        for number, node in enumerate(("n0", "n1", "n2")):
            file = log_path / node / "metrics.token"
            assert file.stat().st_mode & 0o777 == 0o600
            tokens.add(file.read_text().strip())
            for path in ("/metrics", "/livez", "/readyz"):
                assert status_of(port + number, path) == 401
                assert status_of(port + number, path, file.read_text().strip()) == 200
        assert len(tokens) == 1
        with Client(group.bootstrap_servers) as client:
            told = {state["metrics_port"] for state in client.status().values()}
        assert told == {port, port + 1, port + 2}


def test_nodes_of_a_path_serve_no_metrics_unless_asked_to(log_path: Path) -> None:
    with (
        EmbeddedGroup(log_path, replicas=1, **SMALL) as group,
        Client(group.bootstrap_servers) as client,
    ):
        assert "metrics_port" not in client.status()["n0"]
        assert not (log_path / "n0" / "metrics.token").exists()
