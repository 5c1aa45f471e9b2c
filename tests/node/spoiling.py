"""What may have become of a node's consume queues and index while it was down."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dledger.node.rocketmq.dispatch_mark import MARK_FILE, DispatchMark
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from tests.node.damaging import flip


def lose_nothing(root: Path) -> None:
    """Only the end was not a good one, or the log is shorter."""


def lose_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "1")


def lose_the_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_the_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def lose_the_last_index_file(root: Path) -> None:
    max((root / "index").iterdir()).unlink()


def take_a_key(root: Path) -> None:
    """The last one before the mark: of the last message that was there at the first stop."""
    mark = DispatchMark.unpack((root / MARK_FILE).read_bytes())
    assert mark is not None
    index = IndexService(root / "index")
    index.truncate_dirty(mark.last_key)
    index.close()


def lose_the_mark(root: Path) -> None:
    (root / MARK_FILE).unlink()


def damage_the_mark(root: Path) -> None:
    flip(root / MARK_FILE, 20)


def tear_a_queue(root: Path) -> None:
    (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(bytes(1000))


def shorten_a_queue(root: Path) -> None:
    (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
    os.truncate(path, 100)


def add_dirty_units(root: Path) -> None:
    queues = ConsumeQueues(root / "consumequeue")
    queues.recover()
    queue = queues.get("orders", 0)
    assert queue is not None
    for n in range(5):
        queue.put(queue.max_offset, 50_000_000 + n * 100, 100, 0)
    queues.put("ghost", 7, 0, 60_000_000, 100, 0)
    queues.flush()
    index = IndexService(root / "index")
    index.put("orders", ["all", "ghost"], 50_000_000, 1)
    index.flush()
    index.close()


SPOILS = (
    lose_nothing,
    lose_a_queue,
    lose_the_queues,
    lose_the_index,
    take_a_key,
    lose_the_mark,
    damage_the_mark,
    tear_a_queue,
    shorten_a_queue,
    add_dirty_units,
)
