"""Another node's state in the place of this one's: all at once, whenever the process or the power
ends."""

from __future__ import annotations

import contextlib
import errno
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptStore, DiskFull, StorageError
from dledger.protocol.messages.entry import Entry, HardState, LogEnd
from dledger.storage.file_store import FileStore
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.slots import SLOT_SIZE, create_slots
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.storage.meta.tables import TABLES, TableFiles
from dledger.storage.offline.verify import verify_store
from dledger.storage.recovery.snapshot_install import (
    CLEARED,
    DONE,
    INSTALL_FILE,
    INSTALL_MAGIC,
    READY,
    InstallRecord,
    Staging,
    drop_staged,
    read_record,
)
from dledger.types import NO_INDEX, Index, Position, Term
from verification.disk.memory_disk import MemoryDisk, ProcessKilled, kills

ROW = 8
INDEX_FILE = 320
"""Bytes, as the kit has it."""
LAST = 30
"""Of the log that the state belongs to."""


def rows(first: int, count: int, salt: int = 0) -> bytes:
    return b"".join((number + salt).to_bytes(ROW, "big") for number in range(first, first + count))


class Case:
    """A store with a catalog of its own, and a state for it. ``reach``: how many entries it has of
    the other log."""

    def __init__(self, kit: Any, disk: MemoryDisk, reach: int) -> None:
        self.kit = kit
        self.disk = disk
        self.log: list[Entry] = kit.make(
            LogEnd(), [100 + 10 * (n % 5) for n in range(LAST + 1)], term=2
        )
        self.first = self.first_after(8)
        store = kit.open(disk)
        store.save_hard_state(HardState(Term(3)))
        store.append(self.log[:reach])
        store.sync()
        store.note_commit(Index(min(reach, 3) - 1))
        tables = TableFiles(kit.root / TABLES, disk)
        for name in ("both", "old"):
            tables.open(name, ROW).append(rows(0, 3, salt=1000))
        tables.sync()
        SnapshotFiles(kit.root / SNAPSHOTS, disk).save(Index(2), b"the old catalog")
        tables.close()
        self.keeps = reach > self.first.index
        self.old = self.seen(store)
        self.store: FileStore = store

    def first_after(self, index: int) -> Entry:
        """The first entry above ``index`` that begins a data file."""
        return next(e for e in self.log if e.index > index and e.pos % self.kit.segment == 0)

    def begin(self, first: Entry | None = None) -> LogEnd:
        """The place before that entry, by default the first one of the state."""
        first = first or self.first
        before = self.log[first.index - 1]
        return LogEnd(Position(Term(-1), before.index), first.pos, before.chain_crc)

    def staging(self) -> Staging:
        return Staging(self.kit.root, self.disk, segment_bytes=self.kit.segment)

    def staged(self) -> list[Path]:
        """The files that wait to get their names."""
        return [path for path in self.disk.names if path.suffix == ".install"]

    def stage(self) -> Staging:
        staging = self.staging()
        staging.snapshot(Index(LAST), b"the new catalog")
        for name, first in (("both", 4), ("new", 0)):
            table = staging.table(name, ROW, first)
            table.append(rows(first, 2))
            table.append(rows(first + 2, 1))
            table.sync()
        return staging

    def take_over(self, catalog: bool = True) -> None:
        first = None if self.keeps else self.first
        self.stage().commit(Index(LAST), self.begin(), first, catalog=catalog)
        self.store.close()

    def taken_over(self, catalog: bool = True) -> FileStore:
        self.take_over(catalog)
        return self.open()

    def open(self) -> FileStore:
        return self.kit.open(self.disk)

    def seen(self, store: FileStore) -> dict[str, Any]:
        """What the next process finds."""
        tables, found = TableFiles(self.kit.root / TABLES, self.disk), {}
        for name in tables.names():
            table = tables.open(name, ROW)
            found[name] = (table.begin, bytes(table.read(table.begin, table.end)))
        return {
            "log": self.kit.bytes_of(self.kit.all(store)),
            "begin": store.begin_index,
            "end": store.end,
            "state": store.hard_state.term,
            "catalog": SnapshotFiles(self.kit.root / SNAPSHOTS, self.disk).load(),
            "tables": found,
            "installed": store.installed_index,
        }

    def whole(self, store: FileStore, operation: int) -> dict[str, Any]:
        """What the next process finds, which is one of the two states."""
        seen = self.seen(store)
        assert seen in (self.old, self.new()), f"neither state after operation {operation}"
        return seen

    def goes_on(self, store: FileStore, end: int | None = None) -> None:
        """The store gets the rest of the other log."""
        store.append(self.log[store.end.position.index + 1 : end])
        store.sync()

    def had_one_before(self) -> None:
        """There is a record, of a state that was taken over before."""
        record = InstallRecord(DONE, NO_INDEX).pack()
        create_slots(self.disk, self.kit.root / INSTALL_FILE, INSTALL_MAGIC, record)

    def damage_record(self, slot: int) -> None:
        self.disk.flip(self.kit.root / INSTALL_FILE, slot * SLOT_SIZE + 30, 1)

    def new(self) -> dict[str, Any]:
        kept = self.log[self.first.index : len(self.old["log"])] if self.keeps else [self.first]
        return {
            "log": self.kit.bytes_of(kept),
            "begin": self.first.index,
            "end": LogEnd.after(kept[-1]),
            "state": 3,
            "catalog": (LAST, b"the new catalog"),
            "tables": {"both": (4, rows(4, 3)), "new": (0, rows(0, 3))},
            "installed": LAST,
        }


