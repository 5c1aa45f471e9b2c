"""Another node's state in the place of this one's: all at once, whenever the process or the power ends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptStore, DiskFull, StorageError
from dledger.messages.entry import Entry, HardState, LogEnd
from dledger.store.file_store import FileStore
from dledger.store.install import INSTALL_FILE, Staging, drop_staged
from dledger.store.memory_disk import Failure, MemoryDisk, ProcessKilled
from dledger.store.slots import SLOT_SIZE
from dledger.store.snapshot import SNAPSHOTS, SnapshotFiles
from dledger.store.tables import TABLES, TableFiles
from dledger.store.verify import verify_store
from dledger.types import Index, Position, Term

ROW = 8
LAST = 30
"""Of the log that the state belongs to."""


def rows(first: int, count: int, salt: int = 0) -> bytes:
    return b"".join((number + salt).to_bytes(ROW, "big") for number in range(first, first + count))


class Case:
    """A store with a catalog of its own, and a state for it. ``reach``: how many entries it has of the other log."""

    def __init__(self, kit: Any, disk: MemoryDisk, reach: int) -> None:
        self.kit = kit
        self.disk = disk
        self.log: list[Entry] = kit.make(LogEnd(), [100 + 10 * (n % 5) for n in range(LAST + 1)], term=2)
        self.first = next(entry for entry in self.log if entry.index > 8 and entry.pos % kit.segment == 0)
        store = kit.open(disk)
        store.save_hard_state(HardState(Term(3)))
        store.append(self.log[:reach])
        store.sync()
        store.note_commit(Index(min(reach, 3) - 1))
        tables, snapshots = TableFiles(kit.root / TABLES, disk), SnapshotFiles(kit.root / SNAPSHOTS, disk)
        for name in ("both", "old"):
            tables.open(name, ROW).append(rows(0, 3, salt=1000))
        tables.sync()
        snapshots.save(Index(2), b"the old catalog")
        tables.close()
        self.keeps = reach > self.first.index
        self.old = self.seen(store)
        self.store: FileStore = store

    def begin(self) -> LogEnd:
        before = self.log[self.first.index - 1]
        return LogEnd(Position(Term(-1), before.index), self.first.pos, before.chain_crc)

    def stage(self) -> Staging:
        staging = Staging(self.kit.root, self.disk, self.kit.segment)
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

    def open(self) -> FileStore:
        return self.kit.open(self.disk)

    def seen(self, store: FileStore) -> dict[str, Any]:
        """What the next process finds."""
        root, found = self.kit.root, {}
        tables, snapshots = TableFiles(root / TABLES, self.disk), SnapshotFiles(root / SNAPSHOTS, self.disk)
        for name in tables.names():
            table = tables.open(name, ROW)
            found[name] = (table.begin, bytes(table.read(table.begin, table.end)))
        return {
            "log": self.kit.bytes_of(self.kit.all(store)),
            "begin": store.begin_index,
            "end": store.end,
            "state": store.hard_state.term,
            "catalog": snapshots.load(),
            "tables": found,
            "installed": store.installed_index,
        }

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


def test_a_state_takes_the_place_of_log_and_catalog_when_the_store_is_opened_again(case: Case) -> None:
    case.take_over()
    store = case.open()
    assert case.seen(store) == case.new()
    assert store.durable == store.end.position, "the new log is durable, and may be acknowledged"
    assert store.begin == case.begin()
    rest = case.log[store.end.position.index + 1 :]
    store.append(rest)
    store.sync()
    assert case.kit.all(store)[-1].index == LAST
    store.close()
    assert verify_store(case.kit.root, case.disk)["problems"] == []
    again = case.seen(case.open())
    assert (again["begin"], again["end"]) == (case.first.index, LogEnd.after(rest[-1]))
    assert again["tables"] == case.new()["tables"]


def test_the_first_entry_of_a_new_log_is_never_cut(case: Case) -> None:
    """It is committed (D4)."""
    case.take_over()
    store = case.open()
    with pytest.raises(CorruptStore, match="is committed"):
        store.truncate(Index(case.first.index - 1))


def test_a_front_that_goes_alone_leaves_the_catalog(kit: Any, disk: MemoryDisk) -> None:
    case = Case(kit, disk, 25)
    case.take_over(catalog=False)
    store = case.open()
    assert case.seen(store) == case.new() | {name: case.old[name] for name in ("catalog", "tables", "installed")}
    assert not [path for path in disk.names if path.suffix == ".install"]


def test_a_state_that_nobody_committed_to_leaves_nothing(case: Case) -> None:
    case.stage()
    case.store.close()
    assert case.seen(case.open()) == case.old
    assert not [path for path in case.disk.names if path.suffix == ".install"]


def test_another_state_may_follow(case: Case) -> None:
    case.take_over()
    store = case.open()
    staging = Staging(case.kit.root, case.disk, case.kit.segment)
    later = next(entry for entry in case.log if entry.index > case.first.index and entry.pos % case.kit.segment == 0)
    before = case.log[later.index - 1]
    staging.snapshot(Index(LAST + 5), b"later")
    begin = LogEnd(Position(Term(-1), before.index), later.pos, before.chain_crc)
    staging.commit(Index(LAST + 5), begin, later, catalog=True)
    store.close()
    seen = case.seen(case.open())
    assert (seen["begin"], seen["installed"], seen["tables"]) == (later.index, LAST + 5, {})


def crashes(kit: Any, reach: int, crash: Callable[[MemoryDisk], None]) -> tuple[int, int]:
    """Crash in front of every operation of a take-over and of the start behind it; how many ended on either side."""
    old = new = 0
    operation = 0
    while True:
        disk = MemoryDisk()
        case = Case(kit, disk, reach)
        disk.kill_at = disk.operations + operation
        try:
            case.take_over()
            case.open()
        except ProcessKilled:
            disk.kill_at = None
            crash(disk)
            store = case.open()
            seen = case.seen(store)
            assert seen in (case.old, case.new()), f"neither one state nor the other after operation {operation}"
            old, new = old + (seen == case.old), new + (seen == case.new())
            store.close()
            assert case.seen(case.open()) == seen
            assert not [path for path in disk.names if path.suffix == ".install"]
            operation += 1
            continue
        return old, new


@pytest.mark.parametrize("reach", [5, 25], ids=["replaced", "kept"])
@pytest.mark.parametrize("outcome", ["process", "lost", "half", "survived"])
def test_a_crash_at_any_operation_leaves_one_state_or_the_other(kit: Any, reach: int, outcome: str) -> None:
    choose: dict[str, Callable[[int], int] | None] = {
        "lost": None, "half": lambda n: n // 2, "survived": lambda n: n - 1,
    }  # fmt: skip

    def crash(disk: MemoryDisk) -> None:
        if outcome == "process":
            disk.reboot(power=False)
        else:
            disk.reboot(power=True, choose=choose[outcome])

    old, new = crashes(kit, reach, crash)
    assert old > 10
    assert new > 10


def test_a_crash_of_the_start_that_carries_it_out_at_any_operation_ends_with_the_new_state(kit: Any) -> None:
    operation = 0
    while True:
        disk = MemoryDisk()
        case = Case(kit, disk, 5)
        case.take_over()
        disk.reboot(power=True)
        disk.kill_at = disk.operations + operation
        try:
            store = case.open()
        except ProcessKilled:
            disk.kill_at = None
            disk.reboot(power=operation % 2 == 0)
            assert case.seen(case.open()) == case.new(), f"after operation {operation}"
            operation += 1
            continue
        disk.kill_at = None
        assert case.seen(store) == case.new()
        break
    assert operation > 20


def test_a_full_disk_leaves_the_old_state_and_another_try_succeeds(case: Case) -> None:
    case.disk.failures.append(Failure("fallocate", ".install", errno.ENOSPC, times=1))
    staging = Staging(case.kit.root, case.disk, case.kit.segment)
    with pytest.raises(DiskFull, match="no room"), staging.writing():
        staging.snapshot(Index(LAST), b"the new catalog")
    staging.drop()
    case.take_over()
    assert case.seen(case.open()) == case.new()


def test_a_failed_write_of_the_record_is_the_end_of_the_store(case: Case) -> None:
    """It may be there or not, so nobody may go on as if it were not (D2)."""
    case.disk.failures.append(Failure("fdatasync", f"{case.kit.root}/{INSTALL_FILE}", errno.EIO))
    with pytest.raises(StorageError, match="The disk failed"):
        case.take_over()


@pytest.mark.parametrize("slot", [0, 1])
def test_one_damaged_copy_of_the_record_does_no_harm(case: Case, slot: int) -> None:
    case.take_over()
    flip(case.disk, case.kit.root / INSTALL_FILE, slot * SLOT_SIZE + 30)
    assert case.seen(case.open()) == case.new()


def test_a_record_that_cannot_be_read_stops_a_store_that_it_may_speak_of(case: Case) -> None:
    case.take_over()
    for slot in range(2):
        flip(case.disk, case.kit.root / INSTALL_FILE, slot * SLOT_SIZE + 30)
    with pytest.raises(CorruptStore, match="dledger admit"):
        case.open()
    drop_staged(case.disk, case.kit.root)
    assert case.open().installed_index == -1, "nothing is left that it could speak of"


def flip(disk: MemoryDisk, path: Path, at: int) -> None:
    disk.names[path].written[at] ^= 1
    disk.names[path].durable[at] ^= 1


def test_verify_tells_of_a_state_that_waits_to_be_taken_over(case: Case) -> None:
    case.take_over()
    problems = verify_store(case.kit.root, case.disk)["problems"]
    assert ["start the node" in problem["reason"] for problem in problems] == [True]
