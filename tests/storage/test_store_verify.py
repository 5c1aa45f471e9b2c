"""`verify` finds any one changed byte and names the entry; `dump` lists what is there; both read
DLedger's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dledger.checksum import crc32
from dledger.errors import ConfigError, PathError
from dledger.protocol.messages.entry import HEADER, MAGIC_NOOP, stamp
from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import RealDisk
from dledger.storage.meta.snapshots import SnapshotFiles
from dledger.storage.meta.tables import TableFiles
from dledger.storage.offline.dump import dump_store
from dledger.storage.offline.verify import verify_store
from dledger.types import Index, Term
from verification.disk.memory_disk import MemoryDisk

GOLDEN = Path(__file__).parents[1] / "golden" / "dledger_clean_n0"
GOLDEN_SIZES = {"segment_bytes": 1024, "index_file_bytes": 256}


def full_store(kit) -> tuple[MemoryDisk, list]:
    """Three data files, two index files, a table and two snapshots."""
    disk, store = kit.fresh()
    entries = kit.fill(store, [100, 300, 0, 500]) + kit.fill(
        store, [1, 200, 600, 100, 30, 30, 1], term=2
    )
    store.close()
    tables = TableFiles(kit.root / "tables", disk)
    tables.open("topic-1", 24).append(bytes(range(48)))
    tables.sync()
    snapshots = SnapshotFiles(kit.root / "snapshot", disk)
    snapshots.save(Index(3), b"three")
    snapshots.save(Index(7), b"seven")
    return disk, entries


def test_sound_store_has_no_problems(kit):
    disk, entries = full_store(kit)
    report = verify_store(kit.root, disk)
    assert report["ok"] is True
    assert report["problems"] == []
    assert (report["begin_index"], report["end_index"], report["entries"]) == (0, 10, 11)
    assert report["bytes"] == sum(entry.size for entry in entries)
    assert (report["group"], report["node_id"], report["term"]) == ("default", "n0", 2)
    json.dumps(report)


@pytest.mark.parametrize(
    ("others", "mask", "step"),
    [
        ("sound", 0xFF, 1),
        ("sound", 0x01, 5),
        ("sound", 0x80, 7),
        ("index", 0xFF, 5),
        ("records", 1, 5),
        ("tables", 1, 11),
    ],
)
def test_D3_any_changed_byte_of_a_data_file_is_reported_with_its_entry(kit, others, mask, step):
    """Header, body, padding and free space; also while other files are damaged."""
    disk, entries = full_store(kit)
    if others == "index":
        for name in disk.listdir(kit.root / "index"):
            disk.content(kit.root / "index" / name)[:] = bytes(kit.settings().index_file_bytes)
    elif others == "records":
        for name in ("state", "mark"):
            disk.flip(kit.root / name, 30)
            disk.flip(kit.root / name, 4096 + 30)
    elif others == "tables":
        for name in disk.listdir(kit.root / "tables"):
            disk.flip(kit.root / "tables" / name, 70)
    known = len(verify_store(kit.root, disk)["problems"])
    owners = {}
    for entry in entries:
        owners |= dict.fromkeys(range(entry.pos, entry.end_pos), entry.index)
    for name in disk.listdir(kit.root / "data"):
        for offset in range(0, kit.segment, step):
            pos = int(name) + offset
            owner = owners.get(pos)
            if owner is None:
                before = [entry.index for entry in entries if entry.pos < pos]
                owner = before[-1]
            disk.flip(kit.root / "data" / name, offset, mask)
            problems = verify_store(kit.root, disk)["problems"]
            disk.flip(kit.root / "data" / name, offset, mask)
            named = [
                problem["index"]
                for problem in problems
                if problem["file"] == str(kit.root / "data" / name)
            ]
            if pos in owners or others != "records":
                assert owner in named, (pos, owner, problems)
            # with no mark, something behind the log may as well be the start of another entry
            else:
                assert named, (pos, problems)
            assert len(problems) > known or others == "index"
            assert all(index in {owner, owner + 1} for index in named), (pos, owner, problems)
    assert len(verify_store(kit.root, disk)["problems"]) == known


@pytest.mark.parametrize("where", ["index", "state", "mark", "tables", "snapshot"])
def test_any_changed_byte_of_the_other_files_is_reported_with_the_file(kit, where):
    disk, _ = full_store(kit)
    root = kit.root / where
    paths = [root] if where in {"state", "mark"} else [root / name for name in disk.listdir(root)]
    for path in paths:
        size = len(disk.content(path))
        for offset in range(size) if size < 1000 else [*range(160), *range(160, size, 61)]:
            disk.flip(path, offset, 0x10)
            problems = verify_store(kit.root, disk)["problems"]
            disk.flip(path, offset, 0x10)
            assert str(path) in [problem["file"] for problem in problems], offset
    assert verify_store(kit.root, disk)["ok"]


def test_verify_and_dump_change_nothing(kit):
    disk, _ = full_store(kit)
    kit.flip(disk, 60)
    before = {path: bytes(inode.written) for path, inode in disk.names.items()}
    operations = disk.operations
    verify_store(kit.root, disk)
    list(dump_store(kit.root, disk))
    assert {path: bytes(inode.written) for path, inode in disk.names.items()} == before
    assert disk.operations == operations


def test_lost_last_files_are_reported(kit):
    disk, _ = full_store(kit)
    for name in disk.listdir(kit.root / "data")[1:]:
        disk.unlink(kit.root / "data" / name)
    problems = verify_store(kit.root, disk)["problems"]
    assert any("entries up to 10 were durable" in problem["reason"] for problem in problems)


def test_dump_gives_one_dict_per_entry(kit, disk, store):
    kit.reach(store, 3)
    bodies = [
        (1, b"plain"),
        (MAGIC_NOOP, b""),
        (1, encode_header(BodyHeader(BodyKind.DATA, topic_id=1, count=2)) + b"payload"),
        (1, encode_header(BodyHeader(BodyKind.DATA, topic_id=1, flags=Flag.STAGED)) + b"payload"),
        (1, encode_header(BodyHeader(BodyKind.COMMAND)) + b"command"),
    ]
    for magic, body in bodies:
        store.append([stamp(store.end, Term(3), magic, body, kit.segment)])
    store.close()
    found = list(dump_store(kit.root, disk))
    assert [entry["kind"] for entry in found] == ["other", "noop", "data", "staged", "command"]
    assert [entry["index"] for entry in found] == list(range(5))
    assert [entry["body_crc"] for entry in found] == [crc32(body) for _, body in bodies]
    assert found[1] == {
        "index": 1,
        "term": 3,
        "pos": 53,
        "size": 48,
        "kind": "noop",
        "body_crc": 0,
        "verified": True,
    }
    kit.flip(disk, 50)
    assert [entry["kind"] for entry in dump_store(kit.root, disk)][:2] == ["damaged", "noop"]


def test_directory_without_a_store_is_refused(tmp_path):
    with pytest.raises(PathError, match="no log here"):
        verify_store(tmp_path)
    with pytest.raises(PathError, match="no log here"):
        list(dump_store(tmp_path / "nothing"))


def test_golden_files_of_dledger_dump_and_verify():
    found = list(dump_store(GOLDEN))
    assert [(e["index"], e["term"], e["pos"], e["size"]) for e in found] == [
        (0, 0, 0, 148),
        (1, 0, 148, 348),
        (2, 0, 496, 520),
        (3, 0, 1024, 512),
        (4, 0, 1536, 49),
        (5, 0, 1585, 55),
    ]
    assert not any(e["verified"] for e in found)
    report = verify_store(GOLDEN)
    assert report["ok"]
    assert (report["entries"], report["unverified_entries"], report["end_index"]) == (6, 6, 5)


@pytest.fixture
def golden(tmp_path) -> dict[str, Any]:
    """The settings of a store of DLedger's files."""
    root = tmp_path / "dledger-n0"
    shutil.copytree(GOLDEN, root)
    return {"directory": root, **GOLDEN_SIZES}


