"""Disks that fail or fill up (D2, D12, B10 to B12)."""

from __future__ import annotations

import errno

import pytest

from dledger.errors import CorruptEntry, CorruptStore, DiskFull, PathError, StorageError
from dledger.protocol.messages.entry import HEADER_SIZE, HardState
from dledger.storage.api import DiskLevel
from dledger.storage.background import BackgroundState
from dledger.storage.log.index import UNIT_SIZE
from dledger.types import Index, NodeId, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_store import MemoryStore


def every_call(kit, store):
    """All that a node may ask of a store."""
    return [
        lambda: store.append(kit.make(store.end, [10])),
        lambda: store.append([]),
        store.sync,
        lambda: store.truncate(Index(0)),
        lambda: store.save_hard_state(HardState(Term(9), NodeId("n1"))),
        lambda: store.read(Index(0), 10),
        lambda: store.read_bodies([(0, 0, 58)]),
        lambda: store.retain(Index(0), 0, 0),
        lambda: store.repair(kit.make(store.end, [10])[0]),
        store.disk_level,
    ]


def check_it_is_dead(kit, disk, store):
    """Every call raises, and nothing touches the disk any more."""
    operations = disk.operations
    for call in every_call(kit, store):
        with pytest.raises(StorageError, match="this node stops"):
            call()
    store.keep()
    store.close()
    assert disk.operations == operations
    assert disk.locked == set()


@pytest.mark.parametrize("operation", ["fdatasync", "pwritev"])
def test_D2_calls_after_a_failed_write_or_sync_raise_and_touch_nothing(kit, disk, operation, store):
    """The second sync would succeed, and would say of pages that were never written that they are
    durable."""
    kit.fill(store, [10, 10])
    disk.fail(operation, "data/", times=1)
    with pytest.raises(StorageError, match="The disk failed"):  # noqa: PT012 - either of them
        store.append(kit.make(store.end, [10]))
        store.sync()
    check_it_is_dead(kit, disk, store)
    assert not isinstance(store._failed, CorruptStore)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.EROFS, "the right to write there"),
        (errno.EIO, "replace the disk"),
    ],
)
def test_an_error_that_is_not_of_the_disk_is_not_called_one(kit, disk, code, way_out, store):
    disk.fail("fdatasync", "data/", code, times=1)
    with pytest.raises(StorageError, match=f"{way_out}.* before it starts again"):
        kit.fill(store, [10])


def test_D2_a_store_whose_node_failed_elsewhere_touches_nothing_any_more(kit, disk):
    """Its housekeeping would go on for as long as the node takes to stop."""
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [10, 10])
    store.append(kit.make(store.end, [10]))
    store.abandon()
    check_it_is_dead(kit, disk, store)


def test_D2_memory_store_behaves_alike(kit):
    store = MemoryStore(segment_bytes=kit.segment)
    kit.fill(store, [10, 10])
    store.fail_next = StorageError("the disk failed: this node stops")
    with pytest.raises(StorageError):
        store.sync()
    for call in every_call(kit, store):
        with pytest.raises(StorageError, match="this node stops"):
            call()
    store.close()


def test_D2_failed_sync_gives_no_ack_and_a_restart_keeps_acked_entries(kit):
    for skip in range(6):
        disk, store = kit.fresh(BackgroundState.MANUAL)
        acked = -1
        disk.fail("fdatasync", "data/", skip=skip)
        with pytest.raises(StorageError):  # noqa: PT012
            for _ in range(9):
                kit.append(store, [200, 200])
                acked = store.sync().index
        assert store.durable.index == acked
        store = kit.restart(disk, power=True)
        assert store.end.position.index >= acked
        kit.fill(store, [10], term=2)
        disk.reboot(power=True)
        assert kit.open(disk).end.position.index >= acked + 1


def test_error_of_the_housekeeping_ends_the_store_too(kit, disk):
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [10])
    disk.fail("fdatasync", "mark")
    store.keep()
    with pytest.raises(StorageError, match="this node stops"):
        store.sync()


