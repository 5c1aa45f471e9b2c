"""The fault that changes bytes hits what it means to hit, and `dledger verify` sees it."""

from __future__ import annotations

from pathlib import Path

from dledger.config import GroupConfig, NodeConfig
from dledger.protocol.messages.entry import HardState, stamp
from dledger.storage.offline.dump import dump_store
from dledger.storage.offline.verify import verify_store
from dledger.storage.opening import open_store
from dledger.types import Index, NodeId, Term
from verification.chaos.ending import compare_stores
from verification.chaos.faults.damage import entries_of, flip

SEGMENT = 64 << 10


def make_store(directory: Path, name: str, count: int) -> Path:
    group = GroupConfig(
        segment_bytes=SEGMENT,
        index_file_bytes=32 << 10,
        max_body_bytes=16 << 10,
        members=(NodeId("n0"), NodeId("n1")),
    )
    path = directory / name / "disk" / "store"
    store = open_store(group, NodeConfig(node_id=NodeId(name), directory=path))
    store.save_hard_state(HardState(Term(0), None, Index(-1)))
    for number in range(count):
        store.append([stamp(store.end, Term(0), 1, f"{number}".encode() * 900, SEGMENT)])
    store.sync()
    store.close()
    return path


def test_entries_are_found_in_all_files_up_to_the_last_one_wanted(tmp_path: Path) -> None:
    path = make_store(tmp_path, "n0", 100)
    assert len(list((path / "data").iterdir())) > 2
    for last in (0, 37, 99, 500):
        found = [(e["index"], e["pos"] % SEGMENT, e["size"]) for e in dump_store(path)]
        expected = [place for place in found if place[0] <= last]
        assert [(place.index, place.at, place.size) for place in entries_of(path, last)] == expected


def test_a_flipped_byte_of_any_part_of_an_entry_is_found_in_that_entry(tmp_path: Path) -> None:
    path = make_store(tmp_path, "n0", 100)
    place = entries_of(path, 99)[40]
    for at in (0, 5, 30, 47, 48, place.size - 1):
        assert verify_store(path)["ok"]
        flip(place, at)
        assert verify_store(path)["problems"][0]["index"] == 40
        flip(place, at)


def test_stores_are_compared_up_to_what_is_committed(tmp_path: Path) -> None:
    """What is behind may differ: it was never acknowledged."""
    stores = [make_store(tmp_path, "n0", 100), make_store(tmp_path, "n1", 80)]
    end = next(entry for entry in dump_store(stores[0]) if entry["index"] == 79)
    assert compare_stores(stores, 79) == (end["pos"] + end["size"], [])
    assert any("n1: ends at 79" in text for text in compare_stores(stores, 80)[1])
    flip(entries_of(stores[1], 79)[60], 100)
    _, problems = compare_stores(stores, 79)
    assert any("n1: dledger verify finds" in text for text in problems)
    assert any("committed logs differ" in text for text in problems)
