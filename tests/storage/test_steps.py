"""Files of the log get their blocks in steps: always before a write; a full disk is said before
one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import DiskFull
from dledger.storage.api import DiskLevel
from dledger.storage.background import BackgroundState
from dledger.storage.disk.allocation_steps import FIRST_STEP, LARGEST_STEP, Step, step_of
from dledger.storage.disk.disk import DiskFile, RealDisk
from dledger.storage.disk.file_names import file_name
from dledger.storage.log.repairs import FileCopy
from dledger.storage.log.segments import SegmentFiles
from dledger.types import Index
from verification.disk.memory_disk import MemoryDisk, MemoryFile

MIB = 1 << 20


class StrictFile(MemoryFile):
    """Refuses what is written to a file of the log where nothing was reserved."""

    _disk: StrictDisk

    def pwritev(self, buffers: Any, offset: int) -> None:
        end = offset + sum(map(len, buffers))
        if self.path.parent.name in {"data", "index"} and end > self._inode.reserved:
            self._disk.unreserved.append(
                f"{self.path.name}: {offset} to {end}, has {self._inode.reserved}"
            )
        super().pwritev(buffers, offset)

    def fallocate(self, size: int, begin: int = 0) -> None:
        super().fallocate(size, begin)
        if (action := self._disk.behind_step) is not None:
            self._disk.behind_step = None
            action()


class StrictDisk(MemoryDisk):
    """Notes what is written to a file of the log where nothing was reserved."""

    def __init__(self) -> None:
        super().__init__(first_step=128)
        self.unreserved: list[str] = []
        self.behind_step: Callable[[], None] | None = None
        """Is called once, when a step was taken."""

    def open(self, path: Path, create: bool = False) -> DiskFile:
        super().open(path, create)
        return StrictFile(self, path, self.names[path])

    def reserved(self, kind: str, start: int = 0) -> int:
        """Bytes for which a file has blocks."""
        return self.names[Path("/disk/n0") / kind / file_name(start)].reserved


@pytest.fixture
def strict() -> StrictDisk:
    return StrictDisk()


def test_steps_double_up_to_a_limit_and_end_with_the_file():
    size = 1 << 30
    ends, at = [], 0
    while at < size:
        step = step_of(at, FIRST_STEP, size)
        assert step_of(step.end - 1, FIRST_STEP, size) == step
        assert step.begin == at
        assert step.end - step.begin <= LARGEST_STEP
        ends.append(step.end)
        at = step.end
    assert ends[:4] == [FIRST_STEP, 2 * FIRST_STEP, 4 * FIRST_STEP, 8 * FIRST_STEP]
    assert ends[-1] == size
    assert len(ends) < 50
    assert step_of(0, FIRST_STEP, 1024) == Step(0, 512, 1024)
    assert step_of(5 * MIB, FIRST_STEP, 5 * MIB + 10) == Step(
        4 * MIB, 4 * MIB + MIB // 2 + 5, 5 * MIB + 10
    )


def test_store_with_one_record_uses_little_disk_with_full_length_files(kit, tmp_path):
    sizes = {"segment_bytes": 64 * MIB, "index_file_bytes": 4 * MIB}
    for direct in (False, True):
        root = tmp_path / str(direct)
        store = kit.open(RealDisk(direct=direct), BackgroundState.THREAD, directory=root, **sizes)
        entries = kit.fill(store, [10], segment=64 * MIB)
        files = [path for path in root.rglob("*") if path.is_file()]
        assert sum(path.stat().st_blocks * 512 for path in files) < MIB
        assert (root / "data" / file_name(0)).stat().st_size == 64 * MIB
        assert (root / "index" / file_name(0)).stat().st_size == 4 * MIB
        assert store.bytes_used == 2 * FIRST_STEP
        large = kit.append(store, [3 * MIB], segment=64 * MIB)
        assert (root / "data" / file_name(0)).stat().st_blocks * 512 >= 4 * MIB
        assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *large])
        store.close()


def test_nothing_is_written_where_no_blocks_were_taken(kit, strict):
    """Appends over steps and files, padding, cuts, a restart, retention, repairs."""
    for keeping in (BackgroundState.INLINE, BackgroundState.MANUAL):
        store = kit.open(strict, keeping)
        for size in (10, 0, 200, 300, 330, 900, 100, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 700, 928):
            kit.fill(store, [size], term=store.hard_state.term or 1)
            assert strict.unreserved == []
        kit.fill(store, [300, 500, 600, 20, 20], term=1)
        store.truncate(Index(store.end.position.index - 1))
        kit.fill(store, [250], term=1)
        store.truncate(Index(store.end.position.index - 3))
        kit.fill(store, [50, 300], term=1)
        victim = store.read(Index(store.end.position.index - 1), 0)[0]
        store.repair(victim)
        kit.fill(store, [100] * 9, term=1)
        store.close()
        store = kit.open(strict, keeping)
        kit.fill(store, [100] * 3, term=1)
        store.close()
        strict.reboot(power=True)
        store = kit.open(strict, keeping)
        kit.fill(store, [100] * 30, term=1)
        store.close()
        assert strict.unreserved == []


@pytest.mark.parametrize("first", [0, 40, 400])
def test_D12_a_full_disk_is_said_before_anything_is_written_at_each_step(kit, strict, first):
    store = kit.open(strict, BackgroundState.MANUAL)
    entries = kit.fill(store, [first])
    refused = 0
    for size in (40, 120, 10, 300, 500, 20, 700, 60, 60):
        more = kit.make(store.end, [size])
        strict.free, before = 0, bytes(strict.content(kit.data()))
        error = None
        try:
            store.append(more)
        except DiskFull as raised:
            error = raised
        if error is not None:
            refused += 1
            assert "nothing was written" in str(error)
            assert bytes(strict.content(kit.data())) == before
            assert store.disk_level() is DiskLevel.FULL
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
            strict.free = strict.total
            store.append(more)
            assert store.disk_level() is DiskLevel.OK
        store.sync()
        entries += more
        strict.free = strict.total
    assert refused >= 4
    assert strict.unreserved == []
    store.close()
    assert kit.bytes_of(kit.all(kit.open(strict))) == kit.bytes_of(entries)


def refused_without_room(kit, strict, store, sizes, entries) -> None:
    """An append to a log of these entries is refused on a full disk, and done when there is
    room."""
    strict.free = 0
    more = kit.make(store.end, sizes)
    with pytest.raises(DiskFull):
        store.append(more)
    strict.free = strict.total
    store.append(more)
    assert strict.unreserved == []
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *more])


def test_D12_padding_at_the_end_of_a_step_has_room_too(kit, strict):
    """The next entry goes into the next file, and its padding is the first thing behind the
    step."""
    store = kit.open(strict, BackgroundState.MANUAL)
    entries = kit.fill(store, [80, 80])
    assert store.end.end_pos == strict.reserved("data") == 256
    refused_without_room(kit, strict, store, [900], entries)


def test_the_next_step_is_there_before_it_is_needed(kit, strict):
    """The keeper takes it when half of the last one is used; where it cannot, the disk is full."""
    store = kit.open(strict)
    kit.fill(store, [10])
    assert strict.reserved("data") == 128
    kit.fill(store, [10])
    assert strict.reserved("data") == 256
    strict.fail("fallocate", "data/", errno.ENOSPC)
    kit.fill(store, [30])
    assert store.disk_level() is DiskLevel.FULL
    kit.fill(store, [0])
    strict.failures.clear()
    store.keep()
    assert store.disk_level() is DiskLevel.OK
    assert strict.reserved("data") == 512
    kit.fill(store, [800])
    assert strict.reserved("data", 1024) == 1024
    assert strict.listdir(kit.root / "data") == [file_name(0), file_name(1024), file_name(2048)]


def test_units_of_entries_get_their_steps_like_entries(kit, strict):
    store = kit.open(strict, BackgroundState.MANUAL)
    kit.fill(store, [0] * 4)
    assert strict.reserved("index") == 128
    strict.fail("fallocate", "index/", errno.ENOSPC)
    with pytest.raises(DiskFull, match="index"):
        store.append(kit.make(store.end, [0]))
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(kit.make(type(store.end)(), [0] * 4))
    strict.failures.clear()
    kit.fill(store, [0])
    assert strict.reserved("index") == 256
    assert strict.unreserved == []


def test_a_power_cut_that_takes_a_step_takes_nothing_that_is_acknowledged(kit, strict):
    store = kit.open(strict, BackgroundState.MANUAL)
    entries = kit.fill(store, [40])
    kit.append(store, [300])
    assert strict.reserved("data") == 512
    strict.reboot(power=True)
    store = kit.open(strict, BackgroundState.MANUAL)
    assert strict.reserved("data") == 128
    assert len(strict.content(kit.data())) == kit.segment
    refused_without_room(kit, strict, store, [300], entries)


def test_a_step_that_the_keeper_takes_beside_a_cut_is_not_counted_on(kit, strict):
    """The cut gives back all blocks behind it, those that came meanwhile as well."""
    store = kit.open(strict, BackgroundState.MANUAL)
    kit.fill(store, [40, 40, 170])
    assert store.end.end_pos > 384
    strict.behind_step = lambda: store.truncate(Index(0))
    store.keep()
    assert store.end.position.index == 0
    kit.fill(store, [350])
    assert strict.unreserved == []
    assert store.end.end_pos <= strict.reserved("data")


def test_a_file_that_takes_the_place_of_another_has_no_step_of_it(strict):
    files = SegmentFiles(strict, Path("/disk/data"), file_size=1024)
    files.reserve(0, 600)
    assert files.bytes_used(0) == 1024
    files.drop_behind(-1024)
    assert files.bytes_used(0) == 0
    files.reserve(0, 10)
    assert files.bytes_used(0) == 128
    files.reserve(0, 300)
    files.pwritev(0, [bytes(300)])
    assert strict.unreserved == []


def test_a_repair_copy_has_room_for_what_is_appended_while_it_is_made(kit, strict, monkeypatch):
    begin = FileCopy.begin
    for full in (True, False):
        store = kit.open(strict, BackgroundState.MANUAL)
        entries = kit.fill(store, [40, 40], term=1) if full else kit.all(store)
        meanwhile: list[Any] = []

        def begin_and_append(copy: FileCopy, end_pos: int) -> None:
            begin(copy, end_pos)
            meanwhile.extend(kit.fill(store, [400], term=1) if full else [])  # noqa: B023
            strict.free = 0 if full else strict.total  # noqa: B023

        monkeypatch.setattr(FileCopy, "begin", begin_and_append)
        if full:
            with pytest.raises(DiskFull, match="repair"):
                store.repair(entries[0])
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *meanwhile])
            assert not [name for name in strict.listdir(kit.root / "data") if name.endswith(".new")]
            strict.free = strict.total
        else:
            store.repair(entries[0])
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
        assert strict.unreserved == []
        store.close()


def test_real_file_takes_blocks_only_where_none_are(tmp_path, monkeypatch):
    """Where a system has no such call, zeros are written there: beside a writer that must not be
    where he writes."""
    asked: list[tuple[int, int]] = []
    take = os.posix_fallocate
    monkeypatch.setattr(
        os, "posix_fallocate", lambda fd, at, size: (asked.append((at, size)), take(fd, at, size))
    )
    disk = RealDisk()
    files = SegmentFiles(disk, tmp_path / "data", file_size=4 * MIB)
    for end in (1, FIRST_STEP, FIRST_STEP + 1, 3 * FIRST_STEP, 4 * MIB):
        files.reserve(0, end)
    assert asked == [
        (0, FIRST_STEP),
        (FIRST_STEP, FIRST_STEP),
        (2 * FIRST_STEP, 2 * FIRST_STEP),
        (4 * FIRST_STEP, 4 * MIB - 4 * FIRST_STEP),
    ]
