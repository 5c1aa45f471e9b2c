"""Files that two threads have at once: where one of them is within a call of the disk, the other
one does something."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger.errors import OffsetOutOfRange
from dledger.node.rocketmq.dispatched import Dispatched
from dledger.rocketmq.dispatch.reput_message_service import ReputMessageService
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store import mapped_file_queue as module
from dledger.rocketmq.store.files import FileHandles
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.message_store import MessageStore
from dledger.storage.disk.disk import RealDisk, RealFile
from dledger.types import NO_INDEX, Buffer
from verification.disk.memory_store import MemoryStore

FILE = 100


class TellingLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waits = waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


def within(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], object]) -> None:
    """Carry out an action within the next call of this method of a file, when what it does is
    done."""
    original, left = getattr(RealFile, name), [action]

    def called(file: RealFile, *args: object) -> object:
        result = original(file, *args)
        if left:
            left.pop()()
        return result

    monkeypatch.setattr(RealFile, name, called)


def beside(queue: MappedFileQueue, action: Callable[[], object]) -> Callable[[], threading.Thread]:
    """Begins an action in a thread of its own, and returns when it has ended, or waits for the
    queue's lock."""
    told = threading.Event()
    queue._flushing = TellingLock(told)  # type: ignore[assignment]

    def work() -> None:
        action()
        told.set()

    def begin() -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        assert told.wait(30)
        return thread

    return begin


@pytest.fixture
def queue(tmp_path: Path) -> MappedFileQueue:
    return MappedFileQueue(tmp_path / "log", FILE)


