"""What every store promises, whatever it keeps the log in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dledger.errors import CorruptEntry, CorruptStore, OffsetOutOfRange, StorageError
from dledger.protocol.messages.entry import HEADER, HardState, LogEnd, stamp
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import RealDisk
from dledger.types import NOWHERE, Index, NodeId, Position, Term
from verification.disk.memory_store import MemoryStore

SIZES = [0, 1, 100, 300, 464, 900, 928, 5, 0, 200]
"""Bodies that end files in every way: with least padding (928), with much, and between."""


@pytest.fixture(params=["memory", "files-in-memory", "files"])
def reopen(request, kit, disk, tmp_path) -> Iterator[Callable[[], Any]]:
    """Gives the store; each further call closes it and gives it as the next process finds it."""
    held: list[Any] = []

    def call() -> Any:
        old = held.pop() if held else None
        if old is not None:
            old.close()
        if request.param == "memory":
            held.append(MemoryStore(segment_bytes=kit.segment) if old is None else old.crashed())
        elif request.param == "files-in-memory":
            held.append(kit.open(disk))
        else:
            held.append(kit.open(RealDisk(), BackgroundState.THREAD, directory=tmp_path / "n0"))
        return held[0]

    yield call
    for store in held:
        store.close()


@pytest.fixture
def store(reopen) -> Any:
    return reopen()


@pytest.fixture(params=["memory", "files-in-memory"])
def small(request, kit, disk) -> Iterator[object]:
    """A store that keeps two files, and can be damaged."""
    settings = {"retention_bytes": 2 * kit.segment}
    is_memory = request.param == "memory"
    store = (
        MemoryStore(segment_bytes=kit.segment, **settings)
        if is_memory
        else kit.open(disk, **settings)
    )
    yield store
    store.close()


def damage(kit, disk, store, entry) -> None:
    if isinstance(store, MemoryStore):
        store.damage(entry.index)
    else:
        kit.flip(disk, entry.pos + 60)


def test_empty_store_has_nothing(store):
    assert store.begin_index == 0
    assert store.end == LogEnd()
    assert store.durable == NOWHERE
    assert store.terms == ()
    assert store.hard_state == HardState()
    assert store.read(Index(0), 1000) == []
    assert store.sync() == NOWHERE


def test_appended_entries_are_read_back_byte_for_byte(store, kit):
    kit.reach(store, 1)
    entries = kit.make(store.end, SIZES)
    store.append(entries[:4])
    store.append(entries[4:])
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    assert store.end == LogEnd.after(entries[-1])


def test_sync_says_how_far_the_log_is_durable(store, kit):
    entries = kit.append(store, [10, 20, 30])
    assert store.durable == NOWHERE
    assert store.sync() == entries[-1].position
    assert store.durable == entries[-1].position


def test_read_stops_at_max_bytes_and_end_but_gives_one_entry_at_least(store, kit):
    entries = kit.fill(store, [100] * 6)
    size = entries[0].size
    assert [e.index for e in store.read(Index(1), 2 * size)] == [1, 2]
    assert [e.index for e in store.read(Index(1), 2 * size + size - 1)] == [1, 2]
    assert [e.index for e in store.read(Index(1), 1)] == [1]
    assert [e.index for e in store.read(Index(1), 10_000, Index(3))] == [1, 2]
    assert store.read(Index(3), 10_000, Index(3)) == []
    assert store.read(Index(6), 10_000) == []
    assert store.read(Index(99), 10_000) == []


def test_read_bodies_gives_them_in_the_order_asked_for(store, kit):
    entries = kit.fill(store, SIZES)
    refs = kit.refs(entries)
    assert [bytes(b) for b in store.read_bodies(refs)] == [bytes(e.body) for e in entries]
    assert [bytes(b) for b in store.read_bodies([refs[5], refs[1]])] == [
        bytes(entries[5].body),
        bytes(entries[1].body),
    ]
    assert store.read_bodies([]) == []


def test_read_bodies_refuses_a_place_that_is_not_the_entry(store, kit):
    entries = kit.fill(store, [50, 50])
    for ref in [(1, 0, 98), (0, 98, 98), (0, 0, 97), (7, 196, 98)]:
        with pytest.raises(CorruptEntry, match=f"entry {ref[0]}"):
            store.read_bodies([ref])
    assert len(store.read_bodies(kit.refs(entries))) == 2


def test_append_that_does_not_continue_the_log_writes_nothing(store, kit):
    entries = kit.fill(store, [50, 50])
    with pytest.raises(CorruptStore, match=r"term 2.*hard state says term 1"):
        store.append(kit.make(store.end, [10], term=2))
    kit.reach(store, 2)
    following = kit.make(store.end, [10, 10], term=2)
    other_chain = kit.make(LogEnd(store.end.position, store.end.end_pos, 12345), [10])
    old_term = kit.make(
        LogEnd(Position(Term(0), Index(1)), store.end.end_pos, store.end.chain_crc), [10], term=0
    )
    for wrong in [following[1:], entries[1:], other_chain, old_term, [following[0], following[0]]]:
        with pytest.raises(CorruptStore, match="nothing was written"):
            store.append(wrong)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.append(following)
    assert store.end == LogEnd.after(following[-1])


def test_truncate_cuts_behind_and_other_entries_follow(store, kit):
    entries = kit.fill(store, SIZES)
    store.truncate(Index(3))
    assert store.end == LogEnd.after(entries[3])
    assert store.durable == entries[3].position
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries[:4])
    more = kit.fill(store, [700, 20], term=5, salt=1)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries[:4], *more])
    assert store.terms == ((1, 0), (5, 4))


def test_truncate_to_nothing_and_behind_the_end(store, kit):
    kit.fill(store, [10, 10])
    store.truncate(Index(5))
    assert store.end.position.index == 1
    store.truncate(Index(-1))
    assert store.end == LogEnd()
    assert store.durable == NOWHERE
    assert store.terms == ()
    again = kit.fill(store, [30], term=2)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(again)


def test_D4_D7_truncate_below_a_known_commit_is_refused(store, kit):
    entries = kit.fill(store, [10] * 5)
    store.note_commit(Index(3))
    with pytest.raises(CorruptStore, match="entry 3 is committed"):
        store.truncate(Index(2))
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.truncate(Index(3))
    assert store.end.position.index == 3


def test_terms_name_the_first_index_of_each_term(store, kit):
    kit.fill(store, [10, 10], term=1)
    kit.fill(store, [10], term=4)
    kit.fill(store, [10, 400, 400, 400], term=9)
    assert store.terms == ((1, 0), (4, 2), (9, 3))


def test_hard_state_is_read_back(store):
    state = HardState(Term(3), NodeId("n2"), Index(-1))
    store.save_hard_state(state)
    assert store.hard_state == state


def test_D5_hard_state_never_goes_back_and_no_second_vote_is_given(store):
    store.save_hard_state(HardState(Term(3), None))
    store.save_hard_state(HardState(Term(3), NodeId("n2")))
    for wrong in [
        HardState(Term(2), NodeId("n2")),
        HardState(Term(3), NodeId("n1")),
        HardState(Term(3), None),
    ]:
        with pytest.raises(CorruptStore):
            store.save_hard_state(wrong)
    assert store.hard_state == HardState(Term(3), NodeId("n2"))
    store.save_hard_state(HardState(Term(4), NodeId("n1")))


def test_reopened_store_has_log_terms_hard_state_and_identity(reopen, kit):
    store = reopen()
    entries = kit.fill(store, SIZES) + kit.fill(store, [10, 20], term=3)
    store.note_commit(Index(7))
    store.save_hard_state(HardState(Term(4), NodeId("n1")))
    identity = store.identity
    store = reopen()
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    assert store.end == LogEnd.after(entries[-1])
    assert store.durable == entries[-1].position
    assert store.terms == ((1, 0), (3, len(SIZES)))
    assert store.hard_state == HardState(Term(4), NodeId("n1"), Index(7))
    assert store.identity == identity
    assert store.recovery.faulty == ()
    with pytest.raises(CorruptStore, match="committed"):
        store.truncate(Index(6))


def test_reopened_store_goes_on_where_it_was(reopen, kit):
    store = reopen()
    entries = kit.fill(store, [300, 300, 300])
    for n in range(3):
        store = reopen()
        entries += kit.fill(store, [300, 300], term=2 + n)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    store.truncate(Index(4))
    store = reopen()
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries[:5])


def test_an_entry_is_found_by_where_it_begins_and_nothing_else_is(store, kit):
    entries = kit.append(store, SIZES)
    assert [store.index_at(entry.pos) for entry in entries] == [entry.index for entry in entries]
    for wrong in (
        -1,
        1,
        entries[1].pos + 48,
        entries[-1].end_pos,
        entries[-1].end_pos - 1,
        1 << 50,
    ):
        assert store.index_at(wrong) is None
    end = store.end
    # a body that looks like an entry there
    inner = HEADER.pack(1, 48, 1, 1, end.end_pos + 48, 0, 0, 0, 0)
    entry = stamp(end, Term(1), 1, inner, kit.segment)
    store.append([entry])
    assert store.index_at(entry.pos) == entry.index
    assert store.index_at(entry.pos + 48) is None


def test_reading_in_front_of_the_log_is_out_of_range(kit, small):
    entries = kit.fill(small, [400] * 9)
    assert small.retain(Index(8), now_ms=0, hour=0) == 6
    assert small.begin_index == 6
    assert kit.bytes_of(kit.all(small)) == kit.bytes_of(entries[6:])
    with pytest.raises(OffsetOutOfRange, match="begins at entry 6"):
        small.read(Index(5), 100)
    with pytest.raises(OffsetOutOfRange):
        small.read_bodies(kit.refs(entries[5:6]))
    with pytest.raises(CorruptStore, match="begins at entry 6"):
        small.truncate(Index(4))


def test_closed_store_refuses(store, kit):
    kit.fill(store, [10])
    store.close()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.read(Index(0), 10)
    with pytest.raises(StorageError, match="closed"):
        store.sync()


def test_repair_takes_no_entry_that_was_damaged_on_its_way(kit, disk, small):
    entries = kit.fill(small, [60] * 3)
    damage(kit, disk, small, entries[1])
    with pytest.raises(CorruptEntry, match="entry 1"):
        small.repair(replace(entries[1], body=bytes(60)))
    small.repair(entries[1])
    assert kit.bytes_of(kit.all(small)) == kit.bytes_of(entries)


def test_repair_takes_only_the_entry_that_belongs_there(kit, disk, small):
    entries = kit.fill(small, [60] * 5)
    others = kit.make(LogEnd(), [60] * 5, salt=1)
    for index in (2, 4):
        damage(kit, disk, small, entries[index])
    for index in (2, 4):
        with pytest.raises(CorruptEntry, match=f"entry {index}"):
            small.read(Index(index), 1)
        with pytest.raises(CorruptEntry):
            small.repair(others[index])
        small.repair(entries[index])
    assert kit.bytes_of(kit.all(small)) == kit.bytes_of(entries)
