"""Crash states of the store's scripts: a share of what ``make crash-points`` tries, and that it
sees planted bugs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from dledger.storage import file_store
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.meta import members as meta_members
from dledger.storage.meta.members import MemberFile
from dledger.storage.meta.recovery_point import RecoveryPoints
from dledger.storage.meta.slots import SlotFile, pack_slot
from dledger.storage.meta.tables import FileTable
from dledger.storage.recovery import open_files as open_parts
from dledger.storage.recovery import recovery
from tests.verification.watching import shown
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states import campaign
from verification.disk_states.__main__ import main
from verification.disk_states.campaign import crash_campaign
from verification.disk_states.crash import Sweep, record
from verification.disk_states.model import Model
from verification.disk_states.recording import RecordingDisk
from verification.disk_states.scenarios import ROOT, SCENARIOS

STATES = 1000
EVERY = 3
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def test_B4_B5_B9_B13_every_crash_state_starts_by_itself_without_loss(capsys):
    result = shown(capsys, lambda out: crash_campaign(STATES, 1, out, EVERY))
    assert result["figures"]["distinct states"] >= STATES
    assert {row[0] for row in result["table"][1:]} == set(BY_NAME)
    assert all(row[4] > 30 for row in result["table"][1:])


@pytest.mark.parametrize("name", ["members", "group version"])
def test_every_crash_state_of_members_and_version_has_the_old_or_new_one(name):
    """Also of the starts behind a kill between a write to the record and the sync of it."""
    tally = Sweep(BY_NAME[name], 1 << 30).run_in_full()
    assert tally.findings == []
    assert len(tally.recordings) > 4
    assert [recording.left_out for recording in tally.recordings] == [0] * len(tally.recordings)


def test_command_writes_its_result_and_exits_by_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(campaign, "SCENARIOS", (BY_NAME["votes"],))
    path = tmp_path / "crash.json"
    assert main(["crash", "--states", "50", "--jobs", "1", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    figures = result["figures"]
    assert result["campaign"] == "crash states"
    assert figures["lost"] == figures["not started"] == 0
    assert f"{figures['distinct states']} distinct ones" in capsys.readouterr().out
    monkeypatch.setattr(SlotFile, "settle", lambda self: None)
    assert main(["crash", "--states", "50", "--jobs", "1"]) == 1


def test_same_script_gives_the_same_states_again():
    """But for the store's incarnation, which it draws by itself, everything is the same each
    time."""
    ops = [[str(op) for op in record(BY_NAME["rolls"]).ops] for _ in range(2)]
    assert ops[0] == ops[1]
    counts = [Sweep(BY_NAME["votes"], 200).run().as_dict() for _ in range(2)]
    assert counts[0] == counts[1]


# --- planted bugs: each safety rule taken out is seen ---------------------------------------------


def directory_is_never_synced(directory: Path, monkeypatch) -> None:
    real = RecordingDisk.fsync_dir
    monkeypatch.setattr(
        RecordingDisk,
        "fsync_dir",
        lambda disk, path: None if path == directory else real(disk, path),
    )


def names_above_are_not_synced(monkeypatch):
    monkeypatch.setattr(
        open_parts, "sync_names_above", lambda disk, root, _: disk.fsync_dir(root.parent)
    )


def records_are_not_synced(monkeypatch):
    def settle(slots):
        slots._next = 1 - slots._next

    monkeypatch.setattr(SlotFile, "settle", settle)


def records_are_written_over_the_only_good_copy(monkeypatch):
    def settle(slots):
        slots._file.fdatasync()

    monkeypatch.setattr(SlotFile, "settle", settle)


def hard_state_read_at_start_is_not_made_durable(monkeypatch):
    real = SlotFile.write_both
    monkeypatch.setattr(
        SlotFile,
        "write_both",
        lambda slots, payload: None if payload == slots.payload else real(slots, payload),
    )


def data_is_not_synced(monkeypatch):
    real = SegmentFiles.sync
    monkeypatch.setattr(
        SegmentFiles, "sync", lambda files: None if files.directory.name == "data" else real(files)
    )


def mark_is_raised_before_the_sync(monkeypatch):
    def sync(store):
        end = store._view.end
        store._marks.raise_to(end, store._commit)
        store._data.sync()
        return end.position

    monkeypatch.setattr(file_store.FileStore, "sync", sync)


def mark_is_not_lowered_before_a_cut(monkeypatch):
    monkeypatch.setattr(RecoveryPoints, "lower_to", lambda book, end: None)


def files_are_cut_from_the_front(monkeypatch):
    def drop_behind(files, offset):
        for victim in [s for s in files.starts if s > offset]:
            files._drop(victim)

    monkeypatch.setattr(SegmentFiles, "drop_behind", drop_behind)


def expired_files_go_from_the_back(monkeypatch):
    def drop_front(files, offset):
        start = offset - offset % files.file_size
        for victim in [s for s in reversed(files.starts) if s < start]:
            files._drop(victim)

    monkeypatch.setattr(SegmentFiles, "drop_front", drop_front)


def retention_moves_the_begin_too_far(monkeypatch):
    def drop_front(parts, marks, view):
        marks.move_begin(view.begin_index + 1, view.begin_pos, view.begin_chain)
        parts.data.drop_front(view.begin_pos)

    monkeypatch.setattr(file_store, "drop_front", drop_front)


def cut_is_not_synced(monkeypatch):
    def cut(files, offset):
        files.file(offset).truncate(offset % files.file_size)
        files.file(offset).truncate(files.file_size)

    monkeypatch.setattr(SegmentFiles, "cut", cut)


def unsynced_tail_is_taken_as_it_is(monkeypatch):
    """D15: another sync may say that all is well of pages that were never written."""
    monkeypatch.setattr(SegmentFiles, "rewrite", lambda files, start, keep: None)
    monkeypatch.setattr(SegmentFiles, "sync", lambda files: files._dirty.clear())


def lost_pages_are_called_rot(monkeypatch):
    monkeypatch.setattr(recovery, "_lost_pages", lambda *args: False)


def rot_is_called_lost_pages(monkeypatch):
    """The rule of the commit mark: nothing known to be durable is ever cut (D4)."""
    monkeypatch.setattr(recovery, "_lost_pages", lambda *args: True)


def rows_are_not_synced_before_the_snapshot(monkeypatch):
    def write(table):
        if table._file is None and table._waiting:
            table._replace_file(0, 0)
        table.write()

    monkeypatch.setattr(FileTable, "sync", write)


def record_read_at_start_is_not_made_durable(monkeypatch):
    real = MemberFile.__init__

    def init(members, disk, root, **more):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlotFile, "write_both", lambda slots, payload: None)
            real(members, disk, root, **more)

    monkeypatch.setattr(MemberFile, "__init__", init)


def new_record_is_not_synced(monkeypatch):
    def create(disk, path, magic, payload):
        file = disk.open(path, create=True)
        file.pwritev([pack_slot(magic, 1, payload) + pack_slot(magic, 2, payload)], 0)

    monkeypatch.setattr(meta_members, "create_slots", create)


PLANTED = [
    (partial(directory_is_never_synced, ROOT / "data"), "rolls"),
    (partial(directory_is_never_synced, ROOT), "votes"),
    (partial(directory_is_never_synced, ROOT / "snapshot"), "checkpoints"),
    (partial(directory_is_never_synced, ROOT / "tables"), "checkpoints"),
    (names_above_are_not_synced, "votes"),
    (records_are_not_synced, "votes"),
    (records_are_written_over_the_only_good_copy, "votes"),
    (hard_state_read_at_start_is_not_made_durable, "votes"),
    (data_is_not_synced, "group commit"),
    (mark_is_raised_before_the_sync, "group commit"),
    (mark_is_not_lowered_before_a_cut, "truncations"),
    (files_are_cut_from_the_front, "truncation to the start"),
    (cut_is_not_synced, "truncations"),
    (expired_files_go_from_the_back, "retention"),
    (retention_moves_the_begin_too_far, "retention"),
    (unsynced_tail_is_taken_as_it_is, "group commit"),
    (lost_pages_are_called_rot, "group commit, sectors of larger files"),
    (rot_is_called_lost_pages, "rot behind a kill"),
    (rows_are_not_synced_before_the_snapshot, "checkpoints"),
    (records_are_not_synced, "members"),
    (records_are_written_over_the_only_good_copy, "members"),
    (new_record_is_not_synced, "members"),
    (record_read_at_start_is_not_made_durable, "members"),
    (records_are_not_synced, "group version"),
]


@pytest.mark.parametrize(
    ("plant", "scenario"),
    PLANTED,
    ids=lambda of: (
        f"{of.args[0].name} {of.func.__name__}"
        if isinstance(of, partial)
        else getattr(of, "__name__", None)
    ),
)
def test_safety_rule_that_is_taken_out_is_seen(plant, scenario, monkeypatch):
    """By what a crash leaves, not by the disk that looks on while nothing has crashed."""
    monkeypatch.setattr(MemoryDisk, "witness", None)
    plant(monkeypatch)
    tally = Sweep(BY_NAME[scenario], 6000, findings=1).run()
    assert tally.findings, f"{len(tally.seen)} states, and nothing was seen"


def test_names_of_index_files_need_no_sync_because_they_are_rebuilt(monkeypatch):
    """So the rule that would fail here is that of the index: it holds nothing that the data does
    not."""
    directory_is_never_synced(ROOT / "index", monkeypatch)
    tally = Sweep(BY_NAME["rolls"], 100, every=3).run()
    assert tally.findings == []


# --- the model itself -----------------------------------------------------------------------------


PATH = Path("/d/f")


def states_of(*steps) -> set:
    """Those of the model after steps on one file in a directory that is there."""
    disk = RecordingDisk()
    disk.mkdir(PATH.parent)
    disk.fsync_dir(Path("/"))
    for step in steps:
        step(disk)
    model = Model(512)
    for op in disk.ops:
        model.apply(op)
    return {
        tuple(sorted((path.name, content) for path, content in state.files.items()))
        for state in model.states(model.legal(), None)
    }


def written(data: bytes, path: Path = PATH):
    return lambda disk: disk.open(path, create=True).pwritev([data], 0)


def synced(disk) -> None:
    disk.open(PATH).fdatasync()


def named(disk) -> None:
    disk.fsync_dir(PATH.parent)


def test_model_knows_names_apart_from_bytes_and_lengths_apart_from_both():
    write = written(b"xxx")
    assert states_of(write) == {(), (("f", b""),), (("f", b"xxx"),), (("f", b"\0\0\0"),)}
    assert states_of(write, synced) == {(), (("f", b"xxx"),)}
    assert () not in states_of(write, named)


def test_model_tears_between_sectors_and_never_within_one():
    old, new = b"o" * 1024, b"n" * 1024
    torn = {old, new, b"n" * 512 + b"o" * 512, b"o" * 512 + b"n" * 512}
    found = states_of(written(old), synced, named, written(new))
    assert found == {(("f", content),) for content in torn}


def test_model_shows_each_version_of_a_sector_that_was_written_twice():
    def write_twice(disk):
        disk.open(PATH).pwritev([b"ab"], 0)
        disk.open(PATH).pwritev([b"c"], 1)

    assert states_of(written(bytes(4)), synced, named, write_twice) == {
        (("f", content),) for content in (b"\0" * 4, b"ab\0\0", b"ac\0\0")
    }


def test_model_never_brings_back_what_a_synced_cut_took():
    def cut(disk):
        disk.open(PATH).truncate(700)
        disk.open(PATH).truncate(1500)

    steps = (written(b"x" * 1500), synced, named, cut)
    contents = {dict(state)["f"] for state in states_of(*steps)}
    assert b"x" * 1500 in contents
    assert b"x" * 700 + b"\0" * 800 in contents
    assert b"x" * 1024 + b"\0" * 476 in contents, (
        "the zeros behind the cut, in its own sector, are a write like others"
    )
    assert all(content[1024:] in {b"x" * 476, b"\0" * 476, b""} for content in contents)
    assert states_of(*steps, synced) == {(("f", b"x" * 700 + b"\0" * 800),)}


def test_model_renames_as_a_whole_or_not_at_all():
    new = PATH.with_name("f.new")

    def replace(disk):
        disk.open(new).fdatasync()
        disk.rename(new, PATH)

    assert states_of(written(b"old"), synced, named, written(b"new", new), replace) == {
        (("f", b"old"),),
        (("f", b"old"), ("f.new", b"new")),
        (("f", b"new"),),
    }
