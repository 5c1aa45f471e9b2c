"""The disk of a group in memory does as the operating system's: each test holds for both."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.storage.disk.disk import Disk, RealDisk
from dledger.testing.volatile_disk import VolatileDisk


@pytest.fixture(params=[RealDisk, VolatileDisk])
def disk(request: pytest.FixtureRequest) -> Disk:
    return request.param()


def test_files_are_written_read_and_mapped(disk: Disk, tmp_path: Path) -> None:
    disk.mkdir(tmp_path / "a" / "b")
    path = tmp_path / "a" / "b" / "file"
    file = disk.open(path, create=True)
    file.pwritev([b"one", memoryview(b"two")], 4)
    file.fdatasync()
    disk.fsync_dir(path.parent)
    assert file.pread(99, 0) == b"\0\0\0\0onetwo"
    file.map(10, write=True)[:4] = b"zero"
    assert bytes(disk.open_read_only(path).map(4)) == b"zero"
    file.fallocate(1 << 20)
    assert (file.size(), disk.size(path)) == (1 << 20, 1 << 20)
    file.truncate(4)
    assert file.pread(99, 0) == b"zero"
    assert file.next_data(0) == 0
    assert disk.statvfs(path.parent).free > 0


def test_names_come_change_and_go(disk: Disk, tmp_path: Path) -> None:
    assert disk.listdir(tmp_path / "none") == []
    disk.mkdir(tmp_path / "d")
    for name in "ab":
        disk.open(tmp_path / "d" / name, create=True).pwritev([name.encode()], 0)
    held = disk.open(tmp_path / "d" / "b")
    disk.rename(tmp_path / "d" / "a", tmp_path / "d" / "b")
    assert held.pread(1, 0) == b"b"  # whoever has it open still reads it
    assert disk.open(tmp_path / "d" / "b").pread(1, 0) == b"a"
    assert disk.listdir(tmp_path) == ["d"]
    assert disk.listdir(tmp_path / "d") == ["b"]
    assert disk.is_dir(tmp_path / "d")
    assert not disk.is_dir(tmp_path / "d" / "b")
    disk.unlink(tmp_path / "d" / "b")
    assert not disk.exists(tmp_path / "d" / "b")


def test_file_takes_the_times_of_another(disk: Disk, tmp_path: Path) -> None:
    disk.mkdir(tmp_path)
    old, new = tmp_path / "old", tmp_path / "new"
    disk.open(old, create=True)
    before = disk.mtime_ms(old)
    disk.open(new, create=True).pwritev([b"later"], 0)
    disk.copy_times(old, new)
    assert disk.mtime_ms(new) == before


@pytest.mark.parametrize("operation", ["open", "unlink", "size", "mtime_ms", "open_read_only"])
def test_file_that_is_not_there_is_an_error(disk: Disk, tmp_path: Path, operation: str) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        getattr(disk, operation)(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "no directory" / "file", create=True)


def test_lock_is_held_once(disk: Disk, tmp_path: Path) -> None:
    disk.mkdir(tmp_path)
    for lock in (disk.lock, lambda path: disk.lock_first_byte(path, b"word")):
        held = lock(tmp_path / "lock")
        with pytest.raises(BlockingIOError):
            lock(tmp_path / "lock")
        held.release()
        lock(tmp_path / "lock").release()
    assert disk.open(tmp_path / "lock").pread(9, 0) == b"word"
