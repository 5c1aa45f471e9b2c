"""The newest units of the index wait in memory, and are found all the same."""

from __future__ import annotations

import pytest

from dledger.storage import file_store
from dledger.storage.background import BackgroundState
from dledger.storage.log import index
from dledger.storage.log.index import UNIT_SIZE, LogIndexUnit
from dledger.types import Index


@pytest.fixture(autouse=True)
def five_units_wait(each_unit_is_written: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "WAITING_UNITS", 6)


def written(kit, disk) -> int:
    """How many units the index file has."""
    data = disk.names[kit.root / "index" / f"{0:020d}"].written
    return sum(bool(any(data[at : at + UNIT_SIZE])) for at in range(0, len(data), UNIT_SIZE))


def test_units_are_written_when_enough_of_them_wait(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [60] * 5)
    assert written(kit, disk) == 0
    entries += kit.fill(store, [60] * 2)
    assert written(kit, disk) == 7
    for entry in entries:
        assert store._index.get(entry.index) == LogIndexUnit.of(entry)
        assert kit.bytes_of(store.read(entry.index, 0)) == kit.bytes_of([entry])
    assert store._index.get(entries[-1].index + 1) is None


def test_units_of_several_runs_wait_and_each_is_found(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = [*kit.fill(store, [60, 70]), *kit.fill(store, [80, 90, 100])]
    assert written(kit, disk) == 0
    assert [store._index.get(entry.index) for entry in entries] == list(
        map(LogIndexUnit.of, entries)
    )


def test_waiting_units_are_durable_before_the_index_is_called_so(kit, disk, monkeypatch):
    """A power cut behind that finds nothing to put again."""
    monkeypatch.setattr(file_store, "INDEXED_EVERY", 0)
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [60] * 3)
    store.sync()
    store.keep()
    store = kit.restart(disk, power=True)
    assert not store.recovery.rebuilt
    assert [store._index.get(entry.index) for entry in entries] == list(
        map(LogIndexUnit.of, entries)
    )


def test_a_clean_end_leaves_no_unit_in_memory(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [60] * 3)
    store.close()
    assert written(kit, disk) == 3


def test_units_that_a_killed_process_kept_are_made_from_the_data(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [60] * 3)
    store = kit.restart(disk, power=False)
    assert written(kit, disk) == 3
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)


@pytest.mark.parametrize("then", ["truncate", "keep", "close"])
def test_waiting_units_that_retention_overtakes_are_not_missed(kit, disk, monkeypatch, then):
    """Their file goes with the entries, before they were written to it."""
    monkeypatch.setattr(index, "WAITING_UNITS", 512)
    monkeypatch.setattr(file_store, "INDEXED_EVERY", 0)
    store = kit.open(disk, BackgroundState.MANUAL, retention_bytes=2 * kit.segment)
    count = store._index.files.file_size // UNIT_SIZE + 6
    entries = kit.fill(store, [252] * count)
    store.sync()
    store.retain(entries[-1].index, 0, 0)
    assert store._index.files.starts[0] > 0
    if then == "truncate":
        store.truncate(Index(count - 2))
    elif then == "keep":
        store.keep()
    else:
        kit.close_sound(store, disk)
        return
    kept = [entry for entry in entries[: count - 1] if entry.index >= store.begin_index]
    assert kit.bytes_of(kit.all(store))[: len(kept)] == kit.bytes_of(kept)


def test_waiting_units_of_cut_entries_are_not_found(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [60] * 4)
    store.truncate(Index(1))
    assert store._index.get(2) is None
    more = kit.fill(store, [90], term=2)
    assert store._index.get(2) == LogIndexUnit.of(more[0])