def test_write_under_way_at_a_flush_is_synced_by_the_next_flush(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[RealFile] = []
    write, fdatasync = RealFile.pwritev, RealFile.fdatasync
    monkeypatch.setattr(RealFile, "fdatasync", lambda file: (synced.append(file), fdatasync(file)))
    queue.append(b"a" * 10)
    queue.flush()

    def slow_write(file: RealFile, buffers: Sequence[Buffer], offset: int) -> None:
        queue.flush()
        write(file, buffers, offset)

    monkeypatch.setattr(RealFile, "pwritev", slow_write)
    queue.append(b"b" * 10)
    assert queue.flushed_offset == 10
    before = len(synced)
    queue.flush()
    assert len(synced) == before + 1
    assert queue.flushed_offset == 20


def test_file_gets_its_name_after_the_previous_name_is_on_the_disk(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that is under way has taken note of that name, and has not synced it yet."""
    done: list[str] = []
    rename = RealDisk.rename
    monkeypatch.setattr(module, "sync_directory", lambda path, disk: done.append("synced"))

    def renamed(disk: RealDisk, source: Path, target: Path) -> None:
        done.append(f"made {int(target.name)}")
        rename(disk, source, target)

    monkeypatch.setattr(RealDisk, "rename", renamed)
    queue.append(b"a" * 50)
    within(monkeypatch, "fdatasync", lambda: queue.append(b"b" * 100))
    queue.flush()
    assert done == ["made 0", "synced", "made 100"]
    queue.flush()
    queue.flush()
    assert done[3:] == ["synced"]


def test_a_cut_beside_a_flush_leaves_nothing_durable_that_is_not(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.append(b"a" * 80)
    begin, threads = beside(queue, lambda: queue.truncate_dirty(30)), []
    within(monkeypatch, "fdatasync", lambda: threads.append(begin()))
    queue.flush()
    threads[0].join()
    assert (queue.max_offset, queue.flushed_offset) == (30, 30)
    queue.append(b"b" * 20)
    assert queue.flushed_offset == 30


@pytest.mark.parametrize("remove", ["delete_before", "destroy"])
def test_files_that_go_beside_a_flush_are_no_error_of_it(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch, remove: str
) -> None:
    queue.append(b"a" * 250)
    removal = queue.destroy if remove == "destroy" else lambda: queue.delete_before(200)
    begin, threads = beside(queue, removal), list[threading.Thread]()
    within(monkeypatch, "fdatasync", lambda: threads.append(begin()))
    queue.flush()
    threads[0].join()
    queue.flush()
    assert queue.starts == ([] if remove == "destroy" else [200])
    assert queue.flushed_offset == queue.max_offset


@pytest.mark.parametrize("again", [False, True], ids=["cut", "written again"])
def test_a_read_beside_a_cut_gives_no_byte_that_is_gone(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    queue.append(b"a" * 250)

    def cut() -> None:
        queue.truncate_dirty(30)
        if again:
            queue.append(b"b" * 220)

    within(monkeypatch, "pread", cut)
    if again:
        assert queue.read(20, 200) == b"a" * 10 + b"b" * 190
        assert queue.read(20, 230) == b"a" * 10 + b"b" * 220
    else:
        with pytest.raises(OffsetOutOfRange, match="0 to 30"):
            queue.read(20, 200)


def test_read_beside_a_deletion_gives_the_bytes_or_reports_them_gone(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.append(b"a" * 100 + b"b" * 100 + b"c" * 50)
    within(monkeypatch, "pread", lambda: queue.delete_before(200))
    assert queue.read(0, 100) == b"a" * 100
    queue.append(b"d" * 250)
    within(monkeypatch, "pread", lambda: queue.delete_before(400))
    with pytest.raises(OffsetOutOfRange, match="has 400 to 500"):
        queue.read(200, 250)


ENDS: dict[str, Callable[[FileHandles, Path], object]] = {
    "forgotten": lambda handles, path: handles.forget(path),
    "others": lambda handles, path: handles.get(path.with_name("other")),
    "closed": lambda handles, path: handles.close(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_file_in_use_is_not_closed_and_its_descriptor_is_not_reused(
    tmp_path: Path, end: Callable[[FileHandles, Path], None]
) -> None:
    path, other = tmp_path / "one", tmp_path / "other"
    path.write_bytes(b"one")
    other.write_bytes(b"other")
    handles = FileHandles(1)
    first, file = handles.get(path), handles.get(path)
    end(handles, path)
    another = handles.get(other)
    assert another is not file
    assert file is first
    assert (file.pread(10, 0), another.pread(10, 0)) == (b"one", b"other")
    handle = file._fd  # type: ignore[attr-defined]
    del first, file
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(handle)


def test_queues_and_index_of_a_store_belong_to_the_thread_that_dispatches(tmp_path: Path) -> None:
    store = MessageStore(tmp_path / "store", file_size=1 << 16, index_slots=10, index_units=10)
    dispatched, go_on = threading.Event(), threading.Event()

    def busy() -> bool:
        dispatched.set()
        return not go_on.wait(30)

    reput = ReputMessageService(store, busy=busy)
    reput.start()
    store.log.put_messages([Message("orders", b"body")])
    reput.notify_appended()
    assert dispatched.wait(30)
    look, delete = (lambda: store.messages("orders", 0, 0)), (lambda: store.delete_before(0))
    for forbidden in (store.dispatch, store.flush, look, delete):
        with pytest.raises(AssertionError, match="the thread that dispatches"):
            forbidden()
    store.log.flush()
    go_on.set()
    reput.stop()
    assert [one.body for one in store.messages("orders", 0, 0)] == [b"body"]
    store.close()


def test_consume_queues_belong_to_the_thread_that_opened_them(tmp_path: Path) -> None:
    files = Dispatched(tmp_path, lambda: 0)
    thread = threading.Thread(target=files.open, args=(MemoryStore(),))
    thread.start()
    thread.join()
    for forbidden in (
        lambda: files.put([]),
        lambda: files.save(NO_INDEX),
        lambda: files.delete_before(0),
    ):
        with pytest.raises(AssertionError, match="another thread"):
            forbidden()


def test_a_brokers_files_are_synced_and_removed_only_under_their_lock(
    queue: MappedFileQueue,
) -> None:
    queue.append(b"a" * 10)
    breaches: list[tuple[str, Callable[[], object]]] = [
        ("synced under MappedFileQueue._flushing", lambda: queue._sync([0], 1)),
        ("removed under MappedFileQueue._flushing", lambda: queue._remove(0)),
    ]
    for rule, breach in breaches:
        with pytest.raises(AssertionError, match=rule):
            breach()
    assert queue.read(0, 10) == b"a" * 10