@pytest.fixture(params=[5, 25], ids=["replaced", "kept"])
def case(request: pytest.FixtureRequest, kit: Any, disk: MemoryDisk) -> Case:
    return Case(kit, disk, request.param)


def test_state_replaces_log_and_catalog_when_the_store_is_reopened(case: Case) -> None:
    store = case.taken_over()
    assert case.seen(store) == case.new()
    assert store.durable == store.end.position, "the new log is durable, and may be acknowledged"
    per_file = INDEX_FILE // UNIT_SIZE
    units = min(int(name) // UNIT_SIZE for name in case.disk.listdir(case.kit.root / "index"))
    assert units == case.first.index // per_file * per_file, (
        "of the old index only what is in use is left"
    )
    assert store.begin == case.begin()
    case.goes_on(store)
    assert case.kit.all(store)[-1].index == LAST
    case.kit.close_sound(store, case.disk)
    again = case.seen(case.open())
    assert (again["begin"], again["end"]) == (case.first.index, LogEnd.after(case.log[-1]))
    assert again["tables"] == case.new()["tables"]


def test_the_first_entry_of_a_new_log_is_never_cut(case: Case) -> None:
    """It is committed (D4)."""
    store = case.taken_over()
    with pytest.raises(CorruptStore, match="is committed"):
        store.truncate(Index(case.first.index - 1))


def test_a_front_that_goes_alone_leaves_the_catalog(kit: Any, disk: MemoryDisk) -> None:
    case = Case(kit, disk, 25)
    store = case.taken_over(catalog=False)
    assert case.seen(store) == case.new() | {
        name: case.old[name] for name in ("catalog", "tables", "installed")
    }
    assert not case.staged()


def test_a_state_that_nobody_committed_to_leaves_nothing(case: Case) -> None:
    case.stage()
    case.store.close()
    assert case.seen(case.open()) == case.old
    assert not case.staged()


def test_another_state_may_follow(case: Case) -> None:
    store = case.taken_over()
    staging, later = case.staging(), case.first_after(case.first.index)
    staging.snapshot(Index(LAST + 5), b"later")
    staging.commit(Index(LAST + 5), case.begin(later), later, catalog=True)
    store.close()
    seen = case.seen(case.open())
    assert (seen["begin"], seen["installed"], seen["tables"]) == (later.index, LAST + 5, {})


@pytest.mark.parametrize("reach", [5, 25], ids=["replaced", "kept"])
@pytest.mark.parametrize("outcome", ["process", "lost", "half", "survived"])
def test_a_crash_at_any_operation_leaves_one_state_or_the_other(
    kit: Any, reach: int, outcome: str
) -> None:
    """Of a take-over, and of the start behind it."""

    def lived() -> tuple[MemoryDisk, Case]:
        disk = MemoryDisk()
        return disk, Case(kit, disk, reach)

    old = new = 0
    for operation, (disk, case) in enumerate(kills(lived, lambda _, case: case.taken_over())):
        kit.crash(disk, outcome)
        store = case.open()
        seen = case.whole(store, operation)
        old, new = old + (seen == case.old), new + (seen == case.new())
        store.close()
        assert case.seen(case.open()) == seen
        assert not case.staged()
    assert old > 10
    assert new > 10