@pytest.mark.parametrize(
    ("operation", "how"),
    [("fdatasync", {}), ("pwritev", {}), *(("pwritev", {"short": n}) for n in (0, 30, 600))],
)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("skip", [0, 1])
def test_B12_B13_failed_save_of_the_hard_state_leaves_the_old_or_new_one(
    kit, disk, store, operation, how, code, skip
):
    old, new = HardState(Term(4), NodeId("n1")), HardState(Term(5), NodeId("n2"))
    store.save_hard_state(old)
    disk.fail(operation, "state", code, skip=skip, **how)
    with pytest.raises(StorageError):
        store.save_hard_state(new)
    assert kit.restart(disk, power=True).hard_state in (old, new)


def test_B11_read_error_names_the_old_entry_and_the_store_goes_on(kit, disk, store):
    entries = kit.fill(store, [300] * 6)
    disk.fail("pread", f"data/{0:020d}", times=2)
    with pytest.raises(CorruptEntry, match="entry 0") as read:
        store.read(Index(0), 10)
    with pytest.raises(CorruptEntry, match="entry 0") as served:
        store.read_bodies(kit.refs(entries[:1]))
    assert (read.value.index, served.value.index) == (0, 0)  # by which it is fetched from a peer
    assert store.read(Index(0), 10)[0].index == 0
    kit.fill(store, [10])


def test_B21_entry_without_index_unit_and_header_is_an_error_that_names_it(kit, disk, store):
    """Nothing is left that says where it lies."""
    entries = kit.fill(store, [100, 50, 60])
    for at in range(2 * UNIT_SIZE):
        disk.flip(kit.root / "index" / f"{0:020d}", UNIT_SIZE + at)
    for entry in entries[1:]:
        kit.flip(disk, entry.pos, entry.pos + HEADER_SIZE)
    with pytest.raises(CorruptEntry, match="entry 2: not found in") as caught:
        store.read(Index(2), 300)
    assert caught.value.index == 2
    assert kit.bytes_of(store.read(Index(0), 1)) == kit.bytes_of(entries[:1])


def test_D2_unreadable_tail_of_its_own_ends_the_store(kit, disk, store):
    kit.fill(store, [100])
    store.append(kit.make(store.end, [100]))
    disk.fail("pread", "data/", times=1)
    with pytest.raises(StorageError, match="just written"):
        store.read(Index(1), 10)
    with pytest.raises(StorageError, match="just written"):
        store.sync()


def test_B12_write_cut_short_by_a_full_disk_is_no_entry_afterwards(kit):
    """On file systems that write to new places even an allocated file can meet a full disk."""
    for short in range(0, 260, 3):
        disk, store = kit.fresh()
        entries = kit.fill(store, [100, 100])
        more = kit.make(store.end, [100, 100])
        disk.fail("pwritev", "data/", errno.ENOSPC, short=short)
        with pytest.raises(StorageError):
            store.append(more)
        store = kit.restart(disk, power=False)
        found = kit.bytes_of(kit.all(store))
        assert found == kit.bytes_of([*entries, *more])[: len(found)]
        assert len(found) >= 2
        kit.fill(store, [700], term=2)


def test_D12_append_without_room_for_the_next_file_fails_without_loss(kit, disk, store):
    entries = kit.fill(store, [300])
    disk.free = 0
    more = kit.make(store.end, [600, 500])
    with pytest.raises(DiskFull, match="nothing was written"):
        store.append(more)
    assert store.disk_level() is DiskLevel.FULL
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.save_hard_state(HardState(Term(7), NodeId("n1")))
    disk.free = disk.total
    store.append(more)
    store.sync()
    store.keep()
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *more])
    assert store.disk_level() is DiskLevel.OK


