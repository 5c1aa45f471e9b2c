"""``dledger rocketmq`` over stores that RocketMQ wrote, and some made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import ConfigError, FormatError, PathError
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.index_file import IndexFile
from tests.cli.commands import carried_out, flip

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq"
IN_SECOND = 201 + 100
"""Where a byte of the second message lies in the log."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A plain commit log with the log of DLedger mode behind it, as an upgraded broker leaves
    them."""
    for folder, name, golden, size in (
        ("commitlog", "0" * 20, "old_commitlog.bin", 65_536),
        ("dledger-n0/data", f"{65_536:020d}", "dledger_data_after_migration.bin", 65_536),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_bytes((GOLDEN / golden).read_bytes().ljust(size, b"\0"))
    return tmp_path


def verify(root: Path) -> tuple[int, dict[str, Any]]:
    done = carried_out(f"rocketmq verify {root}")
    return done.exit_code, json.loads(done.output)


def test_verify_of_an_upgraded_store_counts_the_messages_of_both_logs(store: Path) -> None:
    code, report = verify(store)
    assert (report["ok"], report["messages"], len(report["files"]), code) == (True, 7, 2, 0)


def test_verify_names_file_and_bytes_of_damage_and_changes_nothing(store: Path) -> None:
    path = store / "commitlog" / ("0" * 20)
    flip(path, IN_SECOND)
    data = path.read_bytes()
    code, report = verify(store)
    assert (report["messages"], code) == (6, 1)
    ((damage),) = report["damage"]
    assert (damage["file"], damage["start"], damage["end"]) == (str(path), 201, 402)
    assert path.read_bytes() == data


def test_verify_of_what_is_no_store_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes").write_text("")
    with pytest.raises(PathError, match="no commit log files"):
        verify(tmp_path)


def search(root: Path, words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the JSON lines, and what was told beside."""
    done = carried_out(f"rocketmq search {root} {words}")
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def index(root: Path, messages: list[tuple[str, str, int]], slots: int = 10) -> None:
    """An index file with these topics, keys and places."""
    made = IndexFile.empty(slots, 100)
    for topic, key, place in messages:
        made.put(topic, key, place, 1_790_000_000_000)
    (root / "index").mkdir()
    (root / "index" / "20260101000000000").write_bytes(made.encode())


def test_inspect_shows_both_logs_of_an_upgraded_store(store: Path) -> None:
    (store / "abort").touch()
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_bytes((GOLDEN / "topics.json").read_bytes())
    (store / "checkpoint").write_bytes((GOLDEN / "checkpoint.bin").read_bytes().ljust(4096, b"\0"))
    report = json.loads(carried_out(f"rocketmq inspect {store}").output)
    logs = [(log["log"], log["begin"], log["file_bytes"]) for log in report["logs"]]
    assert logs == [("commitlog", 0, 65_536), ("dledger", 65_536, 65_536)]
    assert report["divided_offset"] == 65_536
    assert report["abort_file"] is True
    assert report["topics"]["TopicA"] == 4
    assert report["checkpoint"]["physic_msg_timestamp"] > 0
    assert report["logs"][0]["files"][0]["first_stored"] > 1_600_000_000_000


def test_inspect_of_a_dledger_node_shows_what_is_committed() -> None:
    node = GOLDEN.parent / "dledger_clean_n0"
    done = carried_out(f"rocketmq inspect {node} --layout dledger")
    (log,) = json.loads(done.output)["logs"]
    assert (log["committed_index"], len(log["files"])) == (5, 2)
    assert log["committed_end"] > log["files"][0]["bytes"]


@pytest.mark.parametrize("indexed", [0, 20, 60])
@pytest.mark.parametrize("upgraded", [True, False])
def test_search_by_key_finds_what_the_index_has_and_what_it_has_not_yet(
    tmp_path: Path, stores: Any, indexed: int, upgraded: bool
) -> None:
    if upgraded:
        stores.upgraded(tmp_path)
    else:
        stores.Log(tmp_path / "commitlog", 4096).append(stores.some(100))
    rows = [row for key in range(100) for row in search(tmp_path, f"--key k{key}")[1]]
    assert [row["keys"] for row in rows] == [f"k{n}" for n in range(100)]
    if indexed:
        some = [(row["topic"], row["keys"], row["physical_offset"]) for row in rows[20:indexed]]
        index(tmp_path, some or [("orders", "other", rows[30]["physical_offset"])])
    for n in (0, 25, 59, 99):
        words = f"--topic {rows[n]['topic']} --key k{n} --index-slots 10"
        assert search(tmp_path, words)[:2] == (0, [rows[n]])
    assert search(tmp_path, "--topic nothing --key k3 --index-slots 10")[:2] == (1, [])
    if indexed:
        with pytest.raises(FormatError, match="maxHashSlotNum"):
            search(tmp_path, "--topic orders --key k3")


def test_search_by_index_opens_only_files_with_the_message_or_the_end(
    tmp_path: Path, stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(100))
    topics = ("orders", "payments")
    index(tmp_path, [(topics[n % 2], f"k{n}", place) for n, place in enumerate(places[:99])])
    read: list[str] = []
    plain = Storage.read

    def noted(storage: Storage, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if length is None or length > 64:
            read.append(path)
        return plain(storage, path, offset, length)

    monkeypatch.setattr(Storage, "read", noted)
    _, found, _ = search(tmp_path, "--topic orders --key k40 --index-slots 10")
    assert [row["keys"] for row in found] == ["k40"]
    opened = (places[0], places[40], places[98], places[99])
    wanted = {f"commitlog/{place - place % 4096:020d}" for place in opened}
    assert {path for path in read if "commitlog" in path} == wanted


def test_search_by_id_topic_and_time(tmp_path: Path, stores: Any) -> None:
    stores.upgraded(tmp_path)
    _, rows, _ = search(tmp_path, "--from 0 -n 1000")
    assert len(rows) == 100
    for row in (rows[3], rows[70]):
        assert search(tmp_path, f"--id {row['message_id'].lower()}")[1] == [row]
    assert search(tmp_path, f"--id {rows[3]['message_id'][:-1]}F")[0] == 1
    assert search(tmp_path, "--topic orders -n 3")[1] == rows[0:6:2]
    first, last = rows[10]["store_timestamp"], rows[20]["store_timestamp"]
    assert search(tmp_path, f"--from {first} --to {last}")[1] == rows[10:20]
    assert rows[0]["body"] == "000000".ljust(100, ".")


def test_search_tells_of_damage_and_goes_on(store: Path) -> None:
    flip(store / "commitlog" / ("0" * 20), IN_SECOND)
    code, rows, told = search(store, "--from 0")
    assert (code, len(rows)) == (0, 6)
    assert "bytes 201 to 402 are damaged" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "what to look for"),
        ("--id a --key b", "both name a message"),
        ("--from yesterday", "write milliseconds"),
        ("--from 2024-03-10T07:30:00", "write milliseconds"),
        ("--key k --storage-options x", "no JSON object"),
    ],
)
def test_search_for_what_cannot_be_is_refused(store: Path, words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(store, words)
