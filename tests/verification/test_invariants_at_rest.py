"""The invariants that look into files hold for a node that does nothing wrong, and are broken by
one that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import LogEnd, stamp
from dledger.storage.log.walker import blank
from dledger.types import Index, NodeId
from tests.verification.watching import breaks
from verification.invariants.retention import Retention
from verification.invariants.view import Memory, WatchedNode
from verification.sim.scene import KIB, Scene


class Alone:
    """A node that leads itself and has written some entries."""

    def __init__(self, scene: Scene) -> None:
        self.node = scene.leader()
        assert scene.world.watch is not None
        self.watch = scene.world.watch
        client, loop = scene.client()
        scene.run(loop, lambda: client.create_topic("t", 1))
        for at in range(6):
            scene.run(loop, lambda at=at: client.append("t", [bytes(400 + at)] * 4, partition=0))
        scene.run(loop, client.close)
        self.view: WatchedNode = self.watch.views[str(self.node.name)]
        self.store: Any = self.view.store
        self.disk: Any = self.node.disk
        self.now_ms = 0

    def flip(self, index: int, offset: int) -> None:
        """Change a byte of an entry."""
        written = self.watch.truth.written[index, self.view.terms.at(index) or 0]
        start = written.pos - written.pos % self.store._data.file_size
        self.disk.flip(self.store._data.path(start), written.pos - start + offset)

    def called_damaged(self, index: int) -> None:
        self.watch.at_rest.called_damaged(self.view, CorruptEntry("", index))

    def byte_behind_the_end(self) -> None:
        end = self.store.end.end_pos
        self.disk.flip(self.store._data.path(end), end % self.store._data.file_size + 700)


@pytest.fixture
def alone() -> Iterator[Alone]:
    small = {"max_body_bytes": 4 * KIB, "segment_bytes": 8 * KIB}
    with Scene(1, group=small, node={"retention_bytes": 8 * KIB}) as scene:
        yield Alone(scene)


def test_i20_what_a_cut_leaves_behind_the_log_is_found(alone: Alone) -> None:
    alone.watch.at_rest.ends(alone.view)
    alone.byte_behind_the_end()
    breaks("I20", alone.watch.check, alone.watch.at_rest.ends, alone.view)
    assert alone.watch.broken is not None


def test_i20_a_store_that_cuts_and_leaves_something_is_found(alone: Alone) -> None:
    alone.store._commit = Index(-1)
    alone.byte_behind_the_end()
    alone.store._data.cut = lambda offset: None
    breaks("I20", alone.store.truncate, Index(alone.store.end.position.index - 1))


def test_i20_a_node_that_starts_on_a_log_with_something_behind_it_is_found(alone: Alone) -> None:
    alone.byte_behind_the_end()
    breaks("I20", alone.watch.started, alone.node.name, alone.view.server)


def test_i20_padding_up_to_the_next_file_may_stay_behind_a_log(alone: Alone) -> None:
    """Its process was killed before it wrote the entry that did not fit."""
    size = alone.store._data.file_size
    end = alone.store.end.end_pos
    inode, at = alone.disk.names[alone.store._data.path(end)], end % size
    inode.written[at : at + 8] = blank(size - at)
    alone.watch.at_rest.ends(alone.view)
    inode.written[at + 9] = 1
    breaks("I20", alone.watch.at_rest.ends, alone.view)
    inode.written[at : at + 10] = blank(size - at - 1) + b"\0\0"
    breaks("I20", alone.watch.at_rest.ends, alone.view)


def test_i20_what_rot_puts_behind_a_log_is_no_mistake_of_its_store(alone: Alone) -> None:
    alone.byte_behind_the_end()
    alone.disk.rotten = True
    alone.watch.at_rest.ends(alone.view)


def test_i20_a_sound_entry_that_is_called_damaged_is_found(alone: Alone) -> None:
    for index in range(alone.store.end.position.index + 1):
        breaks("I20", alone.called_damaged, index)


@pytest.mark.parametrize("offset", [0, 4, 12, 20, 28, 33, 37, 41, 47, 48, 300])
def test_i20_an_entry_with_another_byte_may_be_called_damaged(alone: Alone, offset: int) -> None:
    alone.flip(3, offset)
    alone.called_damaged(3)


@pytest.mark.parametrize("offset", [3, 23, 34])
def test_i20_the_first_entry_with_another_header_may_be_called_damaged(
    alone: Alone, offset: int
) -> None:
    breaks("I20", alone.called_damaged, 0)
    alone.flip(0, offset)
    alone.called_damaged(0)


def test_i20_first_entry_after_retention_is_known_by_the_previous_one(alone: Alone) -> None:
    object.__setattr__(alone.store._view, "begin_index", Index(3))
    alone.view.terms.firsts[0] = 3
    breaks("I20", alone.called_damaged, 3)
    alone.flip(3, 34)
    alone.called_damaged(3)


def test_i20_entry_replaced_by_another_sound_one_may_be_called_damaged(
    alone: Alone,
) -> None:
    (before, entry) = alone.store.read(Index(2), 9000)[:2]
    other = stamp(
        LogEnd.after(before),
        entry.term,
        entry.magic,
        bytes(len(entry.body)),
        alone.store._data.file_size,
    )
    inode = alone.disk.names[alone.store._data.path(entry.pos)]
    at = entry.pos % alone.store._data.file_size
    inode.written[at : at + entry.size] = bytes(other.header) + bytes(other.body)
    alone.called_damaged(3)


def test_i20_an_entry_behind_a_damaged_one_may_be_called_damaged(alone: Alone) -> None:
    """Nothing vouches for its header."""
    alone.flip(3, 40)
    alone.called_damaged(4)
    breaks("I20", alone.called_damaged, 5)


def test_i20_a_disk_that_fails_or_loses_what_is_mended_excuses_its_store(alone: Alone) -> None:
    alone.disk.harmed = True
    alone.called_damaged(3)
    alone.disk.harmed = False
    alone.disk.misdirect["index"].append(512)
    alone.called_damaged(3)
    alone.disk.misdirect["index"].clear()
    breaks("I20", alone.called_damaged, 3)


def test_i20_a_store_that_does_not_serve_a_sound_entry_is_found(alone: Alone) -> None:
    def refuse(*_: Any) -> None:
        raise CorruptEntry("", 3)

    alone.store._reader.read = refuse
    breaks("I20", alone.store.read, Index(3), 1)


def test_i20_index_that_names_another_entry_is_found_after_disk_rot(
    alone: Alone,
) -> None:
    """The others are read from one end to the other, for which the index is asked for the first
    entry only."""
    get = alone.store._index.get
    alone.store._index.get = lambda index: get(2 if index == 3 else index)
    assert alone.watch.storage.read_all(alone.view) == alone.store.end.position.index
    alone.disk.rotten = True
    breaks("I20", alone.watch.storage.read_all, alone.view)


def test_what_the_watch_has_seen_counts_and_not_what_comes_of_it(alone: Alone) -> None:
    """A task that the find ends looks like a defect of its own."""
    world = alone.node.world
    alone.byte_behind_the_end()
    breaks("I20", alone.watch.check, alone.watch.at_rest.ends, alone.view)
    world.breaks("defect", "the node ended by itself")
    assert world.broken is not None
    assert world.broken.invariant == "I20"


@pytest.fixture
def old(alone: Alone) -> Alone:
    """A log whose entries were written long ago, and whose settings let them go."""
    alone.view.server.checkpoints.oldest_index = Index(9)
    settings = {"retention_bytes": 0, "retention_ms": 1000, "member_retention_ms": 5000}
    alone.view.server.node = replace(alone.view.server.node, **settings)
    alone.watch.retention = Retention()
    alone.watch.retention.written(9, 0)
    alone.watch._now_ms = lambda: alone.now_ms
    alone.now_ms = 1000
    return alone


def test_i15_retention_may_take_what_is_saved_expired_and_on_all_disks(old: Alone) -> None:
    old.view.server.checkpoints.oldest_index = Index(4)
    old.watch.retained(old.view, 5)


def test_i15_retention_over_the_saved_catalog_is_found(old: Alone) -> None:
    old.view.server.checkpoints.oldest_index = Index(3)
    breaks("I15", old.watch.retained, old.view, 5)


def test_i15_retention_over_what_is_not_committed_is_found(old: Alone) -> None:
    end = old.store.end.position.index
    old.view.server.checkpoints.oldest_index = end
    old.view.log.committed_index = Index(3)
    breaks("I15", old.watch.retained, old.view, 5)


def test_i15_retention_over_an_open_transaction_is_found(old: Alone) -> None:
    old.view.catalog.retention_floor = lambda: Index(4)  # type: ignore[method-assign]
    old.watch.retained(old.view, 4)
    breaks("I15", old.watch.retained, old.view, 5)


def test_i15_retention_before_its_time_is_found_unless_clocks_are_wrong(old: Alone) -> None:
    old.now_ms = 999
    breaks("I15", old.watch.retained, old.view, 5)
    old.watch.retention.clocks_are_right = False
    old.watch.retained(old.view, 5)


def another_member(old: Alone) -> Memory:
    """The watch's memory of one that is down."""
    old.view.machine.peers = (NodeId("n1"),)
    memory = old.watch.memories["n1"] = Memory()
    return memory


