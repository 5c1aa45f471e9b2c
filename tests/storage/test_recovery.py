"""What opening a store decides about torn writes, rot and lost files (D3, D4, D15, B7 to B9,
B21)."""

from __future__ import annotations

import itertools

import pytest

from dledger.errors import ConfigError, CorruptEntry, CorruptStore, PathError, WrongGroup
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MAGIC_NOOP, HardState, LogEnd
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import RealDisk
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.slots import SLOT_SIZE
from dledger.storage.offline.verify import verify_store
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_disk import ProcessKilled
from verification.disk.memory_inode import SECTOR


def lose_mark(kit, disk) -> None:
    """Rot in both copies."""
    disk.flip(kit.root / "mark", 9)
    disk.flip(kit.root / "mark", SLOT_SIZE + 9)


@pytest.mark.parametrize("term", [0, 2])
@pytest.mark.parametrize("short", range(HEADER_SIZE))
def test_B9_first_noop_torn_at_any_byte_is_no_entry_without_checksums(kit, short: int, term: int):
    """Index, pos and channel of the very first one are zeros, and maybe its term, as is what was
    not written."""
    disk, store = kit.fresh(BackgroundState.MANUAL)
    kit.reach(store, term)
    [first] = kit.make(store.end, [0], term, magic=MAGIC_NOOP)
    disk.kill_at, disk.kill_short = disk.operations, short
    with pytest.raises(ProcessKilled):
        store.append([first])
    store = kit.restart(disk, power=False)
    assert store.end in (LogEnd(), LogEnd.after(first))
    store.append(
        [
            *([] if store.end.position.index == 0 else [first]),
            *kit.make(LogEnd.after(first), [3], term),
        ]
    )
    assert store.end.position.index == 1


def test_a_log_of_dledgers_that_begins_with_a_noop_is_taken_over(kit, disk):
    """Its header is all zeros behind the size, as one of ours that was torn; but nobody knows of
    any mark."""
    noop = HEADER.pack(MAGIC_NOOP, HEADER_SIZE, 0, 0, 0, 0, 0, 0, 0)
    disk.mkdir(kit.root / "data")
    for path, content, size in (
        (kit.data(), noop, kit.segment),
        (kit.root / "checkpoint", b"committedIndex=0\n", 0),
        (kit.root / "currterm", b"currTerm=0\nvoteLeader=n0\n", 0),
    ):
        file = disk.open(path, create=True)
        file.fallocate(size)
        file.pwritev([content], 0)
    for _ in range(2):
        store = kit.open(disk)
        assert kit.bytes_of(kit.all(store)) == [noop]
        store.close()


def test_B9_write_torn_at_any_byte_goes_and_what_was_synced_stays(kit):
    """The write goes over the end of a file: padding, a second write to the next one, then the
    index."""
    lengths = [200, 100, 350]

    def prepared():
        disk, store = kit.fresh(BackgroundState.MANUAL)
        entries = kit.fill(store, [100, 250])
        return disk, store, entries, kit.make(store.end, lengths)

    disk, store, _, more = prepared()
    before = len(disk.trace)
    store.append(more)
    writes = [
        n for n, operation in enumerate(disk.trace[before:]) if operation.startswith("pwritev")
    ]
    sizes = [sum(entry.size for entry in more[:2]) + 8, more[2].size, 96]
    assert more[2].pos == kit.segment
    assert len(writes) == len(sizes)
    for write, size in zip(writes, sizes, strict=True):
        for torn in range(size):
            disk, store, entries, more = prepared()
            disk.kill_at, disk.kill_short = disk.operations + write, torn
            with pytest.raises(ProcessKilled):
                store.append(more)
            store = kit.restart(disk, power=False)
            found = kit.bytes_of(kit.all(store))
            whole = (
                sum(1 for entry in more if entry.end_pos <= more[0].pos + torn)
                if write == writes[0]
                else None
            )
            assert found == kit.bytes_of([*entries, *more])[: len(found)]
            assert len(found) >= 2
            assert whole is None or len(found) == 2 + whole
            kit.fill(store, [60, 900], term=2, salt=1)
            kit.close_sound(store, disk)


