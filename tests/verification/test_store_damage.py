"""RocketMQ stores on a disk that fails, and with changed bytes: a share of what ``make
disk-errors`` and ``make byte-flips`` try, and that it sees planted bugs."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.errors import DiskFull, DLedgerError, StorageError
from dledger.rocketmq.export.ledger_files import LedgerFiles
from dledger.rocketmq.export.store import PlainExport
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store import topic_configs
from dledger.rocketmq.store.index_file import OpenIndex
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.store_lock import CheckpointFile
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.failures import FailingDisk
from verification.disk_states.store_failures import faults_of, sweep_store, sweep_upgrade
from verification.disk_states.store_flips import (
    FREE,
    StoreFlipTally,
    flip,
    flip_store,
    store_images,
)

ROOT = Path("/srv/store")


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_no_failing_operation_of_a_store_costs_what_was_acknowledged(seed: int) -> None:
    tally = sweep_store(seed, every=17)
    assert not tally.findings
    assert tally.starts == sum(tally.faults.values()) > 50
    assert tally.raised > 50


def test_upgrade_on_a_failing_disk_ends_with_an_error_and_can_be_redone() -> None:
    tally = sweep_upgrade(every=13)
    assert not tally.findings
    assert {key.split()[1] for key in tally.faults} >= {"pwritev", "fdatasync", "pread", "create"}
    assert tally.starts == sum(tally.faults.values()) > 30


EXPORTED = [
    Message(
        "orders", b"%d" % n * 300, f"KEYS\x01k{n % 3}", queue_offset=n, store_timestamp=1000 + n
    )
    for n in range(12)
]


def export_plain(disk: MemoryDisk) -> None:
    exported = PlainExport(ROOT, "orders", begins={0: 0}, file_size=3072, index=False, disk=disk)
    try:
        exported.put(EXPORTED)
        exported.close()
    except BaseException:
        exported.abandon()
        raise


def export_ledger(disk: MemoryDisk) -> None:
    files = LedgerFiles(ROOT / "n0", data_file_size=3072, index_file_size=320, disk=disk)
    for number in range(20):
        files.append(0, b"%d" % number * 150)
    files.close()


@pytest.mark.parametrize("export", [export_plain, export_ledger])
def test_finished_export_survives_a_power_cut_and_a_failure_is_reported(
    export: Callable[[MemoryDisk], None],
) -> None:
    disk = MemoryDisk()
    disk.loses_directories = True
    export(disk)
    whole = {path: bytes(inode.written) for path, inode in disk.names.items()}
    disk.reboot(power=True)
    for path, data in whole.items():
        if path.name != "lock":
            assert bytes(disk.content(path)) == data, path
    faults = faults_of(export)
    assert len(faults) > 50
    for fault in faults[::2]:
        failing = FailingDisk()
        failing.fault = fault
        with pytest.raises(DLedgerError):
            export(failing)


def opened(disk: MemoryDisk) -> MessageStore:
    return MessageStore(ROOT, file_size=3072, index_slots=8, index_units=20, disk=disk)


def bodies(store: MessageStore) -> list[bytes]:
    return [one.body for one in store.messages("orders", 0, 0, 99)]


def test_index_with_a_failed_sync_is_not_called_durable_by_the_next_one() -> None:
    """The kernel calls the pages clean that it could not write: a second sync writes nothing."""
    disk = MemoryDisk()
    store = opened(disk)
    store.put_message(Message("orders", b"one", "KEYS\x01a"))
    disk.fail("fdatasync", "/index/", times=1)
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot sync"):
            store.flush()


def test_what_a_failed_sync_left_out_is_written_again_by_the_next_process() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.put_message(Message("orders", b"one", "KEYS\x01a"))
    store.flush()
    store.put_message(Message("orders", b"two", "KEYS\x01a"))
    disk.fail("fdatasync", "/commitlog/", times=1)
    with pytest.raises(StorageError, match="cannot sync"):
        store.flush()
    store.abandon()
    store = opened(disk)
    assert bodies(store) == [b"one", b"two"]
    store.flush()
    disk.reboot(power=True)
    assert bodies(opened(disk)) == [b"one", b"two"]


@pytest.mark.parametrize("short", [0, 1, 30])
def test_store_starts_after_its_first_checkpoint_found_no_room(
    short: int,
) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.put_message(Message("orders", b"one"))
    disk.fail("pwritev", "checkpoint", errno.ENOSPC, short=short, times=1)
    with pytest.raises(DiskFull):
        store.flush()
    store.abandon()
    assert bodies(opened(disk)) == [b"one"]


def test_a_topic_whose_write_failed_and_was_shown_all_the_same_stays() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    disk.fail("fsync_dir", "config", times=1)
    with pytest.raises(StorageError):
        store.topics.put(topic_configs.TopicConfig("orders", 5))
    store.close()
    store = opened(disk)
    shown = store.topics.queues("orders")
    disk.reboot(power=True)
    assert opened(disk).topics.queues("orders") == shown == 5


def test_a_store_is_opened_in_a_folder_that_may_not_be_read() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    sync = disk.fsync_dir

    def refused(path: Path) -> None:
        if path == ROOT.parent:
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        sync(path)

    disk.fsync_dir = refused  # type: ignore[method-assign]
    store = opened(disk)
    store.put_message(Message("orders", b"one"))
    store.close()
    with pytest.raises(StorageError, match="permission denied"):
        MessageStore(ROOT.parent / "new", disk=disk)


def test_every_changed_byte_of_a_store_is_told_of_or_changes_no_answer() -> None:
    for image in store_images():
        tally = flip_store(image, every=37)
        assert not tally.findings
        told = tally.found_at_start, tally.found_by_read, tally.found_by_verify, tally.harmless
        assert sum(sum(counts.values()) for counts in told) + tally.free == sum(
            tally.flips.values()
        )
        assert tally.free < sum(tally.flips.values()) // 8
        body = "message: body"
        assert tally.flips[body] == sum(
            counts.get(body, 0) for counts in (tally.found_at_start, tally.found_by_read)
        )
        assert tally.flips[FREE] > 30


def test_message_whose_key_was_changed_answers_to_its_new_key() -> None:
    """No checksum covers properties."""
    tally = StoreFlipTally()
    for image in store_images():
        for path, data in image.files.items():
            for found in re.finditer(b"KEYS\x01k", data) if path.parent.name == "commitlog" else ():
                flip(image, path, found.end(), tally)
    assert tally.flips.keys() == {FREE}
    assert tally.flips[FREE] > 30
    assert not tally.findings


def index_sync_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = OpenIndex.flush

    def again(file: OpenIndex) -> None:
        file._failed = None
        flush(file)

    monkeypatch.setattr(OpenIndex, "flush", again)


def nothing_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MappedFileQueue, "write_again", lambda files, offset: None)


def checkpoint_is_begun_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(file: CheckpointFile, checkpoint: StoreCheckpoint) -> None:
        file._disk.open(file._path, create=True).pwritev([checkpoint.encode()], 0)

    monkeypatch.setattr(CheckpointFile, "write", write)


@pytest.mark.parametrize(
    "plant", [index_sync_is_tried_again, nothing_is_written_again, checkpoint_is_begun_in_place]
)
def test_a_rule_that_is_taken_out_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    findings: list[str] = []
    for seed in range(1, 8):
        findings += sweep_store(seed, every=5, findings=1).findings
        if findings:
            return
    raise AssertionError("nothing was found")
