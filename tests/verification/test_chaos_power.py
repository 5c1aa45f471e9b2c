"""A power cut takes what no sync covers, and nothing else: with real files, as the nodes of a
campaign have them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.config import GroupConfig, NodeConfig
from dledger.net import run
from dledger.protocol.messages.entry import MAGIC_NORMAL, HardState, stamp
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import DiskFile, Lock
from dledger.storage.opening import open_store
from dledger.types import Index, NodeId, Term
from verification.chaos.faults.power import what_is_missing
from verification.chaos.panel import Panel
from verification.chaos.power.disk import PoweredDisk
from verification.chaos.power.journal import Journal, Pending, read_records
from verification.chaos.power.outage import MOODS, cut_power, forget
from verification.chaos.run import Part, run_part
from verification.chaos.schedule import named_faults, schedule

POWER = "power_cut", "power_cut_leader", "power_cut_minority", "power_cut_all"


class NoLock:
    """The lock of a process that is said to be gone while it is this one."""

    def release(self) -> None:
        """Nothing holds it."""


class Disk(PoweredDisk):
    def lock(self, path: Path) -> Lock:
        return NoLock()


class Machine:
    """A directory on a disk whose power can be cut."""

    def __init__(self, root: Path) -> None:
        self.root = root / "store"
        self.root.mkdir()
        self._journal = root / "journal"
        self._kept = root / "kept"
        self.panel = Panel(root / "panel")
        self.start()

    def start(self) -> None:
        """A process starts: the one before is gone, however it ended."""
        self.journal = Journal(self._journal)
        self.disk = Disk(self.panel, self.journal, self._kept)

    def cut(self, seed: int = 1, mood: float = 0.0) -> int:
        """The power fails; a process starts when it is back."""
        lost = cut_power(self.root, self._journal, self._kept, random.Random(seed), mood)
        self.start()
        return lost

    def forget(self) -> None:
        forget(self._journal, self._kept)
        self.start()

    def make(self, name: str, content: bytes) -> DiskFile:
        """A file that is there for sure."""
        file = self.disk.open(self.root / name, create=True)
        file.pwritev([content], 0)
        file.fdatasync()
        self.disk.fsync_dir(self.root)
        return file

    def rename(self, name: str, other: str) -> None:
        self.disk.rename(self.root / name, self.root / other)

    def content(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.iterdir()}

    @property
    def pending(self) -> int:
        return len(Pending.of(read_records(self._journal)).changes)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_synced_stays_and_what_was_not_goes(machine: Machine) -> None:
    file = machine.make("f", b"a" * 10_000)
    file.pwritev([b"b" * 5000, b"c" * 5000], 2000)
    file.pwritev([b"d" * 100], 15_000)
    assert machine.cut() > 0
    assert machine.content("f") == b"a" * 10_000
    assert machine.cut() == 0, "what is there after a power cut is there for sure"


def test_a_sync_covers_no_write_that_was_under_way_when_it_began(machine: Machine) -> None:
    file = machine.make("f", b"a" * 600)
    inode = (machine.root / "f").stat().st_ino
    write = machine.journal.begin("write", b"a" * 600, inode=inode, offset=0, size=600, before=600)
    sync = machine.journal.begin("sync", inode=inode)
    os.pwrite(os.open(machine.root / "f", os.O_WRONLY), b"b" * 600, 0)
    machine.journal.end(write)
    machine.journal.end(sync)
    assert machine.pending == 1
    file.fdatasync()
    assert machine.pending == 0
    assert machine.cut() == 0
    assert machine.content("f") == b"b" * 600


def test_a_sync_that_failed_covers_nothing(machine: Machine) -> None:
    file = machine.make("f", b"a")
    file.pwritev([b"b"], 0)
    machine.panel["sync_error"] = 1
    with pytest.raises(OSError, match="error"):
        file.fdatasync()
    machine.cut()
    assert machine.content("f") == b"a"


def test_a_write_is_torn_at_the_borders_of_sectors_or_pages(machine: Machine) -> None:
    old, new = b"a" * 64_000, b"b" * 64_000
    torn: set[int] = set()
    for seed in range(12):
        machine.forget()
        machine.make("f", old).pwritev([new], 0)
        machine.cut(seed, mood=0.5)
        found = machine.content("f")
        borders = [at for at in range(1, len(found)) if found[at] != found[at - 1]]
        torn |= {512 if any(at % 4096 for at in borders) else 4096} if borders else set()
        assert all(at % 512 == 0 for at in borders)
    assert torn == {512, 4096}


def test_a_sector_may_be_what_any_write_since_the_last_sync_made_it(machine: Machine) -> None:
    found = set()
    for seed in range(30):
        machine.forget()
        file = machine.make("f", b"0" * 512)
        for content in (b"1", b"2", b"3"):
            file.pwritev([content * 100], 100)
        machine.cut(seed, mood=0.5)
        assert machine.content("f") in {
            b"0" * 100 + c * 100 + b"0" * 312 for c in (b"0", b"1", b"2", b"3")
        }
        found.add(machine.content("f")[100])
    assert found == set(b"0123")


def test_lengths_go_back_with_the_bytes_that_were_cut_off(machine: Machine) -> None:
    file = machine.make("f", b"a" * 5000)
    file.truncate(1000)
    file.fallocate(9000)
    file.pwritev([b"b" * 1000], 500)
    assert machine.content("f") == b"a" * 500 + b"b" * 1000 + bytes(7500)
    machine.cut()
    assert machine.content("f") == b"a" * 5000
    assert machine.pending == 0


def test_names_come_back_until_their_directory_was_synced(machine: Machine) -> None:
    for name in ("old", "gone", "kept"):
        machine.make(name, name.encode())
    machine.make("new", b"new")
    machine.rename("new", "old")
    machine.disk.unlink(machine.root / "gone")
    machine.disk.open(machine.root / "fresh", create=True).fdatasync()
    machine.disk.mkdir(machine.root / "below" / "deep")
    machine.cut()
    assert machine.files == {"old": b"old", "new": b"new", "gone": b"gone", "kept": b"kept"}
    machine.rename("new", "old")
    machine.disk.unlink(machine.root / "gone")
    machine.disk.fsync_dir(machine.root)
    assert machine.cut() == 0
    assert machine.files == {"old": b"new", "kept": b"kept"}


def test_renamed_file_has_no_doubtful_bytes_of_the_one_it_replaced(machine: Machine) -> None:
    machine.make("f", b"a" * 512).pwritev([b"b" * 512], 0)
    fresh = machine.disk.open(machine.root / "f.new", create=True)
    fresh.pwritev([b"c" * 512], 0)
    fresh.fdatasync()
    machine.disk.fsync_dir(machine.root)
    machine.rename("f.new", "f")
    machine.cut()
    assert machine.content("f") == b"a" * 512
    assert machine.content("f.new") == b"c" * 512


def test_large_writes_past_the_page_cache_are_lost_as_well(machine: Machine) -> None:
    file = machine.make("f", b"a" * (1 << 20))
    file.pwritev([b"b" * (512 << 10)], 4096)
    assert machine.content("f")[4096:8192] == b"b" * 4096
    machine.cut()
    assert machine.content("f") == b"a" * (1 << 20)


def test_a_killed_process_leaves_its_writes_in_doubt_to_the_next_one(machine: Machine) -> None:
    file = machine.make("f", b"a" * 100)
    file.pwritev([b"b" * 100], 0)
    boot = machine.disk.boot_id()
    machine.start()
    assert machine.disk.boot_id() == boot
    assert machine.content("f") == b"b" * 100
    machine.cut()
    assert machine.content("f") == b"a" * 100
    assert machine.disk.boot_id() != boot


def test_change_cut_short_by_a_kill_is_covered_by_the_next_sync(machine: Machine) -> None:
    machine.make("f", b"a" * 100)
    inode = (machine.root / "f").stat().st_ino
    machine.journal.begin("write", b"a" * 50, inode=inode, offset=0, size=50, before=100)
    (machine.root / "f").write_bytes(b"b" * 30 + b"a" * 70)
    machine.start()
    machine.disk.open(machine.root / "f").fdatasync()
    assert machine.cut() == 0


def test_a_journal_that_grows_is_shortened_to_what_is_pending(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, limit=20_000)
    first = journal.begin("write", b"x" * 10, inode=1, offset=0, size=10, before=10)
    journal.end(first)
    sync = journal.begin("sync", inode=1)
    late = journal.begin("write", b"y" * 10, inode=1, offset=0, size=10, before=10)
    journal.end(late)
    for _ in range(50):
        journal.end(journal.begin("write", b"z" * 3000, inode=2, offset=0, size=3000, before=3000))
        journal.end(journal.begin("sync", inode=2))
    assert path.stat().st_size < 40_000
    assert list(Pending.of(read_records(path)).changes) == [first, late]
    journal.end(sync)
    assert list(Pending.of(read_records(path)).changes) == [late]


def grow(machine: Machine, count: int, synced: int) -> tuple[GroupConfig, NodeConfig]:
    """A store with so many entries, of which the first ``synced`` were reported durable."""
    group = GroupConfig(
        segment_bytes=16 << 10,
        index_file_bytes=8 << 10,
        max_body_bytes=4 << 10,
        members=tuple(map(NodeId, ("n0", "n1", "n2"))),
    )
    node = NodeConfig(node_id=NodeId("n0"), directory=machine.root / "n0")
    store = open_store(group, node, machine.disk, BackgroundState.INLINE)
    store.save_hard_state(HardState(Term(3), NodeId("n1"), Index(-1)))
    for number in range(count):
        body = f"{number}".encode() * 150
        store.append([stamp(store.end, Term(3), MAGIC_NORMAL, body, group.segment_bytes)])
        if number + 1 == synced:
            assert store.sync().index == number
    return group, node


@pytest.mark.parametrize("mood", sorted(set(MOODS)))
def test_a_store_has_what_it_reported_durable_after_every_power_cut(
    machine: Machine, mood: float
) -> None:
    lost = 0
    for seed in range(6):
        synced = 10 + 11 * seed
        group, node = grow(machine, synced + 40, synced)
        lost += machine.cut(seed, mood)
        store = open_store(group, node, machine.disk, BackgroundState.INLINE)
        assert store.end.position.index >= synced - 1
        assert store.hard_state.term == 3
        assert store.hard_state.voted_for == "n1"
        bodies: list[bytes] = []
        while len(bodies) < synced:
            part = store.read(Index(len(bodies)), 1 << 30, Index(synced))
            bodies += [bytes(entry.body) for entry in part]
        assert bodies == [f"{number}".encode() * 150 for number in range(synced)]
        store.close()
        shutil.rmtree(node.directory)
        machine.forget()
    assert lost > 0


def test_entries_that_were_reported_durable_and_are_gone_are_told(machine: Machine) -> None:
    _, node = grow(machine, 30, 20)
    machine.cut()
    assert what_is_missing(node.directory, 19) == ""
    assert "the log ends at" in what_is_missing(node.directory, 25)
    assert what_is_missing(node.directory, -1) == ""


def test_torn_write_after_the_last_durable_entry_is_no_missing_entry(machine: Machine) -> None:
    """Of an entry that nobody called durable a later block can be there, and the first one not."""
    group, node = grow(machine, 20, 20)
    store = open_store(group, node, machine.disk, BackgroundState.INLINE)
    end = store.end.end_pos
    store.close()  # the mark names the last entry
    with (node.directory / "data" / f"{0:020d}").open("r+b") as file:
        file.seek(end + 1024)
        file.write(b"a later block")
    assert what_is_missing(node.directory, 19) == ""
    assert "the log ends at 19" in what_is_missing(node.directory, 20)


def campaign(
    path: Path,
    faults: Sequence[str],
    seed: int = 3,
    seconds: float = 12.0,
    nodes: int = 3,
    **settings: str,
) -> Part:
    plan = schedule(seed, named_faults(faults))
    return run(run_part(path, nodes, seconds, plan, seed, print, None, settings))


@pytest.mark.cluster
def test_a_campaign_with_power_cuts_is_green(tmp_path: Path) -> None:
    part = campaign(tmp_path / "run", POWER)
    assert not part.problems, part.problems
    assert sum(part.bites.values()) > 0
    assert part.verdict.acknowledged > 100


@pytest.mark.cluster
def test_campaign_with_nodes_that_do_not_wait_for_disks_loses_records(tmp_path: Path) -> None:
    """Else a green one would say nothing. A cut takes what it likes of each disk, and an entry is
    lost only when all disks lose it: so there is one disk, and there are many cuts."""
    for seed in range(3, 43):
        path = tmp_path / f"run{seed}"
        part = campaign(path, ["power_cut_all"], seed, seconds=4.0, nodes=1, flush="async")
        if any("lost write" in text or "two values" in text for text in part.problems):
            return
    pytest.fail("forty power cuts took nothing that was acknowledged")


@pytest.mark.cluster
def test_a_node_that_runs_as_users_run_it_is_a_member_of_the_larger_groups(tmp_path: Path) -> None:
    part = campaign(tmp_path / "run", ["pause_leader"], seconds=3.0, nodes=5)
    assert not part.problems, part.problems
    assert part.verdict.acknowledged > 0