@pytest.mark.parametrize(("page", "pages"), [(SECTOR, 7), (4096, 5)])
@pytest.mark.parametrize("settled", [True, False])
def test_B9_any_set_of_sectors_of_an_unsynced_write_may_be_missing(kit, page, pages, settled):
    """Entries of a third of a page, so that holes have whole, believable entries behind them. With
    the mark not settled, synced entries stand behind the mark that the next process finds: they
    stay all the same."""
    segment = 16 * page
    size = page // 3 - HEADER_SIZE
    count = (pages * page) // (page // 3) - 1
    for kept in itertools.product([False, True], repeat=pages):
        disk, store = kit.fresh(BackgroundState.MANUAL, segment_bytes=segment)
        synced = kit.fill(store, [40, 30], segment=segment)
        if settled:
            store.keep()
        torn = kit.append(store, [size] * count, segment=segment)
        written = bytes(disk.content(kit.data()))
        disk.reboot(power=True)
        inode = disk.names[kit.data()]
        for number, keep in enumerate(kept):
            if keep:
                piece = slice(number * page, (number + 1) * page)
                inode.written[piece] = inode.durable[piece] = written[piece]
        store = kit.open(disk, segment_bytes=segment)
        found = kit.bytes_of(kit.all(store))
        assert found[:2] == kit.bytes_of(synced)
        assert found == kit.bytes_of([*synced, *torn])[: len(found)]
        assert store.recovery.faulty == ()
        kit.close_sound(store, disk)


def test_a_damaged_header_at_the_begin_of_a_file_is_no_padding(kit, disk, store):
    """There is none at that place: who took it for one would look for the entry in the next
    file."""
    entry = kit.fill(store, [400, 400, 400])[2]
    assert entry.pos == kit.segment
    for byte in range(4):
        there = disk.content(kit.data(entry.pos))[byte]
        kit.flip(disk, entry.pos + byte, mask=there ^ 0xFF)
    with pytest.raises(
        CorruptEntry,
        match=f"entry 2 at pos {kit.segment} in .*{kit.segment}: its header is damaged",
    ):
        store.read(Index(2), 10_000)


def test_B8_damage_in_synced_entries_is_kept_reported_and_never_served(kit):
    """At each byte of an entry in the middle, at the end of a file, and of the last one: the node's
    log stays as long as it was, so it does not vote as if it were shorter."""
    for victim in (0, 2, 4, 7):
        for byte in range(0, HEADER_SIZE + 20):
            disk, store = kit.fresh()
            entries = kit.fill(store, [200] * 8)
            end = store.end
            disk.reboot(power=False)
            pos = entries[victim].pos
            kit.flip(disk, pos + byte, mask=0x41)
            store = kit.open(disk)
            assert store.end == end
            assert [(fault.first, fault.pos) for fault in store.recovery.faulty] == [(victim, pos)]
            with pytest.raises(CorruptEntry, match=f"entry {victim}"):
                store.read(Index(victim), 10)
            with pytest.raises(CorruptEntry, match=f"entry {victim}"):
                store.read(Index(victim), 10_000)
            if byte >= HEADER_SIZE or byte in range(4, 16):
                with pytest.raises(CorruptEntry, match=f"entry {victim}"):
                    store.read_bodies(kit.refs(entries[victim : victim + 1]))
            others = [entry.index for entry in entries if entry.index != victim]
            assert [store.read(Index(index), 1)[0].index for index in others] == others
            assert (
                [e.index for e in store.read(Index(0), 10_000)] == list(range(victim))
                if victim
                else True
            )
            store.repair(entries[victim])
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
            more = kit.fill(store, [100], term=2)
            store = kit.reopen(store, disk)
            assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *more])
            assert store.recovery.faulty == ()


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_last_term_is_known_without_data_and_index_of_the_last_entries(kit, disk, lost, store):
    """The mark tells it; of an older one the node could not even make out its log. Others take the
    term before."""
    entries = [*kit.fill(store, [100] * 3), *kit.fill(store, [100], term=2)]
    end = store.end
    disk.reboot(power=False)
    index_file = kit.root / "index" / kit.data().name
    for path, places in (
        (kit.data(), range(entries[-lost].pos, end.end_pos)),
        (index_file, range(4 * UNIT_SIZE)),
    ):
        for byte in places:
            disk.flip(path, byte, disk.content(path)[byte])
    store = kit.open(disk)
    assert store.end == end
    assert [(fault.first, fault.last) for fault in store.recovery.faulty] == [(4 - lost, 3)]
    assert store.terms == ((1, 0), (2, 3))