def test_i15_retention_does_not_wait_for_one_that_was_removed(old: Alone) -> None:
    another_member(old).durable = Index(3)
    old.view.machine.peers = ()
    old.watch.retained(old.view, 5)


def test_i15_retention_over_what_a_member_does_not_have_is_found(old: Alone) -> None:
    another_member(old).durable = Index(3)
    old.watch.retained(old.view, 4)
    old.now_ms = 5999
    breaks("I15", old.watch.retained, old.view, 5)


@pytest.mark.parametrize("why", ["time", "bytes", "disk"])
def test_i15_retention_need_not_wait_for_a_member_for_ever(old: Alone, why: str) -> None:
    another_member(old).durable = Index(3)
    if why == "time":
        old.now_ms = 6000
    elif why == "bytes":
        old.view.server.node = replace(old.view.server.node, member_retention_bytes=1)
    old.watch.retained(old.view, 5, is_tight=why == "disk")


def test_i15_a_follower_may_take_what_its_leader_took(old: Alone) -> None:
    old.watch.retained(old.view, 5)
    old.now_ms = 0
    old.watch.retained(old.view, 5)
    breaks("I15", old.watch.retained, old.view, 6)


def test_i15_retention_need_not_wait_for_a_member_that_lost_its_disk(old: Alone) -> None:
    another_member(old)
    old.watch.exchanged("n1", Memory())
    old.watch.retained(old.view, 5)


def test_i15_a_store_that_lets_needed_entries_go_is_found(alone: Alone) -> None:
    """It was told a limit that is too high: the catalog was never saved."""
    assert alone.view.server.checkpoints.oldest_index == -1
    assert alone.store.retain(Index(-1), 0) == 0
    breaks("I15", alone.store.retain, Index(9), 0)
