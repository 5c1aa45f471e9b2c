"""Queues of units: their offsets are those of the messages, whatever is missing or comes twice."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dledger.errors import CorruptStore, FormatError, OffsetOutOfRange
from dledger.rocketmq.format.consume_queue_unit import FILLER, ConsumeQueueUnit, encode_units
from dledger.rocketmq.store.consume_queue import ConsumeQueue
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from tests.rocketmq.made_logs import overwrite

IN_FILE = 10


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return ConsumeQueue(tmp_path / "orders" / "0", IN_FILE)


def fill(queue: ConsumeQueue, begin: int, end: int) -> None:
    """Units whose message lies at 100 times their offset."""
    for n in range(begin, end):
        assert queue.put(n, 100 * n, 100, n)
    queue.write()


def offsets(queue: ConsumeQueue) -> list[int]:
    return [unit.physical_offset for unit in queue.units(queue.min_offset, 1000)]


def test_units_stand_at_their_queue_offset_over_files(queue: ConsumeQueue) -> None:
    fill(queue, 0, 25)
    assert queue.units(13, 1)[0] == ConsumeQueueUnit(1300, 100, 13)
    assert [unit.tags_code for unit in queue.units(8, 5)] == [8, 9, 10, 11, 12]
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (0, 25, 2500)
    for offset in (-1, 25):
        with pytest.raises(OffsetOutOfRange):
            queue.units(offset, 1)


def test_unit_that_is_put_again_changes_nothing_and_is_not_logged(
    queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 0, 12)
    assert not queue.put(11, 1100, 100, 5)
    assert not queue.put(3, 300, 100, 5)
    assert not caplog.records
    assert (queue.max_offset, queue.units(11, 1)[0].tags_code) == (12, 11)


def test_a_queue_that_begins_above_0_has_fillers_before_its_first_message(
    queue: ConsumeQueue,
) -> None:
    fill(queue, 23, 26)
    assert [path.name for path in queue.directory.iterdir()] == [f"{20 * 20:020d}"]
    assert [unit.is_filler for unit in queue.units(20, 6)] == [True] * 3 + [False] * 3
    assert (queue.min_offset, queue.max_offset) == (23, 26)


def test_fillers_keep_later_offsets_in_place_of_missing_messages(
    queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 0, 3)
    with caplog.at_level(logging.WARNING):
        fill(queue, 6, 8)
    assert "no message has queue offsets 3 to 6" in caplog.text
    units = queue.units(0, 8)
    assert [unit.is_filler for unit in units] == [False] * 3 + [True] * 3 + [False] * 2
    assert units[7] == ConsumeQueueUnit(700, 100, 7)


def test_a_message_whose_place_another_one_has_is_not_put_and_told(
    queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 0, 3)
    with caplog.at_level(logging.WARNING):
        assert not queue.put(1, 5000, 100, 7)
    assert "which another one has" in caplog.text
    assert offsets(queue) == [0, 100, 200]


@pytest.mark.parametrize("offset", [-1, 1 << 60, 3 + IN_FILE + 1])
def test_an_offset_that_no_queue_can_have_is_an_error_and_costs_no_disk(
    queue: ConsumeQueue, offset: int
) -> None:
    fill(queue, 0, 3)
    with pytest.raises(FormatError, match=str(offset)):
        queue.put(offset, 5000, 100, 7)
    assert queue.max_offset == 3


def recovered(queue: ConsumeQueue) -> ConsumeQueue:
    """The same queue, opened anew."""
    opened = ConsumeQueue(queue.directory, IN_FILE)
    opened.recover()
    return opened


@pytest.mark.parametrize(("count", "end"), [(17, 14), (29, 7)], ids=["last file", "third last"])
@pytest.mark.parametrize("torn", [20, 8], ids=["a unit without a size", "the end of a unit"])
def test_recovery_ends_at_a_torn_unit_and_clears_the_rest(
    queue: ConsumeQueue, count: int, end: int, torn: int
) -> None:
    """A power failure can leave the second half of a unit, whose size then looks well; it lies
    before the unit in front of it."""
    fill(queue, 0, count)
    path, at = queue.directory / f"{end // 10 * 200:020d}", end % 10 * 20
    overwrite(path, at, bytes(torn))
    opened = recovered(queue)
    assert (opened.max_offset, opened.max_physical) == (end, 100 * end)
    assert path.read_bytes()[at:] == bytes(200 - at)
    fill(opened, end, 30)
    assert offsets(opened) == [100 * n for n in range(30)]


def test_recovery_looks_at_the_last_three_files_only(queue: ConsumeQueue) -> None:
    fill(queue, 0, 45)
    (queue.directory / f"{200:020d}").write_bytes(bytes(200))
    assert recovered(queue).max_offset == 45


@pytest.mark.parametrize("cut", range(0, 46))
def test_messages_behind_a_place_are_forgotten_and_can_be_put_again(
    queue: ConsumeQueue, cut: int
) -> None:
    fill(queue, 4, 25)
    fill(queue, 28, 40)
    queue.truncate_dirty(100 * cut + 50)
    kept = [n for n in (*range(4, 25), *range(28, 40)) if n <= cut]
    assert queue.max_physical == (100 * kept[-1] + 100 if kept else 0)
    assert queue.max_offset == (kept[-1] + 1 if kept else 0)
    opened = recovered(queue)
    assert opened.max_offset == queue.max_offset
    fill(opened, kept[-1] + 1 if kept else 4, 60)
    assert opened.max_offset == 60


@pytest.mark.parametrize(
    ("begin", "first"), [(0, 4), (450, 5), (2400, 24), (2450, 28), (3900, 39), (9999, 40)]
)
def test_queue_begins_with_its_first_message_in_the_commit_log(
    queue: ConsumeQueue, begin: int, first: int
) -> None:
    fill(queue, 4, 25)
    fill(queue, 28, 40)
    queue.correct_min_offset(begin)
    assert queue.min_offset == first


def test_files_without_a_message_that_the_commit_log_still_has_are_removed(
    queue: ConsumeQueue,
) -> None:
    fill(queue, 0, 35)
    assert queue.delete_before(2000) == 2
    assert offsets(queue) == [100 * n for n in range(20, 35)]
    assert queue.delete_before(99_999) == 1
    assert (queue.min_offset, queue.max_offset) == (35, 35)


def test_fillers_alone_are_no_queue(queue: ConsumeQueue) -> None:
    queue.directory.mkdir(parents=True)
    (queue.directory / f"{0:020d}").write_bytes(encode_units([FILLER]).ljust(200, b"\0"))
    opened = ConsumeQueue(queue.directory, IN_FILE)
    assert opened.units(0, 1)[0] == FILLER
    opened.recover()
    assert opened.is_empty
    fill(opened, 5, 6)
    assert offsets(opened) == [500]


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", "x" * 256])
def test_a_topic_that_leads_out_of_the_folder_is_refused(tmp_path: Path, topic: str) -> None:
    queues = ConsumeQueues(tmp_path / "consumequeue", IN_FILE)
    with pytest.raises(FormatError, match="cannot be the name of a folder"):
        queues.put(topic, 0, 0, 0, 100, 0)
    queues.write()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_a_queue_id_that_cannot_be_is_refused(tmp_path: Path, queue_id: int) -> None:
    with pytest.raises(FormatError, match=f"queue {queue_id}"):
        ConsumeQueues(tmp_path, IN_FILE).put("orders", queue_id, 0, 0, 100, 0)


def test_all_queues_of_a_store_are_found_again(tmp_path: Path) -> None:
    queues = ConsumeQueues(tmp_path, IN_FILE)
    for n in range(30):
        queues.put(("orders", "größe", "%RETRY%g")[n % 3], n % 2, n // 6, 100 * n, 100, 0)
    queues.flush()
    (tmp_path / "orders" / "007").mkdir()
    opened = ConsumeQueues(tmp_path, IN_FILE)
    opened.recover()
    assert opened.next_offsets() == queues.next_offsets()
    assert (len(opened.next_offsets()), opened.max_physical) == (6, 3000)
    opened.truncate_dirty(600)
    assert set(opened.next_offsets().values()) == {1}


def test_a_queue_s_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "orders" / "0").mkdir(parents=True)
    (tmp_path / "orders" / "0" / f"{0:020d}").write_bytes(bytes(199))
    with pytest.raises(CorruptStore, match="199 bytes"):
        ConsumeQueues(tmp_path, IN_FILE)


def test_units_at_the_end_that_tell_of_no_message_are_dropped(queue: ConsumeQueue) -> None:
    fill(queue, 3, 17)
    assert queue.drop_torn(lambda offset, unit: unit.physical_offset == 100 * offset) is None
    assert queue.drop_torn(lambda offset, unit: offset < 12) == 1200
    assert (queue.max_offset, queue.max_physical) == (12, 1200)
    assert queue.drop_torn(lambda offset, unit: False) == 300
    assert queue.is_empty


def test_a_flush_writes_what_was_put(queue: ConsumeQueue) -> None:
    assert queue.put(0, 100, 100, 0)
    queue.flush()
    assert recovered(queue).units(0, 1)[0] == ConsumeQueueUnit(100, 100, 0)