def test_D4_damage_before_entries_is_reported_if_no_crash_explains_it(kit, disk):
    """Behind the mark, in the same run of the system: no page that was written can be missing."""
    store = kit.open(disk, BackgroundState.MANUAL)
    synced = kit.fill(store, [50, 50])
    unsynced = kit.append(store, [50, 50, 50])
    disk.reboot(power=False)
    kit.flip(disk, unsynced[0].pos + 60)
    store = kit.open(disk)
    assert store.end == LogEnd.after(unsynced[-1])
    assert [(fault.first, fault.last) for fault in store.recovery.faulty] == [(2, 2)]
    assert store.recovery.cut == ()
    assert kit.bytes_of(store.read(Index(0), 10_000)) == kit.bytes_of(synced)
    assert kit.bytes_of(store.read(Index(3), 10_000)) == kit.bytes_of(unsynced[1:])


@pytest.mark.parametrize("sizes", [[300] * 7, [100] * 4], ids=["several", "the last one alone"])
def test_D4_without_a_mark_damage_with_entries_behind_it_is_reported(kit, disk, store, sizes):
    """Nothing follows a last one that could bear it out: it counts all the same, and nothing is
    cut."""
    entries = kit.fill(store, sizes)
    store.close()
    lose_mark(kit, disk)
    kit.flip(disk, entries[2].pos + 60)
    store = kit.open(disk)
    assert any("mark" in note for note in store.recovery.notes)
    assert store.end == LogEnd.after(entries[-1])
    assert [(fault.first, fault.last) for fault in store.recovery.faulty] == [(2, 2)]
    assert store.recovery.cut == ()


def test_D4_without_a_mark_committed_damage_at_the_end_is_not_cut(kit, disk, store):
    """The last entry is damaged, and the hard state says that it was committed: refused, naming it,
    nothing changed."""
    entries = kit.fill(store, [100] * 4)
    store.note_commit(Index(3))
    store.save_hard_state(HardState(Term(2), NodeId("n1")))
    store.close()
    lose_mark(kit, disk)
    kit.flip(disk, entries[3].pos + 50)
    before = bytes(disk.content(kit.data()))
    for _ in range(2):
        kit.refuses(disk, CorruptStore, r"entry 3 at pos .* known to be committed")
    assert bytes(disk.content(kit.data())) == before


def test_D4_behind_a_power_cut_damage_at_or_below_the_commit_mark_is_kept(kit, disk, store):
    entries = kit.fill(store, [50] * 5)
    store.note_commit(Index(2))
    store.sync()
    disk.reboot(power=True)
    kit.flip(disk, entries[1].pos + 50)
    store = kit.open(disk)
    assert [fault.first for fault in store.recovery.faulty] == [1]
    assert store.end == LogEnd.after(entries[-1])


def test_D4_what_the_mark_says_was_committed_is_not_cut_after_a_restart(kit, disk, store):
    """The hard state, saved before, says less."""
    kit.fill(store, [50] * 5)
    store.note_commit(Index(2))
    store.sync()
    store = kit.restart(disk, power=True)
    with pytest.raises(CorruptStore, match="entry 2 is committed"):
        store.truncate(Index(1))
    store.truncate(Index(2))
    assert store.end.position.index == 2


def test_commit_hint_only_speaks_of_what_is_durable_here(kit, disk, store):
    """Others may have committed what this node has not synced: a power cut takes it, and the node
    starts."""
    kit.fill(store, [50, 50])
    kit.append(store, [50, 50])
    store.note_commit(Index(3))
    store.save_hard_state(HardState(Term(2), None, Index(3)))
    store = kit.restart(disk, power=True)
    assert store.end.position.index == 1
    assert store.hard_state == HardState(Term(2), None, Index(1))
    assert store.recovery.faulty == ()


def test_D15_tail_after_the_mark_goes_to_a_new_file_before_it_counts(kit, disk, store):
    """A sync failed, which marks pages clean; the process ends; the next one syncs without error.
    Only what was written anew survives the power cut that follows (B10)."""
    entries = kit.fill(store, [100, 100])
    unsynced = kit.append(store, [300, 300, 300])
    disk.fail("fdatasync", "data/")
    with pytest.raises(Exception, match="disk failed"):
        store.sync()
    store = kit.restart(disk, power=False)
    assert len(store.recovery.rewritten) == 2
    assert store.durable == unsynced[-1].position
    store = kit.restart(disk, power=True)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of([*entries, *unsynced])


def test_entry_of_another_index_than_is_due_is_not_taken_for_the_next_one(kit, disk):
    """Its place and its checksums are right, as those of a log that was put together from two would
    be."""
    store = kit.open(disk, BackgroundState.MANUAL)
    entries = kit.fill(store, [100, 50])
    end = store.end
    (forged,) = kit.make(
        LogEnd(Position(Term(1), Index(end.position.index + 1)), end.end_pos, end.chain_crc), [60]
    )
    data = bytes(forged.header) + bytes(forged.body)
    disk.reboot(power=False)
    for at, byte in enumerate(data, end.end_pos):
        kit.flip(disk, at, mask=byte)
    store = kit.open(disk)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    assert any("index 3 where 2 is due" in reason for reason in store.recovery.cut)


