"""Whole expired files go, from the front; nothing unexpired does, however full the disk is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.storage.api import Held
from dledger.types import Index
from tests.storage.conftest import SEGMENT
from verification.disk.memory_disk import MemoryDisk, kills

HOUR = 3_600_000


def aged_store(kit, disk, **settings):
    """Five files of two entries each, an hour between them, and one entry in a sixth. A file's time
    is that of its padding, which is written with the first entry of the next one."""
    store = kit.open(disk, **settings)
    start = disk.now_ms
    for _ in range(5):
        kit.fill(store, [400, 400])
        disk.now_ms += HOUR
    kit.fill(store, [100])
    return store, start


def test_files_older_than_retention_go(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=2 * HOUR)
    assert store.retain(Index(100), start + 3 * HOUR - 1, 0) == 0
    assert store.retain(Index(100), start + 3 * HOUR, 0) == 2
    assert store.retain(Index(100), start + 5 * HOUR, 0) == 6
    assert [e.index for e in kit.all(store)] == list(range(6, 11))
    assert store.begin_index == 6
    assert store.terms == ((1, 6),)


def test_oldest_files_go_while_all_are_too_large_together(kit, disk):
    store, start = aged_store(kit, disk, retention_bytes=4 * kit.segment)
    assert len(disk.listdir(kit.root / "data")) == 6
    assert store.retain(Index(100), start, 0) == 4
    assert len(disk.listdir(kit.root / "data")) == 4


def test_last_file_never_goes_and_nothing_above_the_limit(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=1)
    assert store.retain(Index(2), start + 99 * HOUR, 0) == 2
    assert store.retain(Index(3), start + 99 * HOUR, 0) == 4
    assert store.retain(Index(100), start + 99 * HOUR, 0) == 10
    assert [e.index for e in kit.all(store)] == [10]


def test_files_go_only_in_the_hours_of_delete_when(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=1, delete_when="04;16")
    assert store.retain(Index(100), start + 99 * HOUR, 5) == 0
    assert store.retain(Index(1), start + 99 * HOUR, 16) == 2
    disk.free = disk.total // 20  # 95 % used: at once, whatever the hour
    assert store.retain(Index(3), start + 99 * HOUR, 5) == 4


def test_D12_full_disk_deletes_nothing_unexpired(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=10 * HOUR)
    disk.free = 0
    assert store.retain(Index(100), start + 5 * HOUR, 0) == 0
    assert [e.index for e in kit.all(store)] == list(range(11))


@pytest.mark.parametrize(
    ("holds", "age_ms", "begin", "kept"),
    [
        ([], 20 * HOUR, 10, []),
        ([Held(Index(5), 100 * HOUR)], 20 * HOUR, 4, [(3, 9)]),
        ([Held(Index(9), 100 * HOUR)], 20 * HOUR, 8, [(1, 9)]),
        ([Held(Index(0), 2 * HOUR)], 4 * HOUR - 1, 0, [(2, 3)]),
        # and the two files behind those that stay are not expired yet
        ([Held(Index(0), 2 * HOUR)], 4 * HOUR, 2, [(2, 5)]),
        ([Held(Index(0), 99 * HOUR, 2 * SEGMENT)], 20 * HOUR, 6, [(2, 9)]),
        ([Held(Index(0), 2 * HOUR), Held(Index(5), 100 * HOUR)], 20 * HOUR, 4, [(0, -1), (3, 9)]),
    ],
    ids=[
        "none",
        "from an entry",
        "from a last entry",
        "not too old",
        "too old",
        "too large",
        "two",
    ],
)
def test_expired_files_are_held_back_while_they_may_be(kit, disk, holds, age_ms, begin, kept):
    """By any of those who want their entries."""
    store, start = aged_store(kit, disk, retention_ms=HOUR)
    holds = [replace(held) for held in holds]
    assert store.retain(Index(100), start + age_ms, 0, holds) == begin
    assert [(held.bytes, held.last) for held in holds] == [
        (files * SEGMENT, last) for files, last in kept
    ]


def test_nothing_is_held_on_a_disk_that_gets_full_or_where_nobody_may(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=HOUR)
    assert store.retain(Index(2), start + 20 * HOUR, 0, [Held(Index(0), 0)]) == 2
    store, start = aged_store(kit, fuller := MemoryDisk(), retention_ms=HOUR)
    assert store.retain(Index(2), start + 20 * HOUR, 0, [Held(Index(0), 100 * HOUR)]) == 0
    fuller.free = fuller.total // 20
    assert store.retain(Index(2), start + 20 * HOUR, 0, [held := Held(Index(0), 100 * HOUR)]) == 2
    assert held.bytes == 0


def test_nothing_goes_without_a_rule(kit, disk):
    store, start = aged_store(kit, disk)
    assert store.retain(Index(100), start + 9999 * HOUR, 0) == 0


def test_index_files_go_with_the_data(kit, disk):
    store = kit.open(disk, retention_ms=1)
    kit.fill(store, [50] * 60)
    disk.now_ms += HOUR
    kit.fill(store, [400] * 3)
    begin = store.retain(Index(59), disk.now_ms + HOUR, 0)
    assert begin > 40
    first = min(int(name) for name in disk.listdir(kit.root / "index"))
    assert first == begin * 32 // 320 * 320


def test_retained_store_reopens_and_goes_on(kit, disk):
    store, start = aged_store(kit, disk, retention_ms=1)
    store.retain(Index(5), start + 99 * HOUR, 0)
    store = kit.reopen(store, disk)
    assert (store.begin_index, store.end.position.index) == (6, 10)
    assert store.terms == ((1, 6),)
    more = kit.fill(store, [500, 500], term=3)
    assert store.terms == ((1, 6), (3, 11))
    assert kit.bytes_of(kit.all(store))[-2:] == kit.bytes_of(more)
    kit.close_sound(store, disk)


@pytest.mark.parametrize("outcome", ["process", "lost", "seed"])
def test_crash_in_retention_leaves_a_log_that_starts_at_a_file(kit, outcome):
    """The crash comes at every operation of the retention."""

    def aged():
        disk = MemoryDisk()
        store, start = aged_store(kit, disk, retention_ms=1)
        return disk, store, start + 99 * HOUR, kit.bytes_of(kit.all(store))

    def retain(_, store, now_ms, entries):
        store.retain(Index(7), now_ms, 0)

    for step, (disk, _, _, entries) in enumerate(kills(aged, retain)):
        kit.crash(disk, outcome, step)
        store = kit.open(disk, retention_ms=1)
        assert store.begin_index in (0, 2, 4, 6, 8)
        assert kit.bytes_of(kit.all(store)) == entries[store.begin_index :]
        kit.fill(store, [30], term=2)
        kit.close_sound(store, disk)
