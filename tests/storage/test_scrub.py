"""Rot is found by reading everything, also where nobody else reads."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from dledger.errors import StorageError
from dledger.protocol.messages.entry import HEADER_SIZE, HardState, LogEnd, stamp
from dledger.storage.api import Fault, Scrubbed
from dledger.storage.file_store import FileStore
from dledger.types import Index, Term
from verification.disk.memory_store import MemoryStore


def whole_pass(store, committed: int, step: int = 100) -> tuple[list[Scrubbed], list[int]]:
    """Steps of one pass, and the entries found faulty."""
    steps = [store.scrub(step, Index(committed))]
    while not steps[-1].done:
        steps.append(store.scrub(step, Index(committed)))
    return steps, [index for one in steps for index in entries_in(one.faults)]


def entries_in(faults: Iterable[Fault]) -> list[int]:
    return [index for fault in faults for index in range(fault.first, fault.last + 1)]


def test_scrub_of_a_sound_log_covers_it_repeatedly_in_small_steps(kit, store):
    entries = kit.fill(store, [200] * 8)
    for _ in range(2):
        steps, faulty = whole_pass(store, 7)
        assert faulty == []
        assert steps[-1].at == entries[-1].end_pos == sum(one.size for one in steps)
        assert max(one.size for one in steps) < 600
    store.close()


def test_scrub_finds_each_changed_byte_of_each_entry(kit, disk, store):
    """In files that were not scanned when the store was opened."""
    entries = kit.fill(store, [200] * 8)
    for entry in entries:
        for byte in range(0, HEADER_SIZE + 200, 3):
            kit.flip(disk, entry.pos + byte)
            assert whole_pass(store, 7)[1] == [entry.index]
            kit.flip(disk, entry.pos + byte)
    assert whole_pass(store, 7)[1] == []
    store.close()


def test_scrub_finds_entries_that_were_lost_side_by_side(kit, disk, store):
    entries = kit.fill(store, [60] * 12)
    kit.flip(disk, entries[2].pos + 10, entries[5].pos + 20)
    assert whole_pass(store, 11)[1] == [2, 3, 4, 5]
    store.close()


@pytest.mark.parametrize("first", [0, 4, 10])
@pytest.mark.parametrize("byte", [8, 11, 15, 16, 23])
def test_scrub_counts_no_entries_by_the_word_of_a_damaged_neighbour(kit, disk, first, byte, store):
    """An entry behind a damaged one has nobody in front of it to vouch for the index and the term
    that it claims: the entry behind it tells, and of the last one the mark."""
    entries = kit.fill(store, [60] * 12)
    kit.flip(disk, entries[first].pos + 40)
    kit.flip(disk, entries[first + 1].pos + byte)
    scrubbed = store.scrub(1 << 20, Index(11)).faults
    for faults in (scrubbed, store.examine(Index(first), Index(first))):
        assert entries_in(faults) == [first, first + 1]
    store.close()


def test_damage_beside_a_run_is_seen(kit, disk, store):
    entries = kit.fill(store, [60] * 12)
    for damaged in (3, 7, 9):
        kit.flip(disk, entries[damaged].pos + 1)
    assert [fault.first for fault in store.examine(Index(6), Index(6))] == [7]
    assert [fault.first for fault in store.examine(Index(6), Index(8))] == [7, 9]
    assert [fault.first for fault in store.examine(Index(4), Index(5))] == [3]
    store.close()


def test_scrub_does_not_look_at_what_may_still_be_cut(kit, disk, store):
    entries = kit.fill(store, [60] * 6)
    kit.flip(disk, entries[4].pos + 50)
    assert whole_pass(store, 3)[1] == []
    assert whole_pass(store, 5)[1] == [4]
    store.close()


def test_scrub_takes_a_sector_that_cannot_be_read_for_damage(kit, disk, store):
    """B11: the entries on it are faulty; the store goes on."""
    kit.fill(store, [200] * 8)
    disk.fail("pread", "/data/" + f"{0:020d}", errno.EIO)
    faulty = whole_pass(store, 7)[1]
    assert faulty[0] == 0
    assert 7 not in faulty
    disk.failures.clear()
    assert whole_pass(store, 7)[1] == []
    store.close()


def test_scrub_of_a_store_that_failed_is_refused(kit, disk, store):
    kit.fill(store, [10])
    disk.fail("fdatasync", "data")
    store.append(kit.make(store.end, [10]))
    with pytest.raises(StorageError):
        store.sync()
    with pytest.raises(StorageError):
        store.scrub(100, Index(0))


@pytest.mark.parametrize("size", [200, 180])  # files that end in little padding, and in some
def test_scrub_beside_retention_goes_on_with_what_is_kept(kit, disk, size):
    store: FileStore = kit.open(disk, retention_bytes=1)
    kit.fill(store, [size] * 12)
    store.scrub(10, Index(11))
    store.retain(Index(8), disk.now_ms, 0)
    assert whole_pass(store, 11)[1] == [], "what retention took is not damaged"
    steps, faulty = whole_pass(store, 11)
    assert faulty == []
    assert steps[-1].at == store.end.end_pos
    store.close()


def test_scrub_in_memory_finds_what_was_damaged():
    store = MemoryStore()
    store.save_hard_state(HardState(Term(1)))
    first = stamp(LogEnd(), Term(1), 1, b"a", 1 << 20)
    store.append([first, stamp(LogEnd.after(first), Term(1), 1, b"b", 1 << 20)])
    store.damage(Index(1))
    assert [fault.first for fault in store.scrub(1, Index(1)).faults] == [1]
