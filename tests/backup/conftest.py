"""A group with topics, groups, transactions and a typed topic, what is compared of two groups, and
places of backups that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dledger.backup import chunks, copying
from dledger.backup.copying import BackupJob, BackupReport
from dledger.backup.cut import plan_restore
from dledger.backup.repository import Repository
from dledger.backup.restoring import RestoreJob, RestoreReport
from dledger.backup.target import Target, open_target
from dledger.client import Client
from dledger.errors import PathError
from dledger.testing import InProcessGroup
from dledger.types import Index, NodeId

SMALL: dict[str, Any] = {
    "segment_bytes": 256 << 10,
    "max_body_bytes": 64 << 10,
    "index_file_bytes": 32 << 10,
}


def fill(client: Client, turn: int = 0) -> None:
    """Records of all kinds."""
    client.create_topic("plain", partitions=2, if_absent=True)
    client.create_topic("typed", type="typed", if_absent=True)
    for number in range(20):
        client.append("plain", [b"%d-%d" % (turn, number)] * 3, partition=number % 2)
    client.append("typed", [{"id": turn, "name": "x" * 100}])
    with client.transaction("writer", turn) as transaction:
        transaction.append("plain", [b"in a transaction"], partition=0)
    client.commit_offsets("readers", {"plain": {0: 3 + turn, 1: 2}}, reset=True)


def state(client: Client) -> dict[Any, Any]:
    """All that a group says about its topics, records and consumer groups."""
    infos = client.topics()
    found: dict[Any, Any] = {"topics": sorted(infos, key=lambda info: info.name)}
    for info in infos:
        found[info.name] = client.end_offsets(info.name), client.begin_offsets(info.name)
        found[info.name, "rows"] = client.table(info.name)
    found["groups"] = {name: client.group(name).offsets for name in client.groups()}
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def at(place: Any) -> Repository:
    """The backups at a place, which may be a `Target` already."""
    target = open_target(str(place)) if isinstance(place, str | Path) else place
    return Repository(target, sleep=lambda seconds: None)


def back_up(client: Client, place: Any, **more: Any) -> BackupReport:
    return BackupJob(client, at(place), **more).run()


def restore(
    place: Any, directory: Path, last: int | None = None, nodes: int = 3, *topics: str
) -> RestoreReport:
    """The directories of the nodes of a group called test."""
    repository = at(place)
    log = repository.newest()
    end = Index(log.index if last is None else last)
    plan = plan_restore(repository, log, end, repository.manifests()[0])
    directories = {NodeId(f"n{n}"): directory / f"n{n}" for n in range(nodes)}
    job = RestoreJob(repository.target, plan, topics=topics)
    return job.to_directories("test", directories)


def restored(directory: Path, nodes: int = 3) -> InProcessGroup:
    """A group on the directories that `restore` has made."""
    return InProcessGroup(nodes, directory, **SMALL)


@dataclass
class FailingTarget:
    """A place that fails from its ``fails_at``-th call on, or loses what is written then."""

    inner: Target
    fails_at: int = 1 << 30
    loses: str = ""
    """Files with this in their name are lost."""
    calls: int = 0
    url: str = field(default="place")

    def _count(self, name: str) -> None:
        self.calls += 1
        if self.calls > self.fails_at:
            raise PathError(f"{name}: the place fails")

    def sizes(self, folder: str) -> dict[str, int]:
        self._count(folder)
        return self.inner.sizes(folder)

    def read(self, name: str) -> bytes:
        self._count(name)
        return self.inner.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._count(name)
        if not self.loses or self.loses not in name:
            self.inner.write(name, data)

    def remove(self, *names: str) -> None:
        for name in names:
            self._count(name)
            self.inner.remove(name)

    def remove_rests(self, before_s: float) -> None:
        self._count("rests")
        self.inner.remove_rests(before_s)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 2 KiB, so that there are some."""
    for module in (chunks, copying):
        monkeypatch.setattr(module, "CHUNK_BYTES", 2 << 10)
    monkeypatch.setattr(copying, "PIECE_ROWS", 7)


@pytest.fixture
def group() -> Iterator[InProcessGroup]:
    with InProcessGroup(3, **SMALL) as made:
        yield made


@pytest.fixture
def filled(group: InProcessGroup) -> Client:
    client = group.client()
    fill(client)
    return client


@pytest.fixture(scope="module")
def lone() -> Iterator[Client]:
    """A group of one node that no test writes to."""
    with InProcessGroup(1, **SMALL) as made:
        client = made.client()
        fill(client)
        yield client


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"
