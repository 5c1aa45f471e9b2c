"""Files of one size, one behind the other."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import dledger.rocketmq.store.mapped_file_queue as module
from dledger.errors import CorruptStore, DiskFull, OffsetOutOfRange, StorageError
from dledger.rocketmq.store.files import FileHandles, sync_directory
from dledger.rocketmq.store.index_file import OpenIndex
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.storage.disk.disk import Disk, RealDisk, RealFile
from dledger.types import Buffer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def queue(tmp_path: Path) -> MappedFileQueue:
    return MappedFileQueue(tmp_path / "log", 100)


def test_bytes_go_over_files_of_full_size_that_are_named_by_20_digits(
    queue: MappedFileQueue,
) -> None:
    assert queue.append(b"a" * 30) == 0
    assert queue.append(b"b" * 230) == 30
    assert names(queue.directory) == [f"{n:020d}" for n in (0, 100, 200)]
    assert {path.stat().st_size for path in queue.directory.iterdir()} == {100}
    assert queue.read(20, 200) == b"a" * 10 + b"b" * 190
    assert (queue.min_offset, queue.max_offset, queue.room) == (0, 260, 40)


def test_bytes_that_are_not_there_are_refused_with_what_there_is(queue: MappedFileQueue) -> None:
    queue.append(b"a" * 30)
    for offset, size in ((-1, 5), (25, 6), (30, 1), (0, -1)):
        with pytest.raises(OffsetOutOfRange) as found:
            queue.read(offset, size)
        assert (found.value.begin, found.value.end) == (0, 30)
    assert queue.read(30, 0) == b""


def test_reopened_log_counts_as_written_to_the_end_of_its_last_file(
    queue: MappedFileQueue,
) -> None:
    queue.append(b"a" * 130)
    assert MappedFileQueue(queue.directory, 100).max_offset == 200


def test_a_log_can_begin_at_any_offset_and_its_files_at_multiples_only(
    queue: MappedFileQueue,
) -> None:
    queue.start_at(350)
    queue.append(b"x")
    assert names(queue.directory) == [f"{300:020d}"]
    assert (queue.min_offset, queue.max_offset) == (300, 351)
    assert queue.read(300, 51) == bytes(50) + b"x"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda d: (d / f"{100:020d}").write_bytes(bytes(99)),
            "has 99 bytes, and the files of this log 100",
        ),
        (lambda d: (d / f"{200:020d}").write_bytes(b""), "has 0 bytes"),
        (lambda d: (d / f"{100:020d}").unlink(), "no file has bytes 100 to 200"),
        (lambda d: (d / f"{150:020d}").write_bytes(bytes(100)), "does not begin at a multiple"),
    ],
)
def test_files_that_no_log_has_are_refused_with_the_file_s_name(
    queue: MappedFileQueue, change, says: str
) -> None:  # type: ignore[no-untyped-def]
    queue.append(b"a" * 250)
    change(queue.directory)
    with pytest.raises(CorruptStore, match=says):
        MappedFileQueue(queue.directory, 100)


def test_other_names_in_the_folder_are_nobody_s_business(queue: MappedFileQueue) -> None:
    queue.append(b"a")
    for name in ("notes", f"{100:020d}.tmp", "٠" * 20):
        (queue.directory / name).write_bytes(b"?")
    assert MappedFileQueue(queue.directory, 100).starts == [0]


def test_what_is_cut_off_never_comes_back(queue: MappedFileQueue) -> None:
    queue.append(b"a" * 350)
    queue.truncate_dirty(130)
    assert names(queue.directory) == [f"{n:020d}" for n in (0, 100)]
    assert MappedFileQueue(queue.directory, 100).read(100, 100) == b"a" * 30 + bytes(70)
    queue.append(b"b")
    assert queue.read(129, 2) == b"ab"


@pytest.mark.parametrize(
    ("offset", "starts", "end"),
    [(0, [0], 0), (99, [0], 99), (100, [0], 100), (400, [0, 100, 200, 300], 350)],
)
def test_a_log_is_cut_at_borders_too(
    queue: MappedFileQueue, offset: int, starts: list[int], end: int
) -> None:
    queue.append(b"a" * 350)
    queue.truncate_dirty(min(offset, queue.max_offset))
    assert (queue.starts, queue.max_offset) == (starts, end)
    assert queue.append(b"b") == end


def test_a_log_that_is_cut_before_its_begin_has_no_file(queue: MappedFileQueue) -> None:
    queue.start_at(300)
    queue.append(b"a" * 150)
    queue.truncate_dirty(200)
    assert (queue.is_empty, queue.max_offset) == (True, 0)


def test_old_files_are_removed_whole_and_the_last_one_never(queue: MappedFileQueue) -> None:
    queue.append(b"a" * 350)
    assert queue.delete_before(199) == 1
    assert queue.min_offset == 100
    assert queue.delete_before(10_000) == 2
    assert queue.starts == [300]


@pytest.mark.parametrize("way", ["cut", "deletion", "end"])
def test_a_file_goes_when_the_one_before_it_is_gone_on_the_disk(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A power cut may leave any of the names that changed since the last sync of their
    directory."""
    queue.append(b"a" * 350)
    queue.flush()
    durable = [names(queue.directory)]
    monkeypatch.setattr(module, "sync_directory", lambda folder, _: durable.append(names(folder)))
    unlink = RealDisk.unlink

    def unlinked(disk: RealDisk, path: Path) -> None:
        assert len(set(durable[-1]) - set(names(path.parent))) == 0, "two names are under way"
        unlink(disk, path)

    monkeypatch.setattr(RealDisk, "unlink", unlinked)
    {
        "cut": lambda: queue.truncate_dirty(20),
        "deletion": lambda: queue.delete_before(300),
        "end": queue.destroy,
    }[way]()
    assert len(names(queue.directory)) == (0 if way == "end" else 1)


