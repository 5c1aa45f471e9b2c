"""Stores in each of their forms are found and read whole, or cut into ranges, from a disk or a
URL."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import ConfigError, PathError
from dledger.rocketmq.columns.commit_log import Wanted
from dledger.rocketmq.files.layout import Store, open_store
from dledger.rocketmq.files.ranges import cut, first_stored, plan_store, read_range
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.files.tail import begins, ends
from tests.rocketmq.files.store_maker import GOLDEN, Log, some, upgraded


def opened(url: Path | str, layout: str = "rocketmq", **options: Any) -> Store:
    return open_store(Storage.of(str(url), options), layout)


def read(
    store: Store, most: int = 1 << 40, column: str = "body", **plan: Any
) -> tuple[list[Any], list[tuple[int, int]]]:
    """A column of all rows, and all damage; every range travels as Spark would send it."""
    made = plan_store(store, **plan)
    rows: list[Any] = []
    damage = [(piece.start, piece.end) for piece in made.faults]
    for one in cut(made.ranges, most):
        storage, layout, sent = pickle.loads(pickle.dumps((store.storage, store.layout, one)))
        for batch in read_range(storage, layout, sent, (column,), plan.get("wanted", Wanted())):
            rows += batch.rows.column(0).to_pylist() if batch.rows else []
            damage += [(piece.start, piece.end) for piece in batch.damage]
    return rows, damage


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("most", [1 << 40, 700, 4096])
def test_a_store_of_either_form_is_read_whole_however_it_is_cut(
    tmp_path: Path, entries: bool, most: int
) -> None:
    log = Log(tmp_path / ("dledger-n0/data" if entries else "commitlog"), 4096, entries=entries)
    messages = some(100)
    places = log.append(messages)
    store = opened(tmp_path)
    assert [form.name for form in store.forms] == ["dledger" if entries else "commitlog"]
    assert read(store, most) == ([m.body for m in messages], [])
    assert read(store, most, "physical_offset")[0] == places


def test_an_upgraded_store_is_read_over_the_border_of_its_two_logs(tmp_path: Path) -> None:
    plain, ledger = upgraded(tmp_path)
    store = opened(tmp_path)
    assert [(form.name, form.begin) for form in store.forms] == [
        ("commitlog", 0),
        ("dledger", plain.end),
    ]
    rows, damage = read(store, 1000)
    assert rows == [m.body for m in some(100)]
    assert not damage
    assert ledger.end > plain.end


def test_stores_of_rocketmq_and_dledger_are_read_in_all_three_forms(tmp_path: Path) -> None:
    for folder, name, file in (
        ("commitlog", 0, "old_commitlog.bin"),
        ("dledger-n0/data", 65_536, "dledger_data_after_migration.bin"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        data = (GOLDEN / "rocketmq" / file).read_bytes()
        (tmp_path / folder / f"{name:020d}").write_bytes(data.ljust(65_536, b"\0"))
    both = read(opened(tmp_path), column="topic")
    assert (len(both[0]), both[1]) == (7, [])
    parts = [
        read(opened(tmp_path / folder), column="topic")[0] for folder in ("commitlog", "dledger-n0")
    ]
    assert parts[0] + parts[1] == both[0]
    assert read(opened(tmp_path / "dledger-n0" / "data"), column="topic")[0] == parts[1]
    indexes, damage = read(opened(GOLDEN / "dledger_clean_n0", "dledger"), column="entry_index")
    assert (indexes, damage) == (list(range(6)), [])


def test_entries_of_a_dledger_node_have_their_bodies_as_they_are(tmp_path: Path) -> None:
    log = Log(tmp_path / "data", 2048, entries=True)
    bodies = [bytes([n]) * (n * 7 % 90) for n in range(60)]
    places = [log.body(body, 1 + n // 20) for n, body in enumerate(bodies)]
    for url in (tmp_path, tmp_path / "data"):
        assert read(opened(url, "dledger"), 900) == (bodies, [])
    assert read(opened(tmp_path, "dledger"), 900, "position")[0] == places
    assert read(opened(tmp_path, "dledger"), 900, "term")[0] == [1 + n // 20 for n in range(60)]


def test_a_store_at_an_fsspec_url_is_read_like_one_on_a_disk(tmp_path: Path) -> None:
    import fsspec

    upgraded(tmp_path)
    memory = fsspec.filesystem("memory")
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            memory.pipe_file(f"/shop/{path.relative_to(tmp_path)}", path.read_bytes())
    try:
        store = opened("memory://shop")
        assert read(store, 1000) == ([m.body for m in some(100)], [])
        assert [form.files for form in store.forms] == [
            form.files for form in opened(tmp_path).forms
        ]
        with pytest.raises(PathError, match="memory://shop/nothing does not exist"):
            opened("memory://shop/nothing")
    finally:
        memory.rm("/shop", recursive=True)


def test_a_file_that_vanishes_while_a_folder_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLedger does so each three seconds with its checkpoint.tmp."""
    for name in ("checkpoint", "checkpoint.tmp"):
        (tmp_path / name).write_text("endIndex=1")

    scan = os.scandir

    def scandir(path: str) -> Any:
        with scan(path) as found:
            entries = list(found)
        (tmp_path / "checkpoint.tmp").unlink()
        return contextlib.nullcontext(entries)

    storage = Storage.of(str(tmp_path), {})
    monkeypatch.setattr("dledger.rocketmq.files.storage.os.scandir", scandir)
    listing = storage.list()
    assert listing is not None
    assert listing.files == {"checkpoint": 10}


