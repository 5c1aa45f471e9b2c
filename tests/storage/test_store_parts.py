"""The store's smaller parts: terms, the walk, the keeper's thread, the real disk, and the fake
one."""

from __future__ import annotations

import errno
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dledger.checksum import crc32
from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import HEADER, MIN_BLANK_SIZE, Entry, LogEnd, parse, stamp
from dledger.protocol.messages.entry_runs import Entries, EntryRun, stamp_all
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import RealDisk
from dledger.storage.disk.file_names import file_name
from dledger.storage.log import walker
from dledger.storage.log.entry_writer import check_append
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.sound_runs import sound_run
from dledger.storage.log.term_index import TermTable, find_terms
from dledger.storage.log.walker import Bad, Finish, Padding, Walker
from dledger.storage.log.zeros import first_nonzero
from dledger.types import Index, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_inode import SECTOR


def test_terms_are_found_by_bisection():
    dice = random.Random(3)
    for _ in range(200):
        terms, term = [], 0
        for _ in range(dice.randrange(1, 60)):
            term += dice.choice([0, 0, 0, 0, 1, 5])
            terms.append(Term(term))
        begin = dice.randrange(0, 5)
        seen: list[tuple[int, int]] = []
        for n, each in enumerate(terms):
            if not seen or seen[-1][0] != each:
                seen.append((each, n + begin))
        asked: list[int] = []

        def term_of(index: int, terms=terms, begin=begin, asked=asked) -> Term:
            asked.append(index)
            return terms[index - begin]

        assert find_terms(Index(begin), Index(begin + len(terms) - 1), term_of) == tuple(seen)
        assert len(asked) <= len(seen) * 9 + 2
    assert find_terms(Index(4), Index(3), lambda _: Term(0)) == ()


def test_term_table_follows_cuts_at_both_ends():
    table = TermTable(((Term(1), Index(0)), (Term(4), Index(5)), (Term(6), Index(9))))
    table.truncate(Index(8))
    assert table.pairs == ((1, 0), (4, 5))
    table.drop_front(Index(3))
    assert table.pairs == ((1, 3), (4, 5))
    table.drop_front(Index(5))
    assert table.pairs == ((4, 5),)