def test_golden_files_of_dledger_open_read_and_encode_byte_for_byte(kit, golden):
    root = golden["directory"]
    store = kit.open(RealDisk(), BackgroundState.THREAD, **golden)
    assert (store.hard_state.term, store.hard_state.voted_for, store.hard_state.commit_hint) == (
        0,
        "n0",
        5,
    )
    assert store.recovery.faulty == ()
    entries = kit.all(store)
    assert not any(entry.verified for entry in entries)
    assert [bytes(entry.body[:1]) for entry in entries] == [b"C", b"D", b"E", b"F", b"G", b"C"]
    files = [bytearray(1024), bytearray(1024)]
    for entry in entries:
        header = HEADER.pack(
            entry.magic,
            entry.size,
            entry.index,
            entry.term,
            entry.pos,
            0,
            entry.chain_crc,
            entry.body_crc,
            len(entry.body),
        )
        assert header == bytes(entry.header)
        files[entry.pos // 1024][entry.pos % 1024 : entry.pos % 1024 + entry.size] = header + bytes(
            entry.body
        )
    files[0][1016:] = bytes.fromhex("ffffffff00000008")
    store.close()
    for number, content in enumerate(files):
        name = f"{number * 1024:020d}"
        assert (
            bytes(content)
            == (GOLDEN / "data" / name).read_bytes()
            == (root / "data" / name).read_bytes()
        )
    name = f"{0:020d}"
    assert (root / "index" / name).read_bytes() == (GOLDEN / "index" / name).read_bytes()


