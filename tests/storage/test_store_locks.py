"""Each rule of the table in docs/architecture.md, which lock guards what, broken by a caller: an
assertion says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dledger.node.loop.log_writer import Owner
from dledger.storage.background import BackgroundState
from dledger.storage.file_store import FileStore
from dledger.storage.log.repairs import FileCopy
from dledger.storage.log.segments import is_held

BREACHES: dict[str, tuple[str, Callable[[FileStore], object]]] = {
    "bytes of the data": (
        "written under FileStore._lock",
        lambda store: store._data.pwritev(0, [b"x"]),
    ),
    "units of the index": (
        "written under FileStore._lock",
        lambda store: store._index.put(0, [bytes(32)]),
    ),
    "a sync of the data": ("synced under FileStore._sync_lock", lambda store: store._data.sync()),
    "a cut": (
        "are cut, go and are exchanged under FileStore._lock",
        lambda store: store._data.cut(0),
    ),
    "files that go": (
        "go and are exchanged under FileStore._lock",
        lambda store: store._data.drop_behind(0),
    ),
    "an exchanged file": (
        "exchanged under FileStore._repair_lock",
        lambda store: store._data.replace(0, store._data.directory / "other"),
    ),
    "a removed name": ("go under SegmentFiles._naming", lambda store: store._data._drop(0)),
    "a new name": (
        "names under SegmentFiles._naming",
        lambda store: store._data._name(store._data.path(0), store._data.path(0), 0),
    ),
    "a new file": (
        "filled under SegmentFiles._filling",
        lambda store: store._data._fill(store._data.path(0)),
    ),
    "a kept handle": (
        "kept under SegmentFiles._lock",
        lambda store: store._data._keep(0, store._data.file(0)),
    ),
    "the table of terms": (
        "replaced under FileStore._lock",
        lambda store: store._terms.truncate(0),
    ),
    "a copy for a repair": (
        "copied and exchanged under FileStore._repair_lock",
        lambda store: FileCopy(store._data, 0, run=store.read(0, 1), behind=400).begin(0),
    ),
}


@pytest.fixture
def store(kit: Any, disk: Any) -> Iterator[FileStore]:
    store = kit.open(disk, BackgroundState.MANUAL)
    kit.fill(store, [300] * 4)
    yield store
    store.close()


@pytest.mark.parametrize("what", BREACHES)
def test_what_a_caller_does_without_the_lock_for_it_is_told(what: str, store: FileStore) -> None:
    rule, breach = BREACHES[what]
    with pytest.raises(AssertionError, match=rule):
        breach(store)


@pytest.mark.parametrize("change", [lambda files: files.cut(0), lambda files: files.drop_behind(0)])
def test_files_change_beside_no_sync(change: Callable[[Any], object], store: FileStore) -> None:
    with store._lock, pytest.raises(AssertionError, match=r"FileStore\._sync_lock"):
        change(store._data)


def test_the_writers_lock_in_another_thread_is_none() -> None:
    lock, taken, go_on = threading.RLock(), threading.Event(), threading.Event()

    def take() -> None:
        with lock:
            taken.set()
            go_on.wait(30)

    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(30)
    assert not is_held(lock)
    go_on.set()
    thread.join()
    with lock:
        assert is_held(lock)
    plain = threading.Lock()
    assert not is_held(plain)
    with plain:
        assert is_held(plain)


def test_what_belongs_to_one_thread_is_no_other_ones() -> None:
    owner, said = Owner(), list[bool]()
    assert owner.is_me()
    thread = threading.Thread(target=lambda: said.append(owner.is_me()))
    thread.start()
    thread.join()
    assert said == [False]
    assert owner.is_me()


def test_an_exchanged_file_takes_the_writers_lock_too(store: FileStore) -> None:
    with (
        store._repair_lock,
        pytest.raises(AssertionError, match=r"are exchanged under FileStore\._lock"),
    ):
        store._data.replace(0, store._data.directory / "other")
