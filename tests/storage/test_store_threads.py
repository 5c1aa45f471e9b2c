"""What one thread does to a store while another one is inside an operation of the same store's
disk.

`MemoryDisk.meanwhile` says at which operation that happens, so that each history is the same in
every run.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptEntry, CorruptStore
from dledger.protocol.messages.entry import Entry, LogEnd
from dledger.storage import file_store
from dledger.storage.background import BackgroundState
from dledger.storage.disk.file_names import file_name
from dledger.storage.log.segments import SegmentFiles, is_held
from dledger.types import Index
from verification.disk.memory_disk import Failure
from verification.disk_states.promise import entry_bytes


@pytest.fixture
def store(kit, disk):
    """Does nothing in the background but what a test asks for."""
    return kit.open(disk, BackgroundState.MANUAL)


def on_another_thread(action: Callable[[], object]) -> Callable[[], None]:
    """The action, carried out by a thread of its own, to its end."""

    def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(action).result()

    return run


def beside(disk, operation: str, part: str, action: Callable[[], object]) -> None:
    """Another thread carries the action out when such an operation is under way."""
    disk.meanwhile.append((operation, part, on_another_thread(action)))


def test_write_under_way_at_a_sync_is_durable_only_after_the_next_sync(kit, disk, store):
    kit.fill(store, [60])
    entries = kit.make(store.end, [60])
    told = []
    beside(disk, "pwritev", "data/", lambda: told.append(store.sync()))
    store.append(entries)
    assert [position.index for position in told] == [0], "the first sync came before the bytes"
    assert store.sync().index == 1
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store))[1:] == kit.bytes_of(entries)


def test_index_unit_under_way_at_an_index_sync_is_synced_the_next_time(kit, disk, monkeypatch):
    monkeypatch.setattr(file_store, "INDEXED_EVERY", 0)
    store = kit.open(disk, BackgroundState.MANUAL)
    first = kit.fill(store, [60])
    entries = kit.make(LogEnd.after(first[-1]), [60])
    beside(disk, "pwritev", "index/", store._index.files.sync)
    store.append(entries)
    store.sync()
    store.keep()
    store = kit.restart(disk, power=True)
    assert not store.recovery.rebuilt
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*first, *entries])


def test_a_file_that_is_dropped_while_a_sync_opens_it_needs_none(disk):
    """The index is synced by the keeper, and cut by the thread that writes the log."""
    files = SegmentFiles(disk, Path("/disk/index"), file_size=4096)
    for start in (0, 4096):
        files.allocate(start)
        files.pwritev(start, [b"unit"])
    files.close()
    beside(disk, "open", f"{4096:020d}", lambda: files.drop_behind(0))
    files.sync()
    assert disk.names.keys() == {Path("/disk/index") / f"{0:020d}"}


def test_a_cut_while_the_keeper_makes_the_next_file_leaves_no_hole(kit, disk, store):
    """The cut goes over a file's border, so the file that the keeper is making is not the next one
    any more."""
    entries = kit.fill(store, [252] * 9)
    beside(disk, "fallocate", "data/", lambda: store.truncate(Index(1)))
    store.keep()
    assert not disk.meanwhile
    assert disk.listdir(kit.root / "data") == [file_name(0)]
    store = kit.restart(disk, power=False)
    assert not store.recovery.notes
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries[:2])


def files_with_a_hole(kit, disk, written: bytes = b"") -> list[bytes]:
    """A store of two entries in its first file, none in its second, which is missing, and
    ``written`` in its third."""
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [252] * 2)
    store.close()
    files = SegmentFiles(disk, kit.root / "data", file_size=kit.segment)
    files.allocate(2 * kit.segment)
    if written:
        files.pwritev(2 * kit.segment + 700, [written])
    return kit.bytes_of(entries)


def test_empty_file_after_a_missing_one_is_removed_with_a_note(kit, disk):
    """The store removes it when it is opened."""
    expected = files_with_a_hole(kit, disk)
    store = kit.open(disk)
    assert kit.bytes_of(kit.all(store)) == expected
    assert store.recovery.notes == (
        f"data/: empty files behind the missing {file_name(1024)} were removed: {file_name(2048)}",
    )
    assert disk.listdir(kit.root / "data") == [file_name(0)]


def test_something_behind_a_missing_file_is_never_removed(kit, disk):
    files_with_a_hole(kit, disk, b"x")
    kit.refuses(disk, CorruptStore, f"{file_name(1024)} is missing")
    assert disk.listdir(kit.root / "data") == [file_name(0), file_name(2048)]


def test_empty_file_after_a_missing_durable_file_is_no_spare(kit, disk, store):
    """The missing file held durable entries."""
    kit.fill(store, [252] * 5)
    store.keep()
    store.close()
    disk.unlink(kit.root / "data" / file_name(1024))
    files = SegmentFiles(disk, kit.root / "data", file_size=kit.segment)
    files.allocate(2 * kit.segment)
    kit.refuses(disk, CorruptStore, f"{file_name(1024)} is missing")


def three_files(kit, disk):
    """An open store with three entries in each of its three files, of which retention may take the
    first one."""
    store = kit.open(disk, BackgroundState.MANUAL, retention_bytes=2 * kit.segment)
    return store, kit.fill(store, [252] * 9)


def retain_at(disk, store, operation: str, part: str) -> None:
    """Retention takes the first file while that operation is under way."""
    beside(disk, operation, part, lambda: store.retain(Index(2), 0, 0))


def test_sound_entry_stays_sound_when_retention_takes_the_previous_one(kit, disk):
    """Its header is checked with the chain of the entry before, which lies in the file that
    goes."""
    store, entries = three_files(kit, disk)
    retain_at(disk, store, "pread", file_name(1024))
    assert kit.bytes_of(store.read(Index(3), 300)) == kit.bytes_of(entries[3:4])
    assert store.begin_index == 3


def test_retention_beside_a_repair_restarts_it_and_the_store_goes_on(kit, disk):
    store, entries = three_files(kit, disk)
    kit.flip(disk, 1024 + 700)
    retain_at(disk, store, "pread", "index/")
    with pytest.raises(CorruptEntry, match="log changed during its repair"):
        store.repair(*entries[3:6])
    assert store.begin_index == 3
    store.repair(*entries[3:6])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries[3:])


@pytest.mark.parametrize("place", ["index/", file_name(0)])
def test_retention_beside_an_examination_reports_no_false_damage(kit, disk, place: str):
    """The store goes on."""
    store, _ = three_files(kit, disk)
    kit.flip(disk, 1024 + 700)
    retain_at(disk, store, "pread", place)
    with pytest.raises(CorruptEntry, match="log changed"):
        store.examine(Index(5), Index(5))
    assert [(fault.first, fault.last) for fault in store.examine(Index(5), Index(5))] == [(5, 5)]


def test_entry_written_during_a_sync_waits_for_the_next_sync(kit, disk, store):
    """The sync says no more than what was written when it began, and leaves the rest to the next
    one."""
    first = kit.fill(store, [60])
    second = kit.make(store.end, [60])
    third = kit.make(LogEnd.after(second[-1]), [60])
    store.append(second)
    beside(disk, "fdatasync", "data/", lambda: store.append(third))
    assert [store.sync().index, store.durable.index] == [1, 1]
    assert [store.sync().index, store.durable.index] == [2, 2]
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*first, *second, *third])


def cut_at(kit, disk, store, part: str, sizes: list[int]) -> list[Entry]:
    """The log is cut behind entry 2 while a file is synced, and others follow, which the list that
    is returned has then."""
    new: list[Entry] = []

    def cut_and_write() -> None:
        store.truncate(Index(2))
        new.extend(kit.fill(store, sizes, term=2, salt=3))

    beside(disk, "fdatasync", part, cut_and_write)
    return new


def test_a_mark_is_settled_for_the_log_that_its_index_was_synced_for(kit, disk, monkeypatch):
    """A cut while the keeper syncs the index: what grew again there, in another term, has units
    that nothing synced."""
    monkeypatch.setattr(file_store, "INDEXED_EVERY", 0)
    store = kit.open(disk, BackgroundState.MANUAL)
    old = kit.fill(store, [60] * 6)
    new = cut_at(kit, disk, store, f"index/{file_name(0)}", [90] * 5)
    store.keep()
    assert new
    store = kit.restart(disk, power=True)
    assert not store.recovery.faulty
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*old[:3], *new])


def test_repair_does_not_overwrite_entries_that_replaced_the_old_ones(kit, disk, store):
    """The log is cut and written anew while the repair is under way."""
    old = kit.fill(store, [60] * 6)
    kit.flip(disk, old[0].pos + 60)
    new = cut_at(kit, disk, store, ".new", [60] * 3)
    with pytest.raises(CorruptEntry, match="the log changed during its repair"):
        store.repair(old[0])
    store.repair(old[0])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*old[:3], *new])
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*old[:3], *new])


LOOKS = {
    "read": lambda store, entry: entry_bytes(store.read(entry.index, 1)[0]) == entry_bytes(entry),
    "read_bodies": lambda store, entry: (
        bytes(store.read_bodies([(entry.index, entry.pos, entry.size)])[0]) == bytes(entry.body)
    ),
    "index_at": lambda store, entry: store.index_at(entry.pos) == entry.index,
}


@pytest.mark.parametrize("failing", [False, True], ids=["flipped", "unreadable"])
@pytest.mark.parametrize("skip", range(4))
@pytest.mark.parametrize("look", LOOKS)
def test_an_entry_that_is_repaired_while_it_is_read_is_not_called_damaged(
    kit, disk, look: str, skip: int, failing, store
):
    entries = kit.fill(store, [60] * 4)
    path = kit.data()
    disk.flip(path, 20 if look == "index_at" else entries[0].end_pos - 1)

    repaired = []

    def wait(left: int) -> None:
        """Read operations go by until the one in which another thread repairs the entry."""
        if left or is_held(store._lock):
            disk.meanwhile.append(("pread", f"data/{path.name}", lambda: wait(max(left - 1, 0))))
            return
        on_another_thread(lambda: store.repair(entries[0]))()
        repaired.append(True)
        if failing:
            disk.failures.append(Failure("pread", f"data/{path.name}", errno.EIO, times=1))

    wait(skip + 1)
    try:
        assert LOOKS[look](store, entries[0])
    except CorruptEntry:
        assert not repaired, f"{look} of a sound entry calls it damaged"


class Asked:
    """A lock, and whether anybody has asked for it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.asked = threading.Event()

    def __enter__(self) -> None:
        self.asked.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_entry_is_not_called_damaged_while_its_file_is_exchanged(kit, disk, monkeypatch, store):
    """The file has its name, and those who have the old one open have not heard of it."""
    entry = kit.fill(store, [60] * 4)[0]
    path = kit.data()
    disk.flip(path, entry.end_pos - 1)
    lock = store._reader._writing = Asked(store._lock)
    renamed, forget, found = threading.Event(), SegmentFiles._forget, []

    def slow_forget(files: SegmentFiles, start: int) -> None:
        renamed.set()
        assert lock.asked.wait(20), "the reader waits for the exchange, or has said what it thinks"
        forget(files, start)

    def read() -> None:
        try:
            found.extend(store.read(entry.index, 1))
        finally:
            lock.asked.set()

    monkeypatch.setattr(SegmentFiles, "_forget", slow_forget)
    disk.meanwhile.append(("pread", f"data/{path.name}", lambda: renamed.wait(20)))
    reader = threading.Thread(target=read)
    reader.start()
    store.repair(entry)
    reader.join()
    assert kit.bytes_of(found) == kit.bytes_of([entry])


def test_examination_beside_a_cut_under_way_calls_nothing_damaged(kit, disk, monkeypatch, store):
    kit.fill(store, [60] * 6)
    cut, is_cut, looked = SegmentFiles.cut, threading.Event(), threading.Event()

    def slow_cut(files: SegmentFiles, offset: int) -> None:
        cut(files, offset)
        if files is store._data:
            is_cut.set()
            looked.wait(20)

    def cut_meanwhile() -> None:
        cutting.start()
        is_cut.wait(20)

    monkeypatch.setattr(SegmentFiles, "cut", slow_cut)
    cutting = threading.Thread(target=lambda: store.truncate(Index(2)))
    disk.meanwhile.append(("pread", f"data/{file_name(0)}", cut_meanwhile))
    with pytest.raises(CorruptEntry, match="log changed"):
        store.examine(Index(3), Index(3))
    looked.set()
    cutting.join()