def test_golden_files_of_dledger_are_continued_with_checksums(kit, golden):
    """What follows is verified; what DLedger wrote stays as it is."""
    store = kit.open(RealDisk(), BackgroundState.THREAD, **golden)
    more = kit.fill(store, [200, 300])
    store = kit.reopen(store, RealDisk(), BackgroundState.THREAD, **golden)
    entries = kit.all(store)
    assert [entry.verified for entry in entries] == [False] * 6 + [True] * 2
    assert kit.bytes_of(entries[6:]) == kit.bytes_of(more)
    store.close()
    report = verify_store(golden["directory"])
    assert report["ok"]
    assert (report["entries"], report["unverified_entries"]) == (8, 6)


def test_golden_files_of_dledger_opened_with_another_size_are_left_alone(kit, golden):
    for wrong, says in [
        ({"segment_bytes": 4096}, "set segment_bytes=1024"),
        ({"segment_bytes": 512}, "=1024"),
        ({"index_file_bytes": 320}, "set index_file_bytes=256"),
    ]:
        kit.refuses(RealDisk(), ConfigError, says, **{**golden, **wrong})
    kit.open(RealDisk(), **golden).close()


def test_currterm_that_lost_its_term_gives_no_second_vote(kit, golden):
    """DLedger can lose the file between its delete and its rename; then the log's term counts and
    no vote is left."""
    (golden["directory"] / "currterm").write_text("voteLeader=\ncurrTerm=-1\n")
    for _ in range(2):
        store = kit.open(RealDisk(), **golden)
        assert (store.hard_state.term, store.hard_state.voted_for) == (0, "n0")
        store.close()


def test_first_entry_of_a_retained_log_is_checked_too(kit, disk):
    """The chain in front of it is remembered when the files before it go."""
    store = kit.open(disk, retention_bytes=2048)
    entries = kit.fill(store, [400] * 9)
    begin = store.retain(Index(8), 0, 0)
    store.close()
    for pos in range(entries[begin].pos, entries[begin].end_pos):
        kit.flip(disk, pos, mask=0x04)
        problems = verify_store(kit.root, disk)["problems"]
        kit.flip(disk, pos, mask=0x04)
        assert begin in [problem["index"] for problem in problems], pos
    assert verify_store(kit.root, disk)["begin_index"] == begin


@pytest.mark.parametrize("beyond", [0, 20], ids=["behind its last entry", "in zeros"])
def test_verify_says_where_a_file_that_was_cut_short_ends(kit, disk, beyond, store):
    """Opening makes it as long as it was; until then its missing zeros are no sound end of the
    log."""
    end = kit.fill(store, [200] * 3)[-1].end_pos
    store.close()
    inode = disk.names[kit.data()]
    del inode.written[end + beyond :], inode.durable[end + beyond :]
    reasons = {
        (problem["pos"], problem["reason"]) for problem in verify_store(kit.root, disk)["problems"]
    }
    assert reasons == {
        (0, f"has {end + beyond} bytes where the largest file has {kit.segment}"),
        (end, "behind the last entry: the file ends here"),
    }
