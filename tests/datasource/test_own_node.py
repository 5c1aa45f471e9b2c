"""The third way to have a group: this application runs one of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger import EmbeddedNode
from dledger.datasource.log import find_group
from dledger.datasource.options import parse_options
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