def test_entries_stamped_at_once_equal_those_stamped_one_by_one():
    """A store accepts the entries that are stamped at once."""
    before = stamp(LogEnd(), Term(1), 1, b"first", 512)
    bodies = [b"x" * size for size in (0, 1, 100, 200, 120, 7, 456, 3)]
    entries, end = [], LogEnd.after(before)
    for body in bodies:
        entries.append(stamp(end, Term(3), 2, body, 512))
        end = LogEnd.after(entries[-1])
    together = stamp_all(LogEnd.after(before), Term(3), 2, bodies, 512)
    assert together == entries
    assert len(together.runs) < len(entries)
    assert len({entry.pos // 512 for entry in entries}) > 2
    check_append(LogEnd.after(before), Entries.of(entries), 512, Term(3))
    check_append(LogEnd.after(before), together, 512, Term(3))
    assert [parse(bytes(entry.header) + bytes(entry.body)) for entry in entries] == entries
    with pytest.raises(ValueError, match="does not fit"):
        stamp_all(end, Term(3), 2, [b"", b"x" * 457], 512)


def test_walk_passes_entries_padding_and_damage(kit, disk, store):
    entries = kit.fill(store, [400, 400, 400])
    store.close()
    data = SegmentFiles(disk, kit.root / "data", file_size=kit.segment, read_only=True)
    events = list(Walker(data, LogEnd()).walk())
    assert [type(event) for event in events] == [Entry, Entry, Padding, Entry, Finish]
    assert events[2] == Padding(entries[1].end_pos, kit.segment - entries[1].end_pos)
    kit.flip(disk, entries[1].pos + 100)
    events = list(Walker(data, LogEnd()).walk())
    assert [type(event) for event in events] == [Entry, Bad, Entry, Finish]
    assert (events[1].first, events[1].last, events[1].pos, events[1].resume) == (1, 1, 448, 1024)


def test_walk_finds_entries_behind_a_damaged_header_by_their_own_pos(kit, disk, store):
    """Both sizes are gone, so nothing says where the next entry is."""
    entries = kit.fill(store, [100, 150, 100, 100])
    store.close()
    for offset in (4, 44):
        kit.flip(disk, entries[1].pos + offset)
    data = SegmentFiles(disk, kit.root / "data", file_size=kit.segment, read_only=True)
    events = list(Walker(data, LogEnd()).walk())
    assert [type(event) for event in events] == [Entry, Bad, Entry, Entry, Finish]
    assert events[1].resume == entries[2].pos


def test_walk_of_runs_sees_what_a_walk_of_single_entries_sees(kit, disk, store, monkeypatch):
    """Over a log of several terms and files, with any bytes of it changed."""
    dice = random.Random(11)
    for term in (1, 1, 2, 5):
        kit.fill(store, [dice.randrange(0, 120) for _ in range(12)], term=term)
    store.close()
    data = SegmentFiles(disk, kit.root / "data", file_size=kit.segment, read_only=True)

    def walked() -> list[object]:
        return [(type(event), event) for event in Walker(data, LogEnd()).walk()]

    for _ in range(150):
        flips = [dice.randrange(store.end.end_pos) for _ in range(dice.choice((0, 1, 1, 3)))]
        for at in flips:
            kit.flip(disk, at)
        with monkeypatch.context() as patch:
            patch.setattr(walker, "sound_run", lambda *_: None)
            singly = walked()
        assert walked() == singly
        passes = Walker(data, LogEnd()).passes()
        assert sum(len(event) for event in passes if isinstance(event, EntryRun)) > 10
        for at in flips:
            kit.flip(disk, at)


@pytest.mark.parametrize("harm", ["channel", "pos", "index", "size", "body", "no checksums"])
def test_run_ends_before_an_entry_that_is_not_sound(harm):
    """Also where checksums say that it is: they are of what was written."""
    entries = [stamp(LogEnd(), Term(1), 1, b"first", 4096)]
    for _ in range(3):
        entries.append(stamp(LogEnd.after(entries[-1]), Term(1), 1, b"body", 4096))
    end, last = LogEnd.after(entries[0]), entries[-1]
    fields = list(HEADER.unpack(last.header))
    place = {"channel": 5, "pos": 4, "index": 2, "size": 1}
    if harm in place:
        fields[place[harm]] += 1
    if harm == "no checksums":
        fields[6] = fields[7] = 0
    else:
        fields[6] = 0
        fields[6] = crc32(HEADER.pack(*fields), entries[-2].chain_crc)
    body = b"bodY" if harm == "body" else b"body"
    sound = b"".join(bytes(one.header) + bytes(one.body) for one in entries[1:3])
    run = sound_run(sound + HEADER.pack(*fields) + body, 0, end, 4096 - end.end_pos)
    assert run is not None
    assert [run.entry(at) for at in range(len(run))] == entries[1:3]


def test_run_keeps_to_its_file_and_its_terms():
    entries = [stamp(LogEnd(), Term(3), 1, b"first", 4096)]
    for _ in range(3):
        entries.append(stamp(LogEnd.after(entries[-1]), Term(3), 1, b"body", 4096))
    end = LogEnd.after(entries[0])
    data = b"".join(bytes(one.header) + bytes(one.body) for one in entries[1:])
    whole = sound_run(data, 0, end, len(data) + MIN_BLANK_SIZE)
    assert whole is not None
    assert len(whole) == 3
    shorter = sound_run(data, 0, end, len(data) + MIN_BLANK_SIZE - 1)
    assert shorter is not None
    assert len(shorter) == 2
    later = replace(end, position=replace(end.position, term=Term(4)))
    assert sound_run(data, 0, later, 4096 - end.end_pos) is None


def test_first_nonzero_skips_what_is_zero(disk):
    files = SegmentFiles(disk, Path("/disk/data"), file_size=4096)
    for start in range(0, 3 * 4096, 4096):
        files.allocate(start)
    assert first_nonzero(files, 0) is None
    files.pwritev(4096 + 77, [b"\x01"])
    assert first_nonzero(files, 0) == 4096 + 77
    assert first_nonzero(files, 4096 + 78) is None
    assert first_nonzero(files, 0, 4096 + 77) is None


class CachedFiles:
    """One file of nothing. The system has its first page in the cache, and after a read all that it
    reads ahead; what is in the cache counts as data."""

    file_size = 64 << 20

    def __init__(self) -> None:
        self.cached = 4096
        self.bytes_read = 0

    def has(self, pos: int) -> bool:
        return pos < self.file_size

    def next_data(self, pos: int) -> int | None:
        return pos if pos < self.cached else None

    def pread(self, pos: int, size: int) -> bytes:
        self.bytes_read += size
        self.cached = max(self.cached, pos + size + (4 << 20))
        return bytes(size)


def test_first_nonzero_reads_no_hole_that_its_own_reading_filled():
    """A new data file is a quarter of a gigabyte of nothing, and every start of a node looks
    through it."""
    files = CachedFiles()
    assert first_nonzero(files, 100) is None
    assert files.bytes_read <= 64 << 10


@pytest.mark.parametrize("exchange", ["dropped and made again", "replaced"])
def test_a_file_that_is_exchanged_while_somebody_opens_it_is_opened_again(monkeypatch, exchange):
    """A reader's handle to the old file would be the writer's too, and what is written and synced
    there is lost."""
    disk, folder = MemoryDisk(), Path("/disk/data")
    files = SegmentFiles(disk, folder, file_size=4096)
    for start in (0, 4096):
        files.allocate(start)
    files.close()
    open_file, waiting = disk.open, [exchange]

    def slow_open(path, create=False):
        handle = open_file(path, create)
        if waiting:
            if waiting.pop() == "replaced":
                files.rewrite(4096, 0)
            else:
                files.drop_behind(0)
                files.allocate(4096)
        return handle

    monkeypatch.setattr(disk, "open", slow_open)
    assert files.pread(4096, 10) == bytes(10)  # a reader
    files.pwritev(4096, [b"written"])
    files.sync()
    disk.reboot(power=True)
    assert SegmentFiles(disk, folder, file_size=4096).pread(4096, 7) == b"written"


def test_readers_beside_a_writer_see_whole_sound_entries(kit, tmp_path):
    """With syncs, rolls, truncations and the keeper's thread going on."""
    segment = 1 << 16
    where = {"directory": tmp_path / "n0", "segment_bytes": segment, "index_file_bytes": 3200}
    store = kit.open(RealDisk(), BackgroundState.THREAD, **where)
    kit.append(store, [200] * 50, segment=segment)
    done = threading.Event()

    def read(which: int) -> int:
        dice, count = random.Random(which), 0
        while not done.is_set():
            begin = Index(dice.randrange(0, store.end.position.index + 1))
            entries = store.read(begin, 20_000)
            count += len(entries)
            assert [entry.index for entry in entries] == list(range(begin, begin + len(entries)))
            kept = [entry for entry in entries if entry.index < 50]
            assert len(store.read_bodies(kit.refs(kept))) == len(kept)
        return count

    def sync() -> int:
        while not done.is_set():
            store.sync()
        return 1

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(read, 0), pool.submit(read, 1), pool.submit(sync)]
        try:
            term = 1
            for turn in range(60):
                sizes = [200, 1000, 3000, 10] * 4
                kit.append(store, sizes, term, salt=turn, segment=segment)
                if turn % 7 == 6:
                    term += 1
                    store.truncate(Index(store.end.position.index - 40))
        finally:
            done.set()
    assert min(other.result() for other in others) > 0
    end = store.sync()
    store = kit.reopen(store, RealDisk(), BackgroundState.THREAD, **where)
    assert store.end.position == end
    assert len(kit.all(store)) == end.index + 1
    store.close()


def test_next_file_is_there_before_it_is_needed(kit, disk, store):
    kit.fill(store, [300])
    assert len(disk.listdir(kit.root / "data")) == 1
    kit.fill(store, [300])
    assert len(disk.listdir(kit.root / "data")) == 2
    before = disk.operations
    entries = kit.append(store, [400])
    assert entries[0].pos == kit.segment
    assert all(step.startswith("pwritev") for step in disk.trace[-(disk.operations - before) :])


def test_reading_many_bodies_takes_one_read_per_run(kit, monkeypatch, store):
    entries = kit.fill(store, [50] * 20)
    reads: list[int] = []
    monkeypatch.setattr(
        "verification.disk.memory_disk.MemoryFile.pread",
        lambda file, size, offset: (
            reads.append(size) or bytes(file._inode.written[offset : offset + size])
        ),
    )
    assert len(store.read_bodies(kit.refs(entries))) == 20
    assert len(reads) == len({entry.pos // kit.segment for entry in entries})


def test_body_is_a_view_of_what_was_read(kit, disk, store):
    entries = kit.fill(store, [50] * 3)
    bodies = store.read_bodies(kit.refs(entries))
    assert all(isinstance(body, memoryview) for body in bodies)
    assert len({id(body.obj) for body in bodies}) == 1
    kit.flip(disk, entries[1].pos + 48)
    with pytest.raises(CorruptEntry, match="entry 1"):
        store.read_bodies(kit.refs(entries))


def test_entries_over_receive_buffers_are_written_as_they_are(kit, disk):
    """No copy is needed: header and body may be any buffers, and more of them than one system call
    takes."""
    store = kit.open(disk, segment_bytes=1 << 20, index_file_bytes=1 << 16)
    kit.reach(store, 1)
    entries = kit.make(store.end, [9] * 3000, segment=1 << 20)
    views = [
        replace(e, header=memoryview(bytes(e.header)), body=memoryview(bytearray(e.body)))
        for e in entries
    ]
    store.append(views)
    assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)


def test_real_file_writes_more_buffers_than_one_call_takes(tmp_path):
    file = RealDisk().open(tmp_path / "file", create=True)
    file.pwritev([bytes([n % 256]) for n in range(5000)], 10)
    assert file.pread(6000, 10) == bytes(n % 256 for n in range(5000))
    file.truncate(100)
    assert file.size() == 100
    file.fallocate(200_000)
    assert file.size() == 200_000
    assert file.pread(10, 199_995) == bytes(5)
    assert file.next_data(0) == 0
    file.fdatasync()
    disk = RealDisk()
    disk.fsync_dir(tmp_path)
    assert disk.listdir(tmp_path) == ["file"]
    assert disk.listdir(tmp_path / "nothing") == []
    assert disk.statvfs(tmp_path).total > disk.statvfs(tmp_path).free > 0
    assert len(disk.boot_id()) in {0, 16}


def test_memory_disk_loses_what_was_not_synced_and_only_that(disk):
    """The fake must be as cruel as it says, or the crash tests show nothing."""
    path = Path("/disk/file")
    file = disk.open(path, create=True)
    file.pwritev([b"a" * 2000], 0)
    file.fdatasync()
    disk.reboot(power=True)
    assert not disk.exists(path), "its name was not synced"
    file = disk.open(path, create=True)
    file.pwritev([b"a" * 2000], 0)
    file.fdatasync()
    disk.fsync_dir(path.parent)
    file.pwritev([b"b" * 2000], 0)
    disk.reboot(power=False)
    assert disk.content(path) == b"b" * 2000
    answers = iter([0, 1, 0, 1, 0])
    disk.reboot(power=True, choose=lambda _: next(answers))
    assert disk.content(path) == b"b" * SECTOR + b"a" * SECTOR + b"b" * SECTOR + b"a" * (
        2000 - 3 * SECTOR
    )


def test_memory_disk_marks_pages_clean_when_a_sync_fails(disk):
    path = Path("/disk/file")
    file = disk.open(path, create=True)
    disk.fsync_dir(path.parent)
    file.pwritev([b"lost"], 0)
    disk.fail("fdatasync", times=1)
    with pytest.raises(OSError, match=r"[Ii]nput/output"):
        file.fdatasync()
    file.fdatasync()
    assert disk.content(path) == b"lost"
    disk.reboot(power=True)
    assert disk.content(path) in (b"", bytes(4))


def test_memory_disk_refuses_room_it_has_not_got():
    disk = MemoryDisk()
    disk.free = 10
    with pytest.raises(OSError, match="space") as caught:
        disk.open(Path("/disk/file"), create=True).fallocate(11)
    assert caught.value.errno == errno.ENOSPC


def before_a_read(monkeypatch, pos, act) -> list:
    """Carry it out once, when the byte of the log at ``pos`` is about to be read; it waits in the
    list that is returned."""
    pread, waiting = SegmentFiles.pread, [act]

    def slow_pread(files, offset, size):
        if offset == pos and waiting:
            waiting.pop()()
        return pread(files, offset, size)

    monkeypatch.setattr(SegmentFiles, "pread", slow_pread)
    return waiting


@pytest.mark.parametrize("again", [False, True], ids=["cut", "written again"])
@pytest.mark.parametrize("after", [1, 6], ids=["with its file", "within its file"])
def test_a_look_for_an_entrys_place_beside_a_cut_finds_no_damage(
    kit, disk, monkeypatch, after, again
):
    """What a reader is about to read goes with its file, or is another entry's by then."""
    store = kit.open(disk, BackgroundState.MANUAL)  # no file is made ahead, which would go
    entries = kit.fill(store, [300] * 8)

    def cut():
        store.truncate(Index(after))
        if again:
            kit.fill(store, [100] * 20, term=2)

    waiting = before_a_read(monkeypatch, entries[7].pos, cut)
    found = store.index_at(entries[7].pos)
    expected = {entry.pos: entry.index for entry in kit.all(store)}
    assert not waiting
    assert found == expected.get(entries[7].pos)


def test_a_look_for_an_entrys_place_beside_retention_finds_no_damage(kit, disk, monkeypatch):
    store = kit.open(disk, retention_bytes=kit.segment)
    entries = kit.fill(store, [300] * 12)

    def retain():
        store.note_commit(Index(11))
        assert store.retain(Index(11), 0) > 0

    waiting = before_a_read(monkeypatch, entries[0].pos, retain)
    assert store.index_at(entries[0].pos) is None
    assert not waiting


def test_a_cut_between_the_view_and_the_exchanged_files_is_no_damage(kit, disk, monkeypatch):
    """A reader takes the view, then counts the exchanged files: a cut in between is counted
    already."""
    store = kit.open(disk)
    kit.fill(store, [300] * 8)
    view_of, cuts = store._reader._view, [partial(store.truncate, Index(1))]

    def view_before_the_cut():
        view = view_of()
        if cuts:
            cuts.pop()()
        return view

    monkeypatch.setattr(store._reader, "_view", view_before_the_cut)
    assert store.read(Index(7), 1) == []
    assert not cuts


def test_index_on_disk_names_no_entry_that_was_cut(kit, disk):
    """Other programs read it, DLedger among them."""
    store = kit.open(disk)
    kit.fill(store, [50] * 8)
    store.truncate(Index(2))
    index = disk.content(kit.root / "index" / file_name(0))
    assert any(index[2 * UNIT_SIZE : 3 * UNIT_SIZE])
    assert not any(index[3 * UNIT_SIZE :])