def test_a_file_that_vanishes_before_it_is_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage.of(str(tmp_path), {})
    monkeypatch.setattr(Storage, "size", lambda self, path: 32)
    assert storage.find("checkpoint", 100) is None
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(PathError, match="checkpoint cannot be read"):
        storage.find("checkpoint", 100)


def test_local_urls_and_options_that_are_none_of_theirs(tmp_path: Path) -> None:
    upgraded(tmp_path)
    assert len(read(opened(f"file://{tmp_path}"))[0]) == 100
    with pytest.raises(ConfigError, match="'storageOptions' is for URLs"):
        opened(tmp_path, anon=True)
    with pytest.raises(PathError, match="cannot be reached"):
        opened("nosuch://bucket/store")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "does not exist; name the root of a RocketMQ store"),
        (lambda root: root.write_text(""), "is a file; name the root"),
        (lambda root: root.mkdir(), "no log files in"),
        (
            lambda root: [(root / f"dledger-n{n}" / "data").mkdir(parents=True) for n in (0, 1)],
            "several nodes.*dledger-n0, dledger-n1. Name one of them",
        ),
    ],
)
def test_what_is_no_store_says_what_to_name(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "store")
    with pytest.raises(PathError, match=message):
        opened(tmp_path / "store")


def test_two_logs_of_which_none_follows_the_other_are_refused(tmp_path: Path) -> None:
    Log(tmp_path / "commitlog", 4096).append(some(50))
    Log(tmp_path / "dledger-n0" / "data", 4096, 4096, entries=True).append(some(5))
    with pytest.raises(PathError, match=r"none goes on where the other one ends.*/commitlog"):
        opened(tmp_path)
    assert len(read(opened(tmp_path / "commitlog"))[0]) == 50


