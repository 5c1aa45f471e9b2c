"""A snapshot of the catalog is durable after everything that it sums up, never before."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import StorageError
from dledger.node.checkpoints import Checkpoints
from dledger.storage.meta.snapshots import SNAPSHOTS
from dledger.types import NO_INDEX, NOWHERE, Index, Position, Term
from verification.disk.memory_disk import MemoryDisk

ROOT = Path("/disk/n0")


class HalfDurable:
    """A log of which nothing is durable until it is synced; notes which snapshots were there by
    then."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.durable = NOWHERE
        self.found: list[list[str]] = []
        self._disk = disk

    def sync(self) -> Position:
        self.found.append(self._disk.listdir(ROOT / SNAPSHOTS))
        self.durable = Position(Term(1), Index(7))
        return self.durable


def test_log_is_synced_before_a_snapshot_that_sums_it_up_is_there() -> None:
    """Else a crash would leave a catalog that knows of entries which the log has lost (B22)."""
    disk = MemoryDisk()
    checkpoints, store = Checkpoints(ROOT, disk), HalfDurable(disk)
    checkpoints.save(b"state", Index(7), store)  # type: ignore[arg-type]
    assert store.found == [[]]
    assert checkpoints.index == 7
    checkpoints.save(b"state", Index(7), store)  # type: ignore[arg-type]
    assert len(store.found) == 1, "what is durable is not synced again"


def test_log_that_does_not_come_up_to_the_catalog_leaves_no_snapshot() -> None:
    """A follower applies committed entries from memory while they wait for its disk, which is
    slow."""
    disk = MemoryDisk()
    checkpoints, store = Checkpoints(ROOT, disk), HalfDurable(disk)
    checkpoints.save(b"state", Index(8), store)  # type: ignore[arg-type]
    assert len(store.found) == 1
    assert disk.listdir(ROOT / SNAPSHOTS) == []
    assert checkpoints.index == NO_INDEX
    checkpoints.save(b"state", Index(7), store)  # type: ignore[arg-type]
    assert checkpoints.index == 7


def test_log_that_cannot_be_synced_leaves_no_snapshot() -> None:
    class Broken(HalfDurable):
        def sync(self) -> Position:
            raise StorageError("no")

    disk = MemoryDisk()
    checkpoints = Checkpoints(ROOT, disk)
    with pytest.raises(StorageError):
        checkpoints.save(b"", Index(7), Broken(disk))  # type: ignore[arg-type]
    assert disk.listdir(ROOT / SNAPSHOTS) == []
