"""A new log whose first entry does not lie at 0: one that goes on behind another log."""

from __future__ import annotations

import pytest

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import LogEnd
from dledger.storage.meta.recovery_point import MARK_FILE
from dledger.types import NOWHERE, Index
from verification.disk.memory_disk import MemoryDisk, kills

BEGIN = 5 * 1024


def test_new_log_has_its_first_entry_at_the_given_position(kit, disk):
    """The position stays the same when the store is opened again."""
    store = kit.open(disk, begin_pos=BEGIN)
    assert store.end == LogEnd(NOWHERE, BEGIN, 0)
    entries = kit.fill(store, [300, 500, 400])
    assert [entry.pos for entry in entries] == [BEGIN, BEGIN + 348, BEGIN + 1024]
    store.close()
    again = kit.open(disk)
    assert (again.begin_index, again.begin.end_pos) == (0, BEGIN)
    assert kit.bytes_of(kit.all(again)) == kit.bytes_of(entries)
    kit.close_sound(again, disk)


def test_a_log_that_begins_further_on_goes_on_there_when_all_of_it_was_cut(kit, disk):
    store = kit.open(disk, begin_pos=BEGIN)
    kit.fill(store, [300, 500, 400])
    store.truncate(Index(-1))
    assert store.end == LogEnd(NOWHERE, BEGIN, 0)
    (entry,) = kit.fill(store, [100], term=2)
    assert entry.pos == BEGIN
    store.close()
    assert kit.bytes_of(kit.all(kit.open(disk))) == kit.bytes_of([entry])


def test_a_log_that_begins_further_on_is_found_without_its_mark(kit, disk):
    store = kit.open(disk, begin_pos=BEGIN)
    entries = kit.fill(store, [300, 500, 400])
    store.close()
    disk.unlink(kit.root / MARK_FILE)
    again = kit.open(disk)
    assert again.begin.end_pos == BEGIN
    assert kit.bytes_of(kit.all(again)) == kit.bytes_of(entries)


def test_entries_at_0_are_not_taken_by_a_log_that_begins_further_on(kit, disk):
    store = kit.open(disk, begin_pos=BEGIN)
    kit.reach(store, 1)
    with pytest.raises(CorruptStore, match=f"entry 0 at {BEGIN}"):
        store.append(kit.make(LogEnd(), [100]))


@pytest.mark.parametrize("power", [False, True])
def test_a_log_that_begins_further_on_outlives_a_crash_at_every_operation(kit, power):

    def live(disk, durable):
        store = kit.open(disk, begin_pos=BEGIN)
        for size in (300, 500, 400):
            durable += kit.fill(store, [size])
        store.close()

    for disk, durable in kills(lambda: (MemoryDisk(), []), live, least=21):
        again = kit.restart(disk, power=power, begin_pos=BEGIN)
        assert again.begin.end_pos == BEGIN
        assert kit.bytes_of(kit.all(again))[: len(durable)] == kit.bytes_of(durable)