def test_preallocated_files_do_not_end_the_file_that_is_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    log.append(some(10))
    (tmp_path / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    (tmp_path / "commitlog" / f"{8192:020d}").write_bytes(bytes(4096))
    store = opened(tmp_path)
    assert len(store.forms[0].files) == 1
    assert read(store, 500) == ([m.body for m in some(10)], [])


def test_preallocated_file_of_a_plain_broker_does_not_block_its_upgrade(tmp_path: Path) -> None:
    plain, _ = upgraded(tmp_path)
    (tmp_path / "commitlog" / f"{plain.end:020d}").write_bytes(bytes(4096))
    assert read(opened(tmp_path), 1000) == ([m.body for m in some(100)], [])


@pytest.mark.parametrize("folder", ["commitlog", "dledger-n0/data"])
def test_a_store_without_a_message_yet_is_empty(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / f"{0:020d}").write_bytes(bytes(4096))
    assert read(opened(tmp_path), 1000) == ([], [])


def test_names_that_are_no_offsets_are_no_log_files(tmp_path: Path) -> None:
    Log(tmp_path / "commitlog", 4096).append(some(5))
    for name in ("9" * 20, "0" * 19 + "x", "0" * 21, "٠" * 20, ".lock"):
        (tmp_path / "commitlog" / name).write_bytes(b"x" * 4096)
    assert len(read(opened(tmp_path))[0]) == 5


def test_an_error_of_a_urls_file_system_names_the_file_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no such key")

    monkeypatch.setattr(MemoryFileSystem, "ls", fails)
    storage = Storage.of("memory://shop/store", {"token": "secret"})
    with pytest.raises(PathError, match="memory://shop/store cannot be read: no such key"):
        storage.list()
    assert "secret" not in repr(storage)


def test_a_missing_file_a_cut_one_and_one_that_is_too_long_are_damage(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    log.append(some(120))
    assert log.end > 5 * 4096
    log.path(4096).unlink()
    with log.path(3 * 4096).open("r+b") as file:
        file.truncate(2000)
    with log.path(4 * 4096).open("ab") as file:
        file.write(b"x" * 100)
    rows, damage = read(opened(tmp_path), 1000)
    assert (4096, 8192) in damage
    assert (5 * 4096, 5 * 4096 + 100) in damage
    assert any(start <= 3 * 4096 + 2000 and end == 4 * 4096 for start, end in damage)
    assert set(rows) < {m.body for m in some(120)}
    assert len(rows) > 70


def test_two_files_with_one_missing_between_have_the_size_that_they_have(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    log.append(some(50))
    log.path(4096).unlink()
    rows, damage = read(opened(tmp_path), 1000)
    assert damage == [(4096, 8192)]
    assert len(rows) > 20


def test_a_copy_without_the_zeros_at_its_ends_is_whole(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    log.append(some(60))
    for path in log.folder.iterdir():
        path.write_bytes(path.read_bytes().rstrip(b"\0"))
    assert read(opened(tmp_path), 1000) == ([m.body for m in some(60)], [])


def test_a_message_that_was_never_finished_at_the_logs_end_is_no_damage(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    places = log.append(some(10))
    with log.path(0).open("r+b") as file:
        file.seek(places[-1] + 60)
        file.write(bytes(300))
    store = opened(tmp_path)
    assert read(store) == ([m.body for m in some(9)], [])
    (one,) = plan_store(store).ranges
    tails = [b.tail for b in read_range(store.storage, "rocketmq", one) if b.tail]
    assert [t.start for t in tails] == [places[-1]]


def test_offsets_bound_what_is_read(tmp_path: Path) -> None:
    plain, _ = upgraded(tmp_path)
    store = opened(tmp_path)
    places = read(store, column="physical_offset")[0]
    for begin, stop in (
        (places[10], places[60]),
        (places[10] + 1, places[60] + 1),
        (0, plain.end),
        (plain.end, None),
    ):
        got = read(store, 1000, "physical_offset", begin=begin, stop=stop)[0]
        # an entry begins 48 bytes before its message
        starts = [p - 48 if p > plain.end else p for p in places]
        assert got == [
            p
            for p, s in zip(places, starts, strict=True)
            if begin <= s and (stop is None or s < stop)
        ]


def test_times_leave_out_whole_files_and_messages_exactly(tmp_path: Path) -> None:
    log = Log(tmp_path / "commitlog", 4096)
    # more than a day between
    messages = [m for n in range(6) for m in some(10, first=100_000 * n)]
    log.append(messages)
    store = opened(tmp_path)
    first, last = messages[25].store_timestamp, messages[31].store_timestamp
    wanted = Wanted(stored_from=first, stored_before=last)
    assert read(store, wanted=wanted)[0] == [m.body for m in messages[25:31]]
    assert len(plan_store(store, wanted=wanted).ranges) < len(plan_store(store).ranges)
    times = [first_stored(store.storage, file) for file in store.forms[0].files]
    assert times == sorted(times)  # type: ignore[type-var]
    assert times[0] == messages[0].store_timestamp


@pytest.mark.parametrize("ahead", [3_599_000, -3_599_000])
def test_clock_that_is_off_by_less_than_an_hour_leaves_out_no_file(
    tmp_path: Path, ahead: int
) -> None:
    """The messages on both sides of a file's border were stored by a clock that was wrong."""
    log = Log(tmp_path / "commitlog", 4096)
    messages = some(60)
    probe = Log(tmp_path / "probe", 4096)
    firsts = {
        place // 4096: n for n, place in reversed(list(enumerate(probe.append(messages))))
    }.values()
    wrong = {
        n: replace(messages[n], store_timestamp=messages[n].store_timestamp + ahead) for n in firsts
    }
    log.append([wrong.get(n, message) for n, message in enumerate(messages)])
    wanted = Wanted(
        stored_from=messages[0].store_timestamp, stored_before=messages[-1].store_timestamp + 1
    )
    assert read(opened(tmp_path), wanted=wanted)[0] == [
        m.body for n, m in enumerate(messages) if n not in wrong
    ]


def test_uncommitted_tail_is_hidden_until_the_committed_entry_arrives(tmp_path: Path) -> None:
    """A follower may hear of a commit before it has the entry; until then its own tail may still be
    given up."""
    log = Log(tmp_path / "data", 4096, entries=True)
    log.append(some(20))
    log.commit(30)
    store = opened(tmp_path, "dledger")
    assert ends(store, begins(store)) == begins(store)
    log.append(some(20, first=20))
    log.commit(30)
    store = opened(tmp_path, "dledger")
    assert ends(store, begins(store)) == {"dledger": struct.unpack_from(">q", log.units[31], 4)[0]}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("layout", ["rocketmq", "dledger"])
def test_entries_that_a_follower_gave_up_are_not_shown_again(
    tmp_path: Path, committed: bool, layout: str
) -> None:
    """It moves its end back and writes over the first of them; the bytes of the others stay."""
    log = Log(tmp_path / "dledger-n0" / "data", 4096, entries=True)
    messages = some(60)
    log.append(messages[:30], term=1)
    end, index = log.end, log.index
    log.append(messages[30:], term=2)
    log.end, log.index, log.units = end, index, log.units[:index]
    instead = some(3, first=900)
    log.append(instead, term=3)
    if committed:
        log.commit(index - 1)
    rows, damage = read(opened(tmp_path / "dledger-n0", layout), 1000)
    if layout == "rocketmq":
        assert rows == [m.body for m in messages[:30] + instead]
    assert len(rows) == 33
    assert not damage


def test_the_search_for_the_logs_end_begins_at_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "data", 4096, entries=True)
    log.append(some(200))
    log.commit(150)
    store = opened(tmp_path, "dledger")
    offsets: list[int] = []
    read_exactly = Storage.read_exactly

    def noted(storage: Storage, path: str, start: int, offset: int, length: int) -> bytes:
        offsets.append(offset)
        return read_exactly(storage, path, start, offset, length)

    monkeypatch.setattr(Storage, "read_exactly", noted)
    plan_store(store)
    assert min(offsets) == struct.unpack_from(">q", log.units[150], 4)[0]
    assert max(offsets) > min(offsets)
