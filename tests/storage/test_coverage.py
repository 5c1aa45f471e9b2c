"""What a sync covers, and a disk that sees to it that a store calls nothing else durable."""

from __future__ import annotations

import pytest

from dledger.errors import StorageError
from dledger.storage.background import BackgroundState
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.meta.recovery_point import RecoveryPoints
from verification.disk import coverage
from verification.disk.coverage import Coverage, Uncovered


@pytest.fixture
def store(kit, disk):
    """Does nothing in the background but what a test asks for."""
    return kit.open(disk, BackgroundState.MANUAL)


def test_a_sync_covers_the_writes_that_had_ended_when_it_began():
    file = Coverage()
    file.wrote(file.writing(0, 10))
    under_way = file.writing(10, 20)
    sync = file.begin()
    file.wrote(file.writing(20, 30))
    file.wrote(under_way)
    assert file.open_in(0, 100) == 0
    file.ended(sync)
    assert file.open_in(0, 100) == 10
    assert file.open_in(0, 10) is None
    assert file.open_in(25, 100) == 25
    file.ended(file.begin())
    assert not file


def test_a_write_that_has_not_ended_is_covered_by_no_sync():
    file = Coverage()
    number = file.writing(0, 10)
    file.ended(file.begin())
    assert file.open_in(0, 1) == 0
    file.wrote(number)
    file.ended(file.begin())
    assert not file


def test_bytes_of_a_failed_sync_are_covered_by_no_later_sync():
    """Bytes that were cut off need no sync."""
    file = Coverage()
    for low in range(0, 50, 10):
        file.wrote(file.writing(low, low + 10))
    sync = file.begin()
    file.wrote(file.writing(50, 60))
    file.failed(sync)
    file.ended(file.begin())
    assert (file.open_in(0, 60), file.open_in(50, 60)) == (0, None)
    file.cut(15)
    assert (file.open_in(14, 60), file.open_in(15, 60)) == (14, None)


def test_a_store_that_calls_entries_durable_without_a_sync_is_found_out(kit, monkeypatch, store):
    kit.fill(store, [60])
    monkeypatch.setattr(SegmentFiles, "sync", lambda files: None)
    reason = "no sync covers byte 108, but 0 to 216 are called durable"
    with pytest.raises(Uncovered, match=reason):
        kit.fill(store, [60])
    assert [f"{kit.root}/data/{0:020d}: {reason}"] == coverage.FOUND
    coverage.FOUND.clear()
    assert store.durable.index == 0


def test_a_store_that_calls_index_units_synced_without_a_sync_is_found_out(kit, disk, monkeypatch):
    monkeypatch.setattr("dledger.storage.file_store.INDEXED_EVERY", 0)
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [60])
    monkeypatch.setattr(SegmentFiles, "sync", lambda files: None)
    with pytest.raises(Uncovered, match=r"index/.* 0 to 32 are called durable"):
        store.keep()
    coverage.FOUND.clear()


def test_tail_of_a_failed_sync_is_covered_when_the_store_is_reopened(kit, disk, monkeypatch, store):
    kit.append(store, [60])
    disk.fail("fdatasync", "data/")
    with pytest.raises(StorageError, match="sync"):
        store.sync()
    disk.reboot(power=False)
    monkeypatch.setattr(SegmentFiles, "rewrite", lambda files, start, keep: None)
    with pytest.raises(Uncovered, match="0 to 108 are called durable"):
        kit.open(disk)
    coverage.FOUND.clear()
    monkeypatch.undo()
    disk.reboot(power=False)
    assert kit.open(disk).durable.index == 0


def test_a_mark_that_is_raised_while_its_sync_is_under_way_is_found_out(kit, disk, store):
    kit.append(store, [60])
    found: list[str] = []

    def raise_the_mark() -> None:
        marks: RecoveryPoints = store._marks
        try:
            marks.raise_to(store.end, marks.mark.commit)
        except Uncovered as error:
            found.append(str(error))

    disk.meanwhile.append(("fdatasync", "data/", raise_the_mark))
    store.sync()
    assert found == coverage.FOUND
    assert len(found) == 1
    coverage.FOUND.clear()
