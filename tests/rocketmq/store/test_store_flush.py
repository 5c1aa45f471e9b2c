"""A broker's store: what a flush has put on the disk, and the borders of a search."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dledger.rocketmq.store.dispatch_checkpoint import StoreMark
from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import some
from tests.rocketmq.store.small_stores import SmallStores


@pytest.fixture
def store(small: SmallStores) -> Any:
    with small.open() as store:
        yield store


def test_a_flush_syncs_the_queues_before_the_checkpoint_says_so(
    tmp_path: Path, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    sync = os.fdatasync

    def note(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink().parent)
        sync(handle)

    store.put_messages(some(3))
    monkeypatch.setattr(os, "fdatasync", note)
    store.flush()
    queues = {queue.directory for _, queue in store.queues.items()}
    assert queues
    assert queues <= synced


def test_flush_writes_one_mark_per_log_file_and_a_clean_end_the_last_one(
    small: SmallStores, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[int] = []
    save = StoreMark.save

    def note(mark: StoreMark, *where: Any) -> None:
        marks.append(mark.end)
        save(mark, *where)

    monkeypatch.setattr(StoreMark, "save", note)
    for n in range(40):
        store.put_messages(some(1, first=n))
        store.flush()
    ends = store.log.max_offset
    assert [end // 4096 for end in marks] == list(range(ends // 4096 + 1))
    store.close()
    assert marks[-1] == ends
    with small.open():
        marks.clear()
    assert marks == []


def test_a_search_by_key_includes_both_of_its_times(store: MessageStore) -> None:
    (placed,) = store.put_messages(some(1))
    message = store.message_at(placed.physical_offset)
    key, at = message.property_map()["UNIQ_KEY"], placed.store_timestamp
    assert store.messages_with_key(message.topic, key, at, at) == [message]
    assert store.messages_with_key(message.topic, key, at + 1, at + 1) == []
