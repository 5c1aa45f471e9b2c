"""A sound copy takes a damaged entry's place: only the right one, and whole or not at all."""

from __future__ import annotations

import errno

import pytest

from dledger.errors import CorruptEntry, DiskFull, StorageError
from dledger.protocol.messages.entry import HEADER_SIZE, LogEnd
from dledger.storage.background import BackgroundState
from dledger.storage.log.repairs import FileCopy
from dledger.types import Index
from verification.disk.memory_disk import kills


def test_adjacent_damaged_entries_are_repaired_together_across_files(kit, disk, store):
    entries = kit.fill(store, [200] * 10)
    assert entries[3].pos // kit.segment < entries[5].pos // kit.segment
    kit.flip(disk, entries[2].pos + 3, entries[5].pos + 100)
    for alone in entries[2:6]:
        with pytest.raises(CorruptEntry):
            store.repair(alone)
    store.repair(*entries[2:6])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    kit.close_sound(store, disk)


def test_cut_after_a_damaged_entry_is_refused_until_its_repair(kit, disk, store):
    entries = kit.fill(store, [100] * 8)
    kit.flip(disk, entries[4].pos + 60)
    with pytest.raises(CorruptEntry) as caught:
        store.truncate(Index(4))
    assert caught.value.index == 4
    assert store.end == LogEnd.after(entries[-1])
    store.repair(entries[4])
    store.truncate(Index(4))
    others = kit.fill(store, [80] * 3, term=2)
    store = kit.reopen(store, disk)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries[:5], *others])
    store.close()


def test_entries_before_a_cut_are_repaired_though_the_next_is_damaged(kit, disk, store):
    """Nobody may have what is cut, and it is damaged together with what stays."""
    entries = kit.fill(store, [100] * 8)
    kit.flip(disk, entries[3].pos + 3, entries[5].pos + 100)
    with pytest.raises(CorruptEntry):
        store.repair(*entries[3:5])
    with pytest.raises(CorruptEntry):
        store.repair(*kit.make(LogEnd(), [100] * 8, salt=3)[3:5], last_stays=True)
    store.repair(*entries[3:5], last_stays=True)
    store.truncate(Index(4))
    others = kit.fill(store, [300, 20, 700], term=2)
    kit.close_sound(store, disk)
    store = kit.open(disk)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries[:5], *others])
    assert not store.recovery.faulty
    store.close()


def test_run_of_another_log_or_of_another_place_is_refused(kit, disk, store):
    entries = kit.fill(store, [100] * 8)
    others = kit.make(LogEnd(), [100] * 8, salt=3)
    longer = kit.make(LogEnd.after(entries[1]), [100, 101], salt=3)
    kit.flip(disk, entries[2].pos, entries[3].end_pos)
    for wrong in (
        others[2:4],
        longer,
        [*entries[2:3], others[3]],
        entries[2:3],
        entries[3:4],
        entries[4:6][::-1],
    ):
        with pytest.raises(CorruptEntry):
            store.repair(*wrong)
    store.repair(*entries[2:4])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.close()


def test_every_single_entry_is_repaired_whatever_byte_of_it_is_damaged(kit):
    disk, store = kit.fresh()
    entries = [
        *kit.fill(store, [200] * 4),
        *kit.fill(store, [90] * 4, term=2),
        *kit.fill(store, [90] * 2, term=5),
    ]
    terms = store.terms
    for entry in entries:
        for byte in range(0, HEADER_SIZE + 3):
            kit.flip(disk, entry.pos + byte)
            with pytest.raises(CorruptEntry, match=f"entry {entry.index}"):
                store.read(entry.index, 1)
            store.repair(entry)
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
            assert store.terms == terms
    store.close()


def test_crash_in_a_repair_leaves_the_old_log_or_the_repaired_one(kit):
    """Power and all: what was sound before is sound afterwards, whatever of the new file reached
    the disk."""

    def damaged():
        disk, store = kit.fresh()
        entries = kit.fill(store, [150] * 9)
        kit.flip(disk, entries[3].pos + 60)
        return disk, store, entries

    def repair(_, store, entries):
        store.repair(entries[3])

    for disk, _, entries in kills(damaged, repair, least=6):
        disk.reboot(power=True, choose=lambda n: n // 2)
        store = kit.open(disk)
        assert store.end == LogEnd.after(entries[-1])
        for entry in entries[:3] + entries[4:]:
            assert kit.bytes_of(store.read(entry.index, 1)) == kit.bytes_of([entry])
        try:
            assert kit.bytes_of(store.read(Index(3), 1)) == kit.bytes_of(entries[3:4])
        except CorruptEntry:
            store.repair(entries[3])
        assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)


def test_repair_of_the_current_file_keeps_later_appends_and_syncs(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [60] * 3)
    unsynced = kit.append(store, [60] * 2)
    kit.flip(disk, entries[1].pos + 50)
    store.repair(entries[1])
    store.sync()
    more = kit.fill(store, [60] * 6)
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *unsynced, *more])
    store.close()


def test_entry_synced_while_its_file_is_copied_is_durable_in_the_copy(kit, disk, monkeypatch):
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [60] * 3)
    begin, meanwhile = FileCopy.begin, []

    def begin_and_append(copy, end_pos):
        begin(copy, end_pos)
        meanwhile.extend(kit.fill(store, [60] * 2))

    monkeypatch.setattr(FileCopy, "begin", begin_and_append)
    kit.flip(disk, entries[1].pos + 50)
    store.repair(entries[1])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *meanwhile])
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *meanwhile])
    store.close()


def test_repair_without_room_for_the_copy_changes_nothing_and_works_later(kit, disk, store):
    entries = kit.fill(store, [200] * 6)
    kit.flip(disk, entries[1].pos + 60)
    disk.fail("fallocate", ".new", errno.ENOSPC, times=1)
    with pytest.raises(DiskFull, match="repair"):
        store.repair(entries[1])
    store.repair(entries[1])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.close()


def test_repair_whose_write_fails_ends_the_store(kit, disk, store):
    entries = kit.fill(store, [200] * 6)
    kit.flip(disk, entries[1].pos + 60)
    disk.fail("fdatasync", ".new")
    with pytest.raises(StorageError):
        store.repair(entries[1])
    with pytest.raises(StorageError):
        store.read(Index(5), 1)


def test_log_terms_survive_any_damaged_header_and_a_lost_index(kit):
    """What this node says of its log in a vote, and what it compares with a leader's, does not
    change."""
    for lose_index in (False, True):
        for victim in range(8):
            for byte in (*range(0, 48, 5), 16, 20, 23):
                disk, store = kit.fresh()
                entries = [*kit.fill(store, [100] * 4, term=3), *kit.fill(store, [100] * 4, term=7)]
                end, terms = store.end, store.terms
                store.close()
                kit.flip(disk, entries[victim].pos + byte)
                if lose_index:
                    for name in [name for name in disk.names if name.parent.name == "index"]:
                        disk.names[name].written[:] = disk.names[name].durable[:] = bytes(
                            len(disk.names[name].written)
                        )
                store = kit.open(disk)
                assert store.end == end
                assert [term for term, _ in store.terms] == [3, 7]
                if victim != 4:
                    assert store.terms == terms
                store.repair(entries[victim])
                assert store.terms == terms
                store.close()
