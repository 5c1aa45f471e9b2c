"""One small group for all tests of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.testing import InProcessGroup
from tests.cli.commands import SMALL


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    path = tmp_path_factory.mktemp("cli") / "log"
    with EmbeddedGroup(path, replicas=3, **SMALL) as group:
        yield group


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the contexts and options of whoever runs it."""
    monkeypatch.setenv("DLEDGER_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("DLEDGER_CONTEXT", raising=False)
    return tmp_path / "config.toml"


@pytest.fixture(scope="module")
def log() -> Iterator[InProcessGroup]:
    """One node in this process."""
    with InProcessGroup(1) as group:
        yield group


@pytest.fixture
def named_log(log: InProcessGroup, monkeypatch: pytest.MonkeyPatch) -> InProcessGroup:
    """Commands find the node without ``--bootstrap``."""
    monkeypatch.setenv("DLEDGER_BOOTSTRAP", log.bootstrap_servers)
    return log


@pytest.fixture
def named_group(group: EmbeddedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the group without ``--bootstrap``."""
    monkeypatch.setenv("DLEDGER_BOOTSTRAP", group.bootstrap_servers)


@pytest.fixture
def stopped_node(tmp_path: Path) -> Path:
    """The directory of a node that holds three records and does not run."""
    path = tmp_path / "log"
    with (
        EmbeddedGroup(path, replicas=1, **SMALL) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        for value in (b"first", b"second", b"third"):
            client.append("t", value)
    return path / "n0"
