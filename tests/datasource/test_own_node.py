"""The third way to have a group: this application runs one of its nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger import EmbeddedGroup, EmbeddedNode
from dledger.datasource.options.options import parse_options
from dledger.datasource.table.log import find_group
from dledger.embedded.ports import free_ports


@pytest.mark.cluster
def test_options_with_peers_run_this_applications_node(tmp_path: Path) -> None:
    [port] = free_ports("127.0.0.1", 1)
    peers, path = f"n0-127.0.0.1:{port}", str(tmp_path / "n0")
    options = parse_options({"path": path, "dledger.peers": peers, "dledger.selfId": "n0"})
    try:
        address = find_group(options)
        assert address.bootstrap_servers == f"127.0.0.1:{port}"
        address.client().create_topic("t")
        assert find_group(options) == address, "the second one joins the node that runs"
        assert [info.name for info in address.client().topics()] == ["t"]
    finally:
        EmbeddedNode(path=path, peers=peers, self_id="n0").stop()


ELSEWHERE = """
import sys
from dledger.datasource.table.log import Address
address = Address(sys.argv[1], {"secret_file": sys.argv[2]} if sys.argv[2] else {})
try:
    print([info.name for info in address.client().topics()])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.cluster
def test_tasks_elsewhere_come_in_by_the_secret_that_the_option_names(tmp_path: Path) -> None:
    """A group of a path has its own secret, and no other machine knows where: only the option tells
    the tasks."""
    path, copy = tmp_path / "log", tmp_path / "copy"
    with EmbeddedGroup(path, replicas=1) as group:
        copy.write_bytes((path / "secret").read_bytes())
        copy.chmod(0o600)
        address = find_group(parse_options({"path": str(path), "dledger.secret.file": str(copy)}))
        assert address.settings == {"secret_file": str(copy)}
        address.client().create_topic("t")
        elsewhere = {**os.environ, "DLEDGER_USER_DIRECTORY": str(tmp_path / "another machine's")}
        for secret, expected in ((str(copy), "['t']"), ("", "AccessDenied")):
            command = [sys.executable, "-c", ELSEWHERE, group.bootstrap_servers, secret]
            found = subprocess.run(
                command, env=elsewhere, capture_output=True, text=True, check=True
            ).stdout
            assert found.startswith(expected)
        assert "dledger.secret.file" in found
