"""The simulated disk: what it tells of its room and its clock is what its files and its host
make."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.protocol.messages.entry import LogEnd
from dledger.storage.meta.recovery_point import MARK_MAGIC, RecoveryPoint
from dledger.storage.meta.slots import create_slots
from verification.disk.memory_disk import ProcessKilled
from verification.sim.cluster import World
from verification.sim.disk import SimDisk
from verification.sim.rng import Rng
from verification.sim.scheduler import MS, Clock
from verification.sim.settings import SeedPlan

ROOT = Path("/sim/data")


@pytest.fixture
def world() -> World:
    plan = SeedPlan(nodes=1, clients=0, topics=0, faults=(), safety_ms=0)
    return World(1, plan, 10, watching=False)


@pytest.fixture
def disk(world: World) -> SimDisk:
    disk = SimDisk("n0", Rng(2), world.counts, 1 << 20, 512)
    disk.plug(world.new_loop("n0", Clock(world.scheduler)))
    return disk


def change(disk: SimDisk, rng: Rng) -> str:
    path, size = ROOT / f"f{rng.below(6)}", rng.below(3000)
    kind = rng.pick(
        ("write", "truncate", "fallocate", "rename", "unlink", "fsync_dir", "power", "put back")
    )
    if kind == "fsync_dir":
        disk.fsync_dir(ROOT)
    elif kind == "power":
        disk.cut_power()
    elif kind == "put back" and rng.chance(100_000):
        disk.put_back(disk.image())
    elif kind == "rename" and disk.exists(path):
        disk.rename(path, ROOT / f"f{rng.below(6)}")
    elif kind == "unlink" and disk.exists(path):
        disk.unlink(path)
    elif kind == "write":
        disk.open(path, create=True).pwritev([bytes(size)], rng.below(2000))
    elif kind == "truncate":
        disk.open(path, create=True).truncate(size)
    elif kind == "fallocate":
        disk.open(path, create=True).fallocate(size)
    return kind


def test_disk_knows_after_every_change_what_its_files_take(disk: SimDisk) -> None:
    rng, seen = Rng(3), set()
    for _ in range(3000):
        kind = change(disk, rng)
        files = sum(inode.reserved for inode in disk.names.values())
        assert disk.used == files, kind
        assert disk.free == disk.total - files
        seen.add(files)
    assert len(seen) > 500


def test_machine_that_comes_back_has_what_it_had_also_what_was_not_synced(disk: SimDisk) -> None:
    path = ROOT / "a"
    disk.open(path, create=True).pwritev([b"before"], 0)
    former = disk.exchange()
    assert not disk.exists(path)
    disk.open(path, create=True).pwritev([b"new"], 0)
    new = disk.exchange(former)
    assert disk.open(path).pread(10, 0) == b"before"
    disk.cut_power()
    disk.exchange(new)
    assert disk.open(path).pread(10, 0) == b"new"
    assert disk.used == 3


def test_late_full_disk_is_full_only_when_a_file_grows(disk: SimDisk) -> None:
    file = disk.open(ROOT / "f", create=True)
    struck: list[int] = []

    def fill() -> None:
        struck.append(disk.used)
        disk.hog = disk.total - disk.used

    disk.on_growth = fill
    file.pwritev([b"a"], 0)
    assert struck == []
    with pytest.raises(OSError, match="No space left"):
        file.fallocate(4096)
    disk.hog = 0
    file.fallocate(4096)
    assert struck == [1]


def test_kill_for_one_file_does_not_count_operations_on_other_files(disk: SimDisk) -> None:
    killed: list[bool] = []
    disk.on_kill = lambda: killed.append(True)
    state, other = (disk.open(Path("/sim/n0") / name, create=True) for name in ("state", "mark"))
    disk.kill_part, disk.kill_in = "/state", 2
    for _ in range(5):
        other.pwritev([b"a"], 0)
    state.pwritev([b"a"], 0)
    assert not killed
    with pytest.raises(ProcessKilled):
        state.pwritev([b"b"], 0)
    assert killed


def test_files_bear_the_time_of_their_host_when_they_are_written(
    world: World, disk: SimDisk
) -> None:
    path = ROOT / "f"
    file = disk.open(path, create=True)
    world.scheduler.run(40 * MS)
    file.pwritev([b"a"], 0)
    begun = disk.mtime_ms(path)
    world.scheduler.run(90 * MS)
    file.pwritev([b"b"], 1)
    assert disk.mtime_ms(path) == begun + 50
    disk.unplug()
    world.scheduler.run(200 * MS)
    assert disk.now_ms == begun + 50


@pytest.mark.parametrize("part", ["data", "index"])
def test_misdirected_writes_occur_in_turn_where_the_file_is_long_enough(
    disk: SimDisk, part: str
) -> None:
    other = {"data": "index", "index": "data"}[part]
    file = disk.open(Path("/sim") / part / "f", create=True)
    file.fallocate(4096)
    disk.misdirect[part] += [512, -512]
    disk.open(Path("/sim") / other / "f", create=True).pwritev([b"z"], 0)
    for letter, offset in ((b"a", 100), (b"b", 700), (b"c", 4000), (b"d", 300), (b"e", 1000)):
        file.pwritev([letter], offset)
    found = {at: byte for at, byte in enumerate(file.pread(4096, 0)) if byte}
    places = (100, 700 - 512, 4000, 300 + 512, 1000)
    assert found == dict(zip(places, b"abcde", strict=True))
    assert disk.rotten
    assert disk.strays  # at this moment


@pytest.mark.parametrize("synced", [True, False])
def test_misdirected_write_not_yet_in_the_mark_is_undone_at_process_end(
    disk: SimDisk, synced: bool
) -> None:
    """Nobody could tell such a loss from a write that never was; one that the mark speaks of
    stays."""
    path = Path("/sim/n0/data") / f"{8192:020d}"
    file = disk.open(path, create=True)
    file.fallocate(4096)
    file.fdatasync()
    mark = RecoveryPoint(durable=LogEnd(end_pos=8192 + 600)).pack()
    create_slots(disk, path.parent.parent / "mark", MARK_MAGIC, mark)
    disk.misdirect["data"] += [512, 512]
    file.pwritev([b"early"], 0)
    file.pwritev([b"later"], 700)
    if synced:
        file.fdatasync()
    disk.unplug()
    inode = disk.names[path]
    found = {at: chr(byte) for at, byte in enumerate(inode.written) if byte}
    assert found == dict(zip([*range(512, 517), *range(700, 705)], "earlylater", strict=True))
    assert (inode.durable == inode.written) is synced


def test_power_that_goes_in_the_middle_of_a_sync_takes_what_was_under_way(disk: SimDisk) -> None:
    path = ROOT / "a"
    file = disk.open(path, create=True)
    disk.fsync_dir(ROOT)
    file.pwritev([b"data"], 0)
    disk.on_kill = disk.cut_power
    disk.kill_in, disk.kill_part = 1, "a"
    with pytest.raises(ProcessKilled):
        file.fdatasync()
    assert bytes(disk.content(path)) in {b"", bytes(4), b"data"}


def test_a_write_that_went_astray_takes_nothing_back_of_what_a_sync_covers(disk: SimDisk) -> None:
    path = ROOT / "00000000000000000000"
    file = disk.open(path, create=True)
    file.pwritev([bytes(2048)], 0)
    file.fdatasync()
    disk.misdirect["data"].append(-512)
    file.pwritev([b"astray"], 1024)
    disk.witness(ROOT, 0, 1024)