def test_a_blank_closes_a_file_and_the_rest_stays_zero(queue: MappedFileQueue) -> None:
    queue.append(b"a" * 30)
    queue.close_file(b"blank")
    assert queue.max_offset == 100
    assert queue.read(28, 72) == b"aablank" + bytes(65)
    with pytest.raises(ValueError, match="101 bytes"):
        queue.close_file(bytes(101))


def test_a_full_disk_leaves_the_log_s_end_where_it_was(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.append(b"a" * 30)

    write = RealFile.pwritev

    def full(file: RealFile, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        write(file, [data[: len(data) // 2]], offset)
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "pwritev", full)
        with pytest.raises(DiskFull, match="free some"):
            queue.append(b"b" * 50)
    assert queue.max_offset == 30
    assert queue.append(b"c" * 5) == 30


def test_a_sync_that_fails_is_told_for_ever_and_does_not_count(
    queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.append(b"a" * 30)

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="cannot sync"):
            queue.flush()
    with pytest.raises(StorageError, match="cannot sync"):
        queue.flush()
    assert queue.flushed_offset == 0


def test_more_files_than_may_be_open_are_opened_in_turn(tmp_path: Path) -> None:
    handles = FileHandles(2)
    queues = [MappedFileQueue(tmp_path / str(n), 10, handles=handles) for n in range(5)]
    for _ in range(3):
        for n, queue in enumerate(queues):
            queue.append(b"%d" % n)
    assert [queue.read(0, 3) for queue in queues] == [b"%d" % n * 3 for n in range(5)]
    for queue in queues:
        queue.flush()
    handles.close()


def test_files_that_nobody_refers_to_any_more_are_closed(tmp_path: Path) -> None:
    """A process that opens stores and lets go of them keeps its descriptors for other things."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        queue = MappedFileQueue(tmp_path / str(number), 64)
        queue.append(b"x" * 200)
        index = OpenIndex.make(tmp_path / f"{number}.index", 10, 10, None)
    del queue, index
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files, and of folders with a / behind, in the order in which they were synced."""
    found: list[str] = []
    sync, sync_names = os.fdatasync, sync_directory

    def note(handle: int) -> None:
        found.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        sync(handle)

    def note_names(directory: Path, disk: Disk) -> None:
        found.append(f"{directory.name}/")
        sync_names(directory, disk)

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(module, "sync_directory", note_names)
    return found


def test_a_flush_syncs_every_file_that_was_written_and_their_names(
    queue: MappedFileQueue, synced: list[str]
) -> None:
    size = queue.file_size
    queue.append(b"x" * (2 * size + 1))
    synced.clear()
    queue.flush()
    assert sorted(synced) == sorted([*names(queue.directory), f"{queue.directory.name}/"])
    synced.clear()
    queue.append(b"y")
    queue.flush()
    assert synced == [f"{2 * size:020d}"]


def test_what_is_cut_off_counts_as_durable_no_more(queue: MappedFileQueue) -> None:
    queue.append(b"x" * 30)
    queue.flush()
    assert queue.flushed_offset == 30
    queue.truncate_dirty(10)
    queue.append(b"y" * 40)
    assert queue.flushed_offset == 10
    queue.flush()
    assert queue.flushed_offset == 50


def test_files_that_a_killed_process_left_in_doubt_are_synced_again(
    queue: MappedFileQueue, synced: list[str]
) -> None:
    """The next flush syncs from the first file in doubt on."""
    size = queue.file_size
    queue.append(b"x" * (3 * size))
    queue.flush()
    synced.clear()
    queue.doubt(size + 1)
    assert queue.flushed_offset == size + 1
    queue.flush()
    assert sorted(synced) == sorted(
        [f"{size:020d}", f"{2 * size:020d}", f"{queue.directory.name}/"]
    )
