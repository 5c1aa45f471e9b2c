"""Failing devices: a share of what ``make disk-errors`` tries, and that it sees planted bugs."""

from __future__ import annotations

import errno

import pytest

from dledger.storage.disk.disk import storage_error
from dledger.storage.file_store import FileStore
from dledger.storage.log.segments import SegmentFiles
from tests.verification.watching import shown
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.campaign import failure_campaign
from verification.disk_states.failures import FailureSweep, FailureTally
from verification.disk_states.scenarios import SCENARIOS

EVERY = 41
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def test_B10_B11_B12_no_failing_operation_costs_what_was_acknowledged(capsys):
    result = shown(capsys, lambda out: failure_campaign(EVERY, 1, out))
    operations = {key.split()[1] for key in result["faults"]}
    assert operations >= {"pwritev", "fdatasync", "pread", "fallocate", "rename"}
    assert result["figures"]["operations failed"] > 200
    assert result["figures"]["refused"] > 5


def errors_are_forgotten(monkeypatch):
    monkeypatch.setattr(
        FileStore, "_fail", lambda store, what, where, error: storage_error(what, where, error)
    )


def failed_sync_is_swallowed(monkeypatch):
    """DLedger's flush: the next one succeeds, and says of pages that were never written that they
    are durable."""
    real = SegmentFiles.sync

    def sync(files):
        try:
            real(files)
        except OSError:
            return

    monkeypatch.setattr(SegmentFiles, "sync", sync)


def unsynced_tail_is_synced_once_more_and_not_rewritten(monkeypatch):
    """D15."""

    def rewrite(files, start, keep, chunk=0):
        files.file(start).fdatasync()

    monkeypatch.setattr(SegmentFiles, "rewrite", rewrite)


def full_disk_is_called_broken(monkeypatch):
    real = SegmentFiles.reserve

    def reserve(files, low, high):
        try:
            real(files, low, high)
        except OSError as error:
            raise OSError(errno.EIO, "no room", str(files.directory)) from error

    monkeypatch.setattr(SegmentFiles, "reserve", reserve)


@pytest.mark.parametrize(
    "plant",
    [
        errors_are_forgotten,
        failed_sync_is_swallowed,
        unsynced_tail_is_synced_once_more_and_not_rewritten,
    ],
)
def test_rule_for_failing_disks_that_is_taken_out_is_seen(plant, monkeypatch):
    """By what a crash leaves, not by the disk that looks on."""
    monkeypatch.setattr(MemoryDisk, "witness", None)
    plant(monkeypatch)
    tally = FailureTally()
    for name in ("group commit", "votes"):
        FailureSweep(BY_NAME[name], tally, every=2, findings=1).run()
    assert tally.findings


def test_full_disk_refuses_appends_and_does_not_end_the_store(monkeypatch):
    tally = FailureTally()
    FailureSweep(BY_NAME["rolls"], tally, every=17).run()
    assert tally.refused > 0
    full_disk_is_called_broken(monkeypatch)
    other = FailureTally()
    FailureSweep(BY_NAME["rolls"], other, every=17).run()
    assert other.refused == 0