def test_crash_of_the_start_that_installs_a_state_keeps_the_new_state(kit: Any) -> None:
    """The crash comes at every operation of that start."""

    def about_to_start() -> tuple[MemoryDisk, Case]:
        disk = MemoryDisk()
        case = Case(kit, disk, 5)
        case.take_over()
        disk.reboot(power=True)
        return disk, case

    killed = kills(about_to_start, lambda _, case: case.open(), least=21)
    for operation, (disk, case) in enumerate(killed):
        disk.reboot(power=operation % 2 == 0)
        assert case.seen(case.open()) == case.new(), f"after operation {operation}"


def killed_in_commit(kit: Any, reach: int, again: bool, operation: int) -> Case | None:
    """A case whose process was killed in front of that operation of its commit; None: there are
    fewer."""
    disk = MemoryDisk()
    case = Case(kit, disk, reach)
    if again:
        case.had_one_before()
    staging = case.stage()
    disk.kill_at = disk.operations + operation
    try:
        staging.commit(Index(LAST), case.begin(), None if case.keeps else case.first, catalog=True)
    except ProcessKilled:
        disk.reboot(power=False)
        return case
    return None


def step_of(case: Case) -> str:
    """What the record says that a running system shows."""
    record = (
        read_record(case.disk, case.kit.root, notes=[])
        if case.disk.exists(case.kit.root / INSTALL_FILE)
        else None
    )
    return "" if record is None else record.step


def power_fails_in_start(case: Case, operation: int) -> bool:
    """Start and cut the power in front of that operation; whether the state was not carried out by
    then."""
    disk = case.disk
    disk.kill_at = disk.operations + operation
    with contextlib.suppress(ProcessKilled):
        case.open()
    step = step_of(case)
    disk.reboot(power=True)
    case.whole(case.open(), operation)
    return step in {READY, CLEARED}


