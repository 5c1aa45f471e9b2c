"""A store that has lost files of its queues or its index has everything again after its next
start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptStore
from dledger.rocketmq.dispatch.reput_columns import ColumnReput
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import index_units, overwrite, some, vouch_for_all
from tests.rocketmq.store.small_stores import SmallStores

FEW = 60
"""Messages that fill three files of the log, six of the index, and two of each queue."""
MORE = 7
SLOTS, UNITS = 8, 31


def shown(store: MessageStore) -> tuple[dict[Any, Any], list[tuple[int, int]], dict[Any, Any]]:
    """What is found by queue offset and by key, and the queue offsets that the next messages
    get."""
    queued = {
        (*key, queue.min_offset + n): message.body
        for key, queue in store.queues.items()
        for n, message in enumerate(store.messages(*key, queue.min_offset, FEW))
    }
    assert store.index is not None
    keyed = [unit for path in store.index.files for unit in index_units(path, SLOTS)]
    return queued, keyed, {key: end for key, end in store.log.next_offsets.items() if end}


@pytest.fixture
def small(small: SmallStores) -> SmallStores:
    small.settings |= {"index_slots": SLOTS, "index_units": UNITS}
    return small


A_QUEUE = "consumequeue/orders/1"
LOSSES: dict[str, list[tuple[str, int | None]]] = {
    "nothing": [],
    "the index": [("index", None)],
    "the first index file": [("index", 0)],
    "a middle index file": [("index", 2)],
    "the last index file": [("index", -1)],
    "a queue": [(A_QUEUE, None)],
    "the first file of a queue": [(A_QUEUE, 0)],
    "the last file of a queue": [(A_QUEUE, -1)],
    "all queues": [("consumequeue", None)],
    "all": [("consumequeue", None), ("index", None)],
}
"""Folders, and of some of them only the file with this number."""


def lose(root: Path, folder: str, number: int | None = None) -> None:
    if number is None:
        shutil.rmtree(root / folder)
        return
    names = sorted((root / folder).iterdir())
    assert len(names) >= (5 if folder == "index" else 2)
    names[number].unlink()


MARK = "dispatched"


@pytest.mark.parametrize("marked", [True, False], ids=["own", "of a broker"])
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
def test_a_start_makes_good_what_is_lost_of_queues_and_index(
    small: SmallStores, losses: Any, killed: bool, marked: bool
) -> None:
    root, twin = small.root / "store", small.root / "twin"
    settings = {"reput": ColumnReput} if killed else {}
    with small.open("store", **settings) as store:
        store.put_messages(some(FEW, queues=2))
    if killed:
        store = small.open("store", **settings)
        for first in (FEW, FEW + MORE):  # the second flush writes no mark
            store.put_messages(some(MORE, first=first, queues=2))
            store.flush()
        store.abandon()
        assert vouch_for_all(store) > 2 * 4096
    if not marked:
        (root / MARK).unlink(missing_ok=True)
    shutil.copytree(root, twin)
    with small.open("twin") as store:
        whole = shown(store)
    assert len(whole[0]) == FEW + killed * 2 * MORE
    for folder, number in losses:
        lose(root, folder, number)
    with small.open("store", **settings) as store:
        assert shown(store) == whole
    with small.open("store") as store:
        assert shown(store) == whole
        (message,) = some(1, first=1000)
        placed = store.put_message(replace(message, queue_id=1))
        assert placed.queue_offset == whole[2]["orders", 1]


def test_emptied_queue_continues_at_its_end_when_its_files_are_lost(small: SmallStores) -> None:
    """All messages of the queue were deleted before."""
    with small.open() as store:
        store.put_messages([Message("old", bytes(50))] * 3)
        store.put_messages(some(FEW))
        assert store.delete_before(4096) == 1
    shutil.rmtree(small.root / "consumequeue" / "old")
    for _ in range(2):
        with small.open() as store:
            assert store.log.next_offsets["old", 0] == 3
            store.put_messages(some(1))
    with small.open() as store:
        assert store.put_message(Message("old", bytes(50))).queue_offset == 3


def test_a_mark_from_before_the_recovery_s_begin_vouches_for_nothing(small: SmallStores) -> None:
    store = small.open()
    store.put_messages(some(3))
    store.flush()
    mark = (small.root / MARK).read_bytes()
    store.put_messages([Message("new", bytes(50))] * 3)
    store.put_messages(some(FEW))
    store.flush()
    store.abandon()
    assert vouch_for_all(store) > 2 * 4096
    shutil.rmtree(small.root / "consumequeue" / "new")
    (small.root / MARK).write_bytes(mark)
    with small.open() as store:
        assert len(store.messages("new", 0, 0)) == 3


def test_deletion_first_records_the_ends_of_queues_that_it_empties(small: SmallStores) -> None:
    store = small.open()
    store.flush()
    store.put_messages([Message("old", bytes(50))] * 3)
    store.put_messages(some(FEW))
    assert store.delete_before(2 * 4096) == 2
    store.abandon()
    shutil.rmtree(small.root / "consumequeue" / "old")
    with small.open() as store:
        assert store.put_message(Message("old", bytes(50))).queue_offset == 3


def test_start_reads_the_whole_log_only_in_doubt(
    small: SmallStores, caplog: pytest.LogCaptureFixture
) -> None:
    """The start reports damage of the log that keeps it from repairing a loss."""
    with small.open() as store:
        place = store.put_messages(some(FEW, queues=2))[4].physical_offset
    overwrite(small.root / "commitlog" / f"{0:020d}", place + 4, b"rot!")
    small.open().close()
    assert caplog.messages == []
    (small.root / MARK).write_bytes(b"no mark")
    small.open().close()
    assert f"the commit log is damaged: byte {place:,}" in caplog.text
    caplog.clear()
    small.open().close()
    assert caplog.messages == []
    lose(small.root, A_QUEUE)
    with pytest.raises(
        CorruptStore, match=r"queue 1 of orders; and the commit log, of which .* is damaged: byte"
    ):
        small.open()


def test_queue_recovered_within_its_first_file_has_all_its_messages(small: SmallStores) -> None:
    """The crash recovery alone would begin the queue behind its first messages."""
    root, twin = small.root / "store", small.root / "twin"
    store = small.open("store", units_in_file=100)
    store.put_messages(some(FEW, queues=2))
    store.flush()
    store.abandon()
    assert vouch_for_all(store) > 2 * 4096
    (root / MARK).unlink()
    shutil.copytree(root, twin)
    with small.open("twin", units_in_file=100) as store:
        whole = shown(store)
    lose(root, A_QUEUE)
    with small.open("store", units_in_file=100) as store:
        assert shown(store) == whole
