"""The disk of ``make counted-bench`` counts what is called durable too soon; a little of that load
finds nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.protocol.messages.entry import HardState, LogEnd, stamp
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import RealFile
from dledger.storage.file_store import FileStore
from dledger.types import NO_INDEX, Index, Term
from tests.storage.conftest import SEGMENT, Kit
from verification.counted import campaign
from verification.counted.__main__ import main
from verification.counted.disk import COUNTS, CountingDisk


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def store(disk: CountingDisk, tmp_path: Path) -> FileStore:
    store = Kit().open(disk, BackgroundState.MANUAL, directory=tmp_path)
    store.save_hard_state(HardState(Term(1)))
    return store


def append(store: FileStore, sizes: list[int]) -> None:
    for size in sizes:
        store.append([stamp(store.end, Term(1), 1, b"x" * size, SEGMENT)])


def uncovered(disk: CountingDisk) -> tuple[int, int]:
    return disk.counts["uncovered moves"], disk.counts["uncovered entries"]


def test_what_is_synced_before_it_is_called_durable_is_a_move_and_no_more(
    disk: CountingDisk, store: FileStore
) -> None:
    for sizes in ([60, 60], [900], [100]):
        append(store, sizes)
        store.sync()
    store.truncate(Index(1))
    append(store, [300])
    store.sync()
    store.close()
    assert disk.counts["moves"] == 5, "the index once"
    assert uncovered(disk) == (0, 0)
    assert disk.counts["syncs"] >= 5


def test_uncovered_entries_are_counted_across_the_end_of_a_file(
    disk: CountingDisk, store: FileStore
) -> None:
    """Entries that are called durable before their sync are uncovered."""
    append(store, [60, 60])
    store.sync()
    append(store, [60, 700, 500, 60])
    assert store.end.end_pos > SEGMENT
    store._marks.raise_to(store.end, NO_INDEX)
    assert uncovered(disk) == (1, 4)
    with store._lock:
        store._index.write()
    store._marks.settle(store.end)
    assert uncovered(disk) == (2, 4 + 6)


def test_a_write_that_ends_behind_the_begin_of_a_sync_is_not_covered_by_it(
    disk: CountingDisk, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = stamp(LogEnd(), Term(1), 1, b"x" * 60, SEGMENT)
    handle = store._data.file(0)
    write = handle._through_cache  # type: ignore[attr-defined]

    def slow_write(buffers: list[bytes], offset: int) -> None:
        write(buffers, offset)
        handle.fdatasync()

    monkeypatch.setattr(
        RealFile, "_through_cache", lambda _, buffers, offset: slow_write(buffers, offset)
    )
    handle.pwritev([entry.header, entry.body], 0)
    store._marks.raise_to(LogEnd.after(entry), NO_INDEX)
    assert uncovered(disk) == (1, 1)


def test_write_during_a_sync_is_covered_before_it_is_called_durable(
    disk: CountingDisk, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `make counted-bench` finds now and then where a file is marked only before it is
    written."""
    write = RealFile._through_cache
    syncs = [store.sync]

    def slow_write(file: RealFile, buffers: list[bytes], offset: int) -> None:
        if syncs:
            thread = threading.Thread(target=syncs.pop())
            thread.start()
            thread.join()
        write(file, buffers, offset)

    monkeypatch.setattr(RealFile, "_through_cache", slow_write)
    append(store, [60])
    assert store.sync().index == 0
    assert uncovered(disk) == (0, 0)
    store.close()


COUNTED = dict(zip(COUNTS, (100, 90, 0, 0), strict=True))


def test_uncovered_move_is_red_and_so_is_a_load_without_moves() -> None:
    rows = [
        {"bytes": 100, "in_flight": 1, "appends_per_s": 10.0},
        {"bytes": 100, "in_flight": 8, "appends_per_s": 20.0},
    ]
    found = campaign.judged(COUNTED, rows, 10, 600, [])
    assert found["ok"]
    assert found["figures"]["appends a second"] == 15
    found = campaign.judged(
        {**COUNTED, "uncovered moves": 2, "uncovered entries": 7}, rows, 10, 600, []
    )
    assert not found["ok"]
    assert "2 of 90 moves" in found["problems"][0]
    assert "7 entries" in found["problems"][0]
    assert not campaign.judged(dict.fromkeys(COUNTS, 0), rows, 10, 600, [])["ok"]


def test_no_minutes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="more than none"):
        campaign.run(tmp_path, 0, print)
    assert main(["--minutes", "0"]) == 2
    assert "more than none" in capsys.readouterr().out


@pytest.mark.cluster
def test_under_dledger_bench_nothing_is_durable_before_a_sync_covers_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "RUN_S", 0.2)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["--minutes", "0.03", "--json", str(tmp_path / "counted.json")]) == 0, (
        capsys.readouterr().out
    )
    found = json.loads((tmp_path / "counted.json").read_text())
    assert found["problems"] == []
    assert found["figures"]["moves"] > 0
    assert found["figures"]["uncovered moves"] == 0
    assert len(found["table"]) == 1 + len(campaign.SIZES) * len(campaign.WINDOWS)