@pytest.mark.parametrize("reach", [5, 25], ids=["replaced", "kept"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_start_syncs_the_record_of_a_killed_process_before_acting_on_it(
    kit: Any, reach: int, again: bool
) -> None:
    """What it read, and the name of its file, may never have been synced (D15): a power cut takes
    it back when the old files are gone already. ``again``: there is a record, of a state that was
    taken over before."""
    tried = 0
    for kill in count():
        case = killed_in_commit(kit, reach, again, kill)
        if case is None:
            break
        if step_of(case) != READY:
            continue
        for operation in count():
            case = killed_in_commit(kit, reach, again, kill)
            assert case is not None
            if not power_fails_in_start(case, operation):
                break
            tried += 1
    assert tried > 20


def test_start_syncs_the_end_of_an_installation_before_the_log_goes_on(case: Case) -> None:
    """Else a later power cut brings back that it is to be carried out, and with it the mark of that
    time (D15)."""
    case.take_over()
    case.disk.trace.clear()
    case.open().close()
    writes = [at for at, done in enumerate(case.disk.trace) if done == f"pwritev {INSTALL_FILE}"]
    other = Case(case.kit, MemoryDisk(), 25 if case.keeps else 5)
    other.take_over()
    # behind the first copy of what is said last
    other.disk.kill_at = other.disk.operations + writes[-2] + 1
    with pytest.raises(ProcessKilled):
        other.open()
    other.disk.reboot(power=False)
    assert step_of(other) == DONE
    store = other.open()
    other.goes_on(store)
    other.disk.reboot(power=True)
    assert step_of(other) == DONE
    assert other.open().end.position.index == LAST


def test_a_full_disk_leaves_the_old_state_and_another_try_succeeds(case: Case) -> None:
    case.disk.fail("fallocate", ".install", errno.ENOSPC, times=1)
    staging = case.staging()
    with pytest.raises(DiskFull, match="no room"), staging.writing():
        staging.snapshot(Index(LAST), b"the new catalog")
    staging.drop()
    assert case.seen(case.taken_over()) == case.new()


def test_a_failed_write_of_the_record_is_the_end_of_the_store(case: Case) -> None:
    """It may be there or not, so nobody may go on as if it were not (D2)."""
    case.disk.fail("fdatasync", f"{case.kit.root}/{INSTALL_FILE}")
    with pytest.raises(StorageError, match="The disk failed"):
        case.take_over()


@pytest.mark.parametrize("operation", ["fallocate", "pwritev", "fdatasync", "create"])
def test_a_disk_that_fails_while_a_state_is_written_is_not_called_full(
    case: Case, operation: str
) -> None:
    """A full disk costs nothing but this state; one that failed is done for (D2)."""
    staging = case.staging()
    case.disk.fail(operation, ".install")
    with pytest.raises(StorageError, match="The disk failed") as raised, staging.writing():
        staging.snapshot(Index(LAST), b"the new catalog")
    assert not isinstance(raised.value, DiskFull)


def test_unreadable_previous_record_is_an_error_of_the_store(case: Case) -> None:
    """It cannot be read when the next record is about to be written."""
    case.had_one_before()
    case.disk.fail("pread", f"{case.kit.root}/{INSTALL_FILE}")
    with pytest.raises(StorageError, match="The disk failed"):
        case.take_over()


def test_a_fetch_begins_without_the_files_of_the_one_before(case: Case) -> None:
    """Files are written into as they are, so the rest of a longer one would stay."""
    case.stage()
    case.staging()
    assert not case.staged()


def test_new_log_allocates_its_whole_first_file_before_it_counts(
    kit: Any, disk: MemoryDisk
) -> None:
    """A disk on which there is no room for it has to say so while the old log is still there."""
    case = Case(kit, disk, 5)
    case.take_over()
    staged = case.kit.root / "data" / f"{case.first.pos:020d}.install"
    assert case.disk.open(staged).size() == case.kit.segment


def test_a_commit_mark_behind_the_first_entry_that_stays_is_kept(
    kit: Any, disk: MemoryDisk
) -> None:
    """What is known to be committed is never cut (D4), also when only the mark says so."""
    case = Case(kit, disk, 25)
    case.store.note_commit(Index(20))
    case.take_over()
    assert case.open().hard_state.commit_hint == 20


def test_entry_of_the_catalog_stays_known_when_only_a_front_goes_later(
    kit: Any, disk: MemoryDisk
) -> None:
    """The catalog may be ahead of the log still, and would be passed over at the next start."""
    case = Case(kit, disk, 5)
    store = case.taken_over()
    case.goes_on(store, -1)
    second = case.first_after(case.first.index)
    case.staging().commit(Index(LAST), case.begin(second), None, catalog=False)
    store.close()
    store = case.open()
    known = store.begin_index, store.end.position.index, store.installed_index
    assert known == (second.index, LAST - 1, LAST)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_damaged_copy_of_the_record_does_no_harm(case: Case, slot: int) -> None:
    case.take_over()
    case.damage_record(slot)
    store = case.open()
    assert case.seen(store) == case.new()
    assert any(
        note.startswith(f"{INSTALL_FILE}: one of two copies") for note in store.recovery.notes
    )


@pytest.mark.parametrize("slot", [0, 1])
def test_damaged_copy_of_the_record_of_an_installed_state_is_rewritten(
    case: Case, slot: int
) -> None:
    """The other one may rot as well, and with both goes as of which entry the catalog is."""
    case.take_over()
    case.open().close()
    case.damage_record(slot)
    case.open().close()
    assert verify_store(case.kit.root, case.disk)["problems"] == []
    case.damage_record(1 - slot)
    assert case.open().installed_index == LAST


def test_a_record_that_cannot_be_read_stops_a_store_that_it_may_speak_of(case: Case) -> None:
    case.take_over()
    for slot in range(2):
        case.damage_record(slot)
    with pytest.raises(CorruptStore, match="dledger admit"):
        case.open()
    drop_staged(case.disk, case.kit.root)
    assert case.open().installed_index == -1, "nothing is left that it could speak of"


def test_verify_tells_of_a_state_that_waits_to_be_taken_over(case: Case) -> None:
    case.take_over()
    problems = verify_store(case.kit.root, case.disk)["problems"]
    assert ["start the node" in problem["reason"] for problem in problems] == [True]


def test_verify_names_each_changed_byte_of_a_state_that_waits(case: Case) -> None:
    case.take_over()
    disk = case.disk
    for path in case.staged():
        for offset in range(0, len(disk.content(path)), 7):
            disk.flip(path, offset, 1)
            found = [
                problem["index"]
                for problem in verify_store(case.kit.root, disk)["problems"]
                if problem["file"] == str(path)
            ]
            assert found == [case.first.index if path.parent.name == "data" else -1], (
                f"{path.name} at {offset}"
            )
            disk.flip(path, offset, 1)
