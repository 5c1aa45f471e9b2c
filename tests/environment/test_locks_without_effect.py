"""A file system whose flock says yes to everybody: two nodes on one store would destroy it, so none
starts there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger import EmbeddedGroup
from dledger.embedded.home import Home, PidFile
from dledger.errors import PathError
from dledger.forks import check_lock, let_go, open_for_lock
from dledger.storage.disk.disk import RealDisk, RealLock
from dledger.storage.offline.inspect import inspect_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings, take_lock
from dledger.types import NodeId

N0 = NodeId("n0")


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)


def open_files(directory: Path) -> int:
    """The descriptors of files in ``directory``: those of other tests may go at any time."""
    return sum(name.resolve().is_relative_to(directory) for name in Path("/proc/self/fd").iterdir())


def hold(home: Path) -> None:
    with Home(home).lock():
        pass


def start_store(home: Path) -> None:
    settings = StoreSettings(
        directory=home / "n0", node_id=N0, segment_bytes=1 << 20, index_file_bytes=3200
    )
    open_settings(settings, RealDisk()).close()


TAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "store": (start_store, "n0/lock"),
    "disk": (lambda home: take_lock(RealDisk(), home / "n0"), "n0/lock"),
    "group": (hold, ".lock"),
    "node": (lambda home: PidFile(Home(home), N0).acquire(0), "n0/node.pid"),
}


@pytest.mark.parametrize("who", TAKERS)
@pytest.mark.usefixtures("no_locks")
def test_who_takes_a_lock_that_keeps_nobody_out_is_told(tmp_path, who):
    take, name = TAKERS[who]
    (tmp_path / "n0").mkdir()
    with pytest.raises(
        PathError, match=f"{name}: two can hold the lock of this file at once.*local disk"
    ):
        take(tmp_path)


@pytest.mark.parametrize("who", TAKERS)
def test_lock_that_works_is_taken_and_given_back(tmp_path, who):
    take, _ = TAKERS[who]
    (tmp_path / "n0").mkdir()
    take(tmp_path)


@pytest.mark.usefixtures("no_locks")
def test_group_of_a_path_does_not_start_without_locks(tmp_path):
    with pytest.raises(PathError, match="no working flock"):
        EmbeddedGroup(tmp_path / "log", replicas=1).start()


@pytest.mark.usefixtures("no_locks")
def test_store_is_not_inspected_when_node_activity_is_unknown(tmp_path):
    """Without a working flock, a node may be running on the store."""
    (tmp_path / "data").mkdir()
    (tmp_path / "lock").touch()
    with pytest.raises(PathError, match="no working flock"):
        inspect_store(tmp_path)


def test_check_leaves_the_lock_as_it_is(tmp_path):
    path = tmp_path / "lock"
    lock = RealLock(path)
    check_lock(path)
    with pytest.raises(BlockingIOError):
        RealLock(path)
    before = open_files(tmp_path)
    for _ in range(3):
        check_lock(path)
    assert open_files(tmp_path) == before
    lock.release()
    RealLock(path).release()


def test_check_tells_a_lock_that_nobody_holds(tmp_path):
    path = tmp_path / "lock"
    descriptor = open_for_lock(path, os.O_RDWR | os.O_CREAT)
    before = open_files(tmp_path)
    with pytest.raises(PathError, match="lock: two can hold"):
        check_lock(path)
    assert open_files(tmp_path) == before
    let_go(descriptor)


def test_failed_check_gives_the_lock_back(tmp_path, monkeypatch):
    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    before = open_files(tmp_path)
    with pytest.raises(PathError):
        RealLock(tmp_path / "lock")
    assert open_files(tmp_path) == before
    monkeypatch.setattr(fcntl, "flock", flock)
    RealLock(tmp_path / "lock").release()