def test_D12_full_is_said_while_the_current_file_still_has_room(kit, disk):
    """The next file is allocated when the current one is half full; a quota can refuse it on a disk
    with space."""
    for code in (errno.ENOSPC, errno.EDQUOT):
        store = kit.open(disk)
        kit.fill(store, [300])
        files = len(disk.listdir(kit.root / "data"))
        disk.fail("fallocate", "data/", code)
        kit.fill(store, [300])
        assert store.disk_level() is DiskLevel.FULL
        kit.fill(store, [50])
        disk.failures.clear()
        store.keep()
        assert store.disk_level() is DiskLevel.OK
        assert len(disk.listdir(kit.root / "data")) == files + 1
        kit.fill(store, [700])
        store.close()


def test_D12_full_is_said_as_long_as_the_refused_file_cannot_be_made(kit, disk, store):
    """The file before it is there already, which says nothing of the room for one more."""
    kit.fill(store, [600])
    assert len(disk.listdir(kit.root / "data")) == 2
    disk.free = 0
    with pytest.raises(DiskFull):
        store.append(kit.make(store.end, [700, 700]))
    assert store.disk_level() is DiskLevel.FULL
    disk.fail("fallocate", "data/", errno.EDQUOT, times=3)
    disk.free = disk.total
    assert store.disk_level() is DiskLevel.FULL
    disk.failures.clear()
    store.disk_level()
    assert store.disk_level() is DiskLevel.OK
    kit.fill(store, [700, 700])


def test_B12_file_that_cannot_even_be_made_is_a_full_disk_like_others(kit, disk):
    """A quota, or no free inode, refuses a file before it has any length."""
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [600])
    disk.fail("create", "data/", errno.ENOSPC, times=1)
    with pytest.raises(DiskFull, match="nothing was written"):
        store.append(kit.make(store.end, [700]))
    entries += kit.fill(store, [700])
    disk.fail("fsync_dir", "data", errno.ENOSPC, times=1)
    with pytest.raises(StorageError, match="this node stops"):
        store.append(kit.make(store.end, [700]))
    disk.reboot(power=True)
    assert kit.bytes_of(kit.all(kit.open(disk))) == kit.bytes_of(entries)


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (500, DiskLevel.OK),
        (101, DiskLevel.OK),
        (100, DiskLevel.WARN),
        (31, DiskLevel.WARN),
        (29, DiskLevel.FULL),
        (0, DiskLevel.FULL),
    ],
)
def test_D12_levels_follow_the_ratios(kit, free, level):
    disk = MemoryDisk(total=1000 << 20)
    store = kit.open(disk)
    disk.free = free << 20
    assert store.disk_level() is level


def test_D12_reserve_counts_in_bytes(kit):
    disk = MemoryDisk(total=1 << 40)
    store = kit.open(disk, disk_reserve_bytes=100 << 20, disk_warn_ratio=1.0, disk_full_ratio=1.0)
    disk.free = 101 << 20
    assert store.disk_level() is DiskLevel.OK
    disk.free = 99 << 20
    assert store.disk_level() is DiskLevel.FULL


def test_full_disk_at_creation_is_an_error_and_a_later_start_works(kit):
    disk = MemoryDisk()
    disk.free = 100
    kit.refuses(disk, StorageError, "space")
    disk.reboot(power=False)
    disk.free = 1 << 20
    kit.fill(kit.open(disk), [10])


def test_disk_that_fails_at_any_operation_while_opening_is_a_storage_error(kit):
    for operation in ("open", "pread", "pwritev", "fdatasync", "fallocate", "rename", "fsync_dir"):
        for skip in range(100):
            disk, store = kit.fresh(BackgroundState.MANUAL)
            kit.fill(store, [300] * 5)
            kit.append(store, [100])
            disk.reboot(power=False)
            disk.fail(operation, "", skip=skip, times=1)
            try:
                kit.open(disk).close()
            except (StorageError, PathError):
                assert disk.locked == set()
                disk.reboot(power=True)
                assert kit.open(disk).end.position.index >= 4
            else:
                break
        assert skip < 99
