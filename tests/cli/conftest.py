"""One small group for all tests of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    path = tmp_path_factory.mktemp("cli") / "log"
    with EmbeddedGroup(path, replicas=3, segment_bytes=16 << 20, index_file_bytes=1 << 20) as group:
        yield group


@pytest.fixture
def stopped_node(tmp_path: Path) -> Path:
    """The directory of a node that holds three records and does not run."""
    path = tmp_path / "log"
    small = {"segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}
    with (
        EmbeddedGroup(path, replicas=1, **small) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        for value in (b"first", b"second", b"third"):
            client.append("t", value)
    return path / "n0"
