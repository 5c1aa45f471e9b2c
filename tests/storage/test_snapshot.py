"""Snapshots are there whole or not at all, and the one before stands in for a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import StorageError
from dledger.storage.meta.snapshots import SnapshotFiles
from dledger.types import Index
from verification.disk.memory_disk import MemoryDisk, kills

ROOT = Path("/disk/n0/snapshot")


def test_latest_snapshot_is_loaded_and_two_are_kept(disk):
    files = SnapshotFiles(ROOT, disk)
    assert files.load() is None
    assert files.oldest() is None
    for index in (5, 10, 15):
        files.save(Index(index), b"state %d" % index)
    assert SnapshotFiles(ROOT, disk).load() == (15, b"state 15")
    assert files.load(limit=14) == (10, b"state 10")
    assert files.load(limit=9) is None
    assert files.oldest() == 10
    assert len(disk.listdir(ROOT)) == 2


@pytest.fixture
def files(disk) -> SnapshotFiles:
    files = SnapshotFiles(ROOT, disk)
    files.save(Index(5), b"five")
    files.save(Index(9), b"nine")
    return files


def test_any_damaged_byte_falls_back_to_the_one_before(disk, files):
    path = ROOT / f"{9:020d}"
    for offset in range(len(disk.content(path))):
        disk.flip(path, offset, 0x20)
        assert files.load() == (5, b"five")
        assert str(path) in files.skipped[0]
        disk.flip(path, offset, 0x20)
    assert files.load() == (9, b"nine")
    assert files.skipped == []


def test_snapshot_cut_short_anywhere_falls_back_to_the_previous_one(disk, files):
    content = disk.content(ROOT / f"{9:020d}")
    while content:
        del content[-1]
        assert files.load() == (5, b"five"), len(content)


@pytest.mark.parametrize("outcome", ["process", "lost", "survived", "seed"])
def test_crash_at_every_operation_gives_the_old_or_the_new_one(kit, outcome):
    def prepared() -> tuple[MemoryDisk, SnapshotFiles]:
        disk = MemoryDisk()
        files = SnapshotFiles(ROOT, disk)
        files.save(Index(1), b"one")
        files.save(Index(2), b"two")
        return disk, files

    def save(_: MemoryDisk, files: SnapshotFiles) -> None:
        files.save(Index(3), bytes(5000))

    for step, (disk, _) in enumerate(kills(prepared, save)):
        kit.crash(disk, outcome, step)
        again = SnapshotFiles(ROOT, disk)
        assert again.load() in ((2, b"two"), (3, bytes(5000)))
        again.save(Index(3), b"three")
        assert again.load() == (3, b"three")


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "rename", "fsync_dir"])
def test_D2_failing_disk_is_a_storage_error_and_the_old_one_stays(disk, files, operation):
    disk.fail(operation)
    with pytest.raises(StorageError, match="this node stops"):
        files.save(Index(12), b"twelve")
    disk.reboot(power=True)
    assert SnapshotFiles(ROOT, disk).load() == (9, b"nine")