def test_clean_stop_and_idle_kill_rewrite_nothing(kit, disk, store):
    kit.fill(store, [100] * 9)
    store = kit.reopen(store, disk)
    assert store.recovery.rewritten == store.recovery.cut == store.recovery.rebuilt == ()
    disk.reboot(power=False)
    assert kit.open(disk).recovery.rewritten == ()


def test_a_long_log_is_not_read_at_start(kit, disk, monkeypatch):
    """Only the part behind the mark is scanned; rot in front of it is found by whoever reads it,
    not believed."""
    monkeypatch.setattr("dledger.storage.file_store.INDEXED_EVERY", 2000)
    store = kit.open(disk)
    entries = [entry for _ in range(10) for entry in kit.fill(store, [300] * 4)]
    end = store.end
    disk.reboot(power=False)
    kit.flip(disk, entries[5].pos + 60)
    store = kit.open(disk)
    assert store.end == end
    assert int(store.recovery.kept.split(";")[1].split()[0]) <= 8
    assert store.recovery.faulty == ()
    with pytest.raises(CorruptEntry, match="entry 5"):
        store.read(Index(5), 1)
    assert store.read(Index(6), 1)[0].index == 6


@pytest.mark.parametrize(
    "how",
    [
        "deleted",
        "zeroed",
        "one unit",
        "wrong unit",
        "wrong pos",
        "ahead of the data",
        "a file short",
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_B21_index_files_are_rebuilt_from_the_data(kit, disk, how, clean, store):
    entries = kit.fill(store, [100] * 25)
    if clean:
        store.close()
    else:
        disk.reboot(power=False)
    names = [kit.root / "index" / name for name in disk.listdir(kit.root / "index")]
    content = disk.names[names[0]]
    if how == "deleted":
        for name in names:
            disk.unlink(name)
    elif how == "zeroed":
        content.written[:] = bytes(len(content.written))
    elif how == "one unit":
        content.written[3 * 32 : 4 * 32] = bytes(32)
    elif how == "wrong unit":
        content.written[3 * 32 : 4 * 32] = content.written[5 * 32 : 6 * 32]
    elif how == "wrong pos":
        content.written[3 * 32 + 4 : 3 * 32 + 16] = content.written[5 * 32 + 4 : 5 * 32 + 16]
    elif how == "ahead of the data":
        last = disk.names[names[2]]
        last.written[5 * 32 : 6 * 32] = content.written[:32]
    else:
        disk.unlink(names[1])
    store = kit.open(disk)
    assert [store.read(entry.index, 1)[0].index for entry in entries] == list(range(25))
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    assert store.end == LogEnd.after(entries[-1])
    more = kit.fill(store, [10])
    store.close()
    assert kit.bytes_of(kit.all(kit.open(disk))) == kit.bytes_of([*entries, *more])


def test_B21_lost_index_is_whole_again_once_the_store_was_open(kit, disk, store):
    kit.fill(store, [100] * 25)
    store.close()
    for name in disk.listdir(kit.root / "index"):
        disk.names[kit.root / "index" / name].written[:] = bytes(320)
    kit.open(disk).close()
    assert verify_store(kit.root, disk)["problems"] == []


def test_B21_entries_are_found_when_no_repair_of_the_index_is_kept(kit, disk, monkeypatch, store):
    """The index loses each write that puts a unit back."""
    entries = kit.fill(store, [40] * 6)
    monkeypatch.setattr(store._index.files, "pwritev", lambda offset, buffers: None)
    for entry in entries[1:]:
        for at in range(32):
            disk.names[kit.root / "index" / f"{0:020d}"].written[entry.index * 32 + at] = 0
    for entry in entries:
        assert kit.bytes_of(store.read(entry.index, 0)) == kit.bytes_of([entry])
        assert store._reader.term_of(entry.index, store._view, []) == entry.term
    assert store._index.get(entries[-1].index) is None


def test_D3_an_entry_whose_term_nothing_tells_any_more_is_damaged(kit, disk, store):
    """It opens a term, and lies where a start does not look at the data. With the term of the one
    in front for its own this node would contradict the group, so it may not lead before the entry
    is repaired."""
    entries = kit.fill(store, [10] * 10, term=1)
    entries += kit.fill(store, [10] * 10, term=2)
    store.close()
    lost = entries[10]
    disk.names[kit.data()].written[lost.pos : lost.pos + HEADER_SIZE] = bytes(HEADER_SIZE)
    for name in disk.listdir(kit.root / "index"):
        unit = disk.names[kit.root / "index" / name].written
        at = lost.index * UNIT_SIZE - int(name)
        if 0 <= at < len(unit):
            unit[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
    store = kit.open(disk)
    assert any(fault.first <= lost.index <= fault.last for fault in store.recovery.faulty), (
        store.recovery
    )
    assert store.end == LogEnd.after(entries[-1])


def test_missing_data_files_are_named_and_not_guessed_over(kit, disk, store):
    kit.fill(store, [400] * 9)
    store.close()
    kept = dict(disk.names)
    for number, says in [(1, "is missing"), (4, "entries up to 8 were durable")]:
        disk.names = dict(kept)
        disk.unlink(kit.data(number * kit.segment))
        if number == 4:
            for name in disk.listdir(kit.root / "data")[4:]:
                disk.unlink(kit.root / "data" / name)
        kit.refuses(disk, CorruptStore, says)
    disk.names = {path: inode for path, inode in kept.items() if path.parent.name != "data"}
    kit.refuses(disk, CorruptStore, "entries up to 8 were durable")


def test_store_without_its_hard_state_is_refused(kit, disk, store):
    kit.fill(store, [10])
    store.close()
    disk.unlink(kit.root / "state")
    kit.refuses(disk, CorruptStore, "cannot know what it voted")


def test_older_hard_state_than_the_log_is_refused(kit, disk, store):
    store.close()
    old = bytes(disk.content(kit.root / "state"))
    store = kit.open(disk)
    kit.fill(store, [10], term=5)
    store.close()
    disk.content(kit.root / "state")[:] = old
    kit.refuses(disk, CorruptStore, "old copy")


def test_store_of_another_group_or_node_or_size_is_refused(kit, disk):
    kit.open(disk).close()
    other = "group 'default', not to node 'n0' of group 'other'"
    kit.refuses(disk, WrongGroup, other, group="other")
    kit.refuses(disk, WrongGroup, "belongs to node 'n0'", node_id=NodeId("n1"))
    kit.refuses(disk, ConfigError, "segment_bytes 1024, not 2048", segment_bytes=2048)
    kit.open(disk).close()


def test_second_opener_is_refused_until_the_first_one_closes(kit, tmp_path):
    store = kit.open(RealDisk(), directory=tmp_path / "n0")
    kit.refuses(RealDisk(), PathError, "in use by another node process", directory=tmp_path / "n0")
    with pytest.raises(PathError, match="a node runs on this store"):
        verify_store(tmp_path / "n0")
    store.close()
    kit.open(RealDisk(), directory=tmp_path / "n0").close()


def test_path_that_is_a_file_is_refused(kit, tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "n0"):
        kit.refuses(RealDisk(), PathError, "is a file", directory=path)


def test_path_that_cannot_be_written_is_refused(kit, monkeypatch, tmp_path):
    """By a fake, because tests may run as root, who may write anywhere."""

    class ReadOnlyDisk(RealDisk):
        def mkdir(self, path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

    denied = "cannot be used for the node's files: Permission denied"
    kit.refuses(ReadOnlyDisk(), PathError, denied, directory=tmp_path / "n0")


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("offset", range(4, 40))
def test_damaged_first_header_of_a_file_is_not_used_in_an_index_rebuild(kit, offset, indexed):
    """Its checksum depends on the entry before: where that is in another file, the header is no
    place to begin at."""
    disk, store = kit.fresh(BackgroundState.MANUAL)
    entries = kit.fill(store, [400, 300, 500, 200, 100, 900, 50])
    store.close()
    first = next(entry for entry in entries if entry.pos == kit.segment)
    kit.flip(disk, first.pos + offset, mask=0x40)
    names = disk.listdir(kit.root / "index")
    if not indexed:
        for name in names:
            disk.unlink(kit.root / "index" / name)
    store = kit.open(disk, BackgroundState.MANUAL)
    for entry in entries:
        if entry.index != first.index:
            assert kit.bytes_of(store.read(entry.index, 1))[0] == kit.bytes_of([entry])[0]
    with pytest.raises(CorruptEntry, match=f"entry {first.index} "):
        store.read(first.index, 1)
    assert disk.listdir(kit.root / "index") == names
    store.repair(first)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
    kit.close_sound(store, disk)
