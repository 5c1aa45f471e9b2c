"""The plain commit log: where messages are put, and where it ends after a stop or a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.errors import CorruptStore, DiskFull, FormatError, OffsetOutOfRange, RecordTooLarge
from dledger.rocketmq.dispatch.build_consume_queue import DispatchRequest
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message, SysFlag, message_size
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.rocketmq.store.commit_log import CommitLog
from tests.rocketmq.made_logs import files, flip, some

FILE = 4096


@pytest.fixture
def log(tmp_path: Path, clock: Callable[[], int]) -> CommitLog:
    return CommitLog(tmp_path, FILE, clock=clock)


def reopened(log: CommitLog) -> CommitLog:
    return CommitLog(log.files.directory.parent, FILE)


def test_messages_are_adjacent_and_a_blank_closes_a_file_without_room(log: CommitLog) -> None:
    placed = log.put_messages(some(50))
    starts = log.files.starts
    found = [one for at in starts for one in scan(log.files.path(at).read_bytes(), at)]
    messages = [(one.start, one.end - one.start) for one in found if one.kind is PieceKind.MESSAGE]
    assert messages == [(one.physical_offset, one.size) for one in placed]
    assert {p.kind for p in found} == {PieceKind.MESSAGE, PieceKind.BLANK, PieceKind.UNUSED}
    for one, message in zip(placed, some(50), strict=True):
        stored = log.message_at(one.physical_offset)
        expected = replace(message, queue_offset=one.queue_offset, body_crc=stored.body_crc)
        expected = replace(expected, store_timestamp=one.store_timestamp)
        assert stored == expected.moved(one.physical_offset)
    assert [one.queue_offset for one in placed] == [n // 8 for n in range(50)]


@pytest.mark.parametrize("room", [7, 8, 9])
def test_a_message_goes_into_a_file_when_8_bytes_stay_behind_it(log: CommitLog, room: int) -> None:
    body = FILE - room - message_size(Message("t"))
    log.put_messages([Message("t", bytes(100))])
    log.put_messages([Message("t", bytes(body - message_size(Message("t", bytes(100)))))])
    assert (log.max_offset > FILE) == (room < 8)


def test_a_message_that_no_file_has_room_for_is_refused(log: CommitLog) -> None:
    least = message_size(Message("t"))
    log.put_messages([Message("t", bytes(FILE - 8 - least))])
    with pytest.raises(RecordTooLarge, match="4,089 bytes"):
        log.put_messages([Message("t", bytes(FILE - 7 - least))])
    assert log.max_offset == FILE - 8


def test_either_all_messages_are_put_or_none(log: CommitLog) -> None:
    log.put_messages(some(3))
    end, data = log.max_offset, log.files.path(0).read_bytes()
    with pytest.raises(ValueError, match="topic"):
        log.put_messages([*some(60), Message("x" * 200)])
    assert (log.max_offset, log.files.path(0).read_bytes()) == (end, data)
    assert log.files.starts == [0]
    assert log.put_messages(some(1))[0].queue_offset == 1


def test_a_put_for_which_the_disk_has_no_room_takes_no_queue_offsets(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    first = log.put_messages(some(3))
    monkeypatch.setattr(os, "pwritev", full)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        log.put_messages(some(3))
    monkeypatch.undo()
    again = log.put_messages(some(3))
    assert [one.queue_offset for one in again] == [one.queue_offset + 1 for one in first]


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_prepared_and_rolled_back_messages_take_no_queue_offset(
    log: CommitLog, flag: SysFlag
) -> None:
    plain = Message("t", b"x")
    placed = log.put_messages([plain, plain, replace(plain, sys_flag=int(flag)), plain])
    assert [one.queue_offset for one in placed] == [0, 1, 0, 2]


def test_store_time_stands_behind_a_host_of_either_kind(log: CommitLog) -> None:
    for host in (Host.of("10.0.0.1", 1), Host.of("fd00::1", 1)):
        placed = log.put_messages([Message("t", b"x", born_host=host, store_host=host)])[0]
        assert log.message_at(placed.physical_offset).store_timestamp == placed.store_timestamp


def test_bytes_of_a_master_go_on_exactly_at_the_end(log: CommitLog, tmp_path: Path) -> None:
    log.put_messages(some(50))
    data, slave = log.read(0, log.max_offset), CommitLog(tmp_path / "slave", FILE)
    for begin in range(0, len(data), 1000):
        slave.append_raw(begin, data[begin : begin + 1000])
    assert slave.read(0, len(data)) == data
    for offset in (0, len(data) - 1, len(data) + 1, -1):
        with pytest.raises(OffsetOutOfRange, match="goes on at its end"):
            slave.append_raw(offset, b"x")
    assert slave.max_offset == len(data)


@pytest.mark.parametrize(
    ("offset", "taken"),
    [(0, True), (2 * FILE, True), (10, False), (FILE + 1, False), (-FILE, False)],
)
def test_an_empty_log_begins_where_a_file_does(log: CommitLog, offset: int, taken: bool) -> None:
    if taken:
        assert log.append_raw(offset, b"abc") == offset + 3
        assert log.files.starts == [offset]
    else:
        with pytest.raises(OffsetOutOfRange):
            log.append_raw(offset, b"abc")
        assert log.files.is_empty


@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_a_stopped_log_ends_behind_its_last_message(log: CommitLog, count: int) -> None:
    log.put_messages(some(count))
    found = reopened(log)
    assert found.recover_normally().end == log.max_offset
    assert found.max_offset == log.max_offset
    assert found.store_timestamp == (log.store_timestamp if count <= 50 else 0)


def test_a_log_that_a_blank_closes_goes_on_in_the_next_file(log: CommitLog) -> None:
    log.put_messages(some(3))
    log.files.close_file(b"\0\0" + (FILE - log.max_offset).to_bytes(2) + bytes.fromhex("cbd43194"))
    found = reopened(log)
    assert found.recover_normally().end == FILE
    assert found.put_messages(some(1))[0].physical_offset == FILE


@pytest.mark.parametrize("cut", [4, 30, 80, 91, 150])
def test_a_message_without_its_end_is_cut_off_for_good(log: CommitLog, cut: int) -> None:
    placed = log.put_messages(some(9))
    path, end = log.files.path(0), placed[-1].physical_offset
    path.write_bytes(path.read_bytes()[: end + cut].ljust(FILE, b"\0"))
    found = reopened(log)
    recovered = found.recover_normally()
    assert recovered.end == end
    assert f"byte {end:,}" in recovered.reason
    assert path.read_bytes()[end:] == bytes(FILE - end)


def test_a_message_over_the_window_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.rocketmq.store.commit_log.WINDOW", 64)
    log = CommitLog(tmp_path, FILE)
    log.put_messages(Message("t", bytes(size)) for size in (1000, 2000, 3000))
    found = reopened(log)
    assert found.recover_normally().end == log.max_offset


def damage(log: CommitLog, place: int) -> None:
    flip(log.files.path(place - place % FILE), place % FILE, 0x55)


@pytest.mark.parametrize("number", [0, 5, 20, 48])
def test_damage_before_messages_is_refused_after_a_stop_unless_given_up(
    log: CommitLog, number: int
) -> None:
    """The original cuts the log there without a word."""
    placed = log.put_messages(some(50))
    at = placed[number].physical_offset
    damage(log, at + 100)
    before = files(log.files.directory)
    with pytest.raises(CorruptStore, match=f"byte {at:,}: the body's CRC.* stands behind it, at"):
        reopened(log).recover_normally()
    assert files(log.files.directory) == before
    assert reopened(log).recover_normally(cut_damage=True).end == at


@pytest.mark.parametrize(("vouched", "refused"), [(2, False), (9, False), (30, True)])
def test_damage_after_a_crash_is_refused_before_flushed_messages(
    log: CommitLog, vouched: int, refused: bool
) -> None:
    """A power failure may leave holes among what was not flushed, and no others."""
    placed = [one for message in some(40) for one in log.put_messages([message])]
    at = placed[8].physical_offset
    damage(log, at + 100)
    found, gathered = reopened(log), list[DispatchRequest]()
    checkpoint = placed[vouched].store_timestamp
    if refused:
        with pytest.raises(CorruptStore, match="was on the disk"):
            found.recover_abnormally(0, checkpoint, gathered.extend)
    else:
        assert found.recover_abnormally(0, checkpoint, gathered.extend).end == at
        places = [one.physical_offset for one in placed[:8]]
        assert [one.physical_offset for one in gathered] == places


def test_crash_recovery_begins_at_the_last_file_the_checkpoint_covers(log: CommitLog) -> None:
    placed = [one for message in some(60) for one in log.put_messages([message])]
    firsts = [one for one in placed if one.physical_offset % FILE == 0]
    found = reopened(log)
    for start, _, stored, _ in firsts:
        assert found.recovery_start(stored) == start
        assert found.recovery_start(stored - 1) == max(0, start - FILE)
    assert found.recovery_start(0) == 0


def test_a_log_of_zeros_is_empty(log: CommitLog, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for n in range(3):
        (tmp_path / "commitlog" / f"{n * FILE:020d}").write_bytes(bytes(FILE))
    found = reopened(log)
    assert found.recover_normally().end == 0
    assert found.files.starts == [0]


@pytest.mark.parametrize("offset", [1, 91, 200])
def test_what_is_no_message_is_told_and_not_returned(log: CommitLog, offset: int) -> None:
    log.put_messages(some(3))
    with pytest.raises(FormatError):
        log.message_at(offset)
    with pytest.raises(OffsetOutOfRange):
        log.message_at(log.max_offset)
