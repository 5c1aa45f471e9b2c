"""``dledger rocketmq verify``: queues, index, checkpoints and the sequence of files, beside the
log."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.rocketmq.export.store import LedgerExport
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.topic_configs import TopicConfig
from tests.cli.commands import carried_out, flip

SLOTS = 16
COUNT = 150
TOPICS = ("orders", "payments")


def messages() -> list[Message]:
    return [
        Message(
            TOPICS[n % 2],
            f"{n}".encode() * 9,
            f"KEYS\x01k{n} all\x02TAGS\x01t{n % 3}",
            queue_id=n % 3,
            queue_offset=n // 6,
            store_timestamp=1_790_000_000_000 + 1000 * n,
        )
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several files of everything."""
    root = tmp_path_factory.mktemp("plain")
    with MessageStore(
        root, file_size=8192, units_in_file=20, index_slots=SLOTS, index_units=101
    ) as store:
        for topic in TOPICS:
            store.topics.put(TopicConfig(topic, 3))
        store.put_messages(messages(), stamped=True)
    return root


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a broker in DLedger mode."""
    root = tmp_path_factory.mktemp("ledger")
    store = LedgerExport(root, "n0", topic="orders", begins={0: 0}, file_size=8192, index=False)
    store.put(
        [Message("orders", b"x" * n, queue_offset=n, store_timestamp=n + 1) for n in range(COUNT)]
    )
    store.close()
    os.truncate(root / "dledger-n0" / "index" / ("0" * 20), 1 << 16)
    return root


@pytest.fixture
def store(plain: Path, tmp_path: Path) -> Path:
    """A copy of the plain store, which may be damaged."""
    return shutil.copytree(plain, tmp_path / "store")


def verify(root: Path) -> dict[str, Any]:
    """The report, whose exit code agrees with it."""
    done = carried_out(f"rocketmq verify {root} --index-slots {SLOTS}")
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if report["ok"] else 1)
    return report


def reasons(root: Path) -> list[str]:
    return [problem["reason"] for problem in verify(root)["problems"]]


def files(root: Path, folder: str) -> list[Path]:
    return sorted(path for path in (root / folder).rglob("*") if path.is_file())


def test_whole_stores_are_ok(plain: Path, ledger: Path) -> None:
    for root in (plain, ledger):
        report = verify(root)
        names = ("ok", "messages", "problems", "notes")
        assert [report[name] for name in names] == [True, COUNT, [], []]


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_a_file_of_queues_or_index_that_is_missing_cut_or_empty_is_told(
    store: Path, folder: str
) -> None:
    for path in files(store, folder):
        data = path.read_bytes()
        for damaged in (None, b"", data[:27], data[: len(data) - 20]):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert reasons(store), (path, damaged)
            path.write_bytes(data)
    assert verify(store)["ok"]


UNIT_FIELDS = {"place": 7, "size": 11, "tags": 19}
INDEX_FIELDS = {
    "slot": 40 + 4 * 3 + 3,
    "hash": 40 + 4 * SLOTS + 20 * 9 + 3,
    "place": 40 + 4 * SLOTS + 20 * 9 + 11,
    "previous": 40 + 4 * SLOTS + 20 * 99 + 19,
    "count": 39,
    "used": 35,
    "begin": 23,
    "end": 31,
}


@pytest.mark.parametrize("field", UNIT_FIELDS)
def test_a_changed_unit_of_a_queue_is_told_with_its_message(store: Path, field: str) -> None:
    path = store / "consumequeue" / "orders" / "1" / ("0" * 20)
    flip(path, 20 * 4 + UNIT_FIELDS[field])
    problems = verify(store)["problems"]
    told = [one for one in problems if one["file"] == str(path.parent) and one.get("count") == 1]
    assert any("not in this queue" in one["reason"] and one["offset"] > 0 for one in told), problems


@pytest.mark.parametrize("field", INDEX_FIELDS)
def test_a_changed_field_of_an_index_file_is_told(store: Path, field: str) -> None:
    flip(files(store, "index")[0], INDEX_FIELDS[field])
    assert any("index" in problem["file"] for problem in verify(store)["problems"])


def test_missing_log_files_are_told(store: Path) -> None:
    first, middle, last = files(store, "commitlog")
    for path in (middle, last):
        data = path.read_bytes()
        path.unlink()
        told = reasons(store)
        assert told
        assert any("no file has these bytes" in reason for reason in told) == (path == middle)
        path.write_bytes(data)
    first.unlink()
    assert any("retention has taken" in note for note in verify(store)["notes"])


def test_a_log_file_that_was_cut_is_told_with_its_size(store: Path) -> None:
    for path in files(store, "commitlog"):
        data = path.read_bytes()
        os.truncate(path, 300)
        problems = verify(store)["problems"]
        told = [one for one in problems if "the file has 300 bytes" in one["reason"]]
        assert [(one["file"], one["offset"]) for one in told] == [(str(path), int(path.name) + 300)]
        path.write_bytes(data)


@pytest.mark.parametrize(
    "end", [lambda data: data[:300], lambda data: data[:300].ljust(len(data), b"\0")]
)
def test_a_last_log_file_that_lost_its_end_is_told_with_offset_and_count(
    store: Path, end: Callable[[bytes], bytes]
) -> None:
    path = files(store, "commitlog")[-1]
    whole = verify(store)["files"][-1]["messages"]
    path.write_bytes(end(path.read_bytes()))
    report = verify(store)
    left = report["files"][-1]["messages"]
    told = [one for one in report["problems"] if "queues name messages behind" in one["reason"]]
    assert [(one["file"], one["count"]) for one in told] == [(str(path), whole - left)]
    assert told[0]["offset"] >= int(path.name)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(store / folder)
    assert any("physic_msg_timestamp" in reason for reason in reasons(store))


def test_a_store_without_queues_or_index_whose_checkpoint_had_them_is_told(store: Path) -> None:
    for folder in ("consumequeue", "index"):
        shutil.rmtree(store / folder)
    assert [reason[:9] for reason in reasons(store)] == ["there are", "there is "]
    (store / "checkpoint").unlink()
    report = verify(store)
    assert report["ok"]
    assert any("no consume queues" in note for note in report["notes"])


def test_a_topic_that_was_deleted_or_made_again_is_no_damage(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "payments")
    assert any("payments" in problem["file"] for problem in verify(store)["problems"])
    path = store / "config" / "topics.json"
    path.write_text(path.read_text().replace('"payments"', '"others"'))
    report = verify(store)
    assert report["ok"], report["problems"]
    assert any("which was deleted" in note for note in report["notes"])


def test_undispatched_messages_after_unclean_stop_are_no_damage(store: Path) -> None:
    files(store, "index")[-1].unlink()
    assert not verify(store)["ok"]
    (store / "abort").touch()
    report = verify(store)
    assert report["ok"], report["problems"]
    assert any("not stopped well" in note for note in report["notes"])


def test_an_index_file_that_was_cut_is_told_with_its_size(store: Path) -> None:
    for path in files(store, "index"):
        data = path.read_bytes()
        os.truncate(path, len(data) - 20)
        problems = verify(store)["problems"]
        assert [one["file"] for one in problems if "other index files" in one["reason"]] == [
            str(path)
        ]
        path.write_bytes(data)


@pytest.mark.parametrize("folder", ["consumequeue/orders/0", "index"])
def test_gap_between_dispatched_messages_is_damage_after_unclean_stop(
    store: Path, folder: str
) -> None:
    (store / "abort").touch()
    assert verify(store)["ok"]
    files(store, folder)[0].unlink()
    problems = verify(store)["problems"]
    assert any("messages of the log are" in one["reason"] for one in problems), problems


def test_dledgers_index_and_checkpoint_are_compared_with_the_log(
    ledger: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(ledger, tmp_path / "store")
    log = files(root, "dledger-n0/data")
    (index,) = files(root, "dledger-n0/index")
    flip(index, 32 * 70 + 11)
    assert any("DLedger's index" in reason for reason in reasons(root))
    flip(index, 32 * 70 + 11)
    data = log[-1].read_bytes()
    log[-1].unlink()
    told = reasons(root)
    assert any("is committed" in reason for reason in told)
    assert any("DLedger's index has" in reason for reason in told)
    log[-1].write_bytes(data)
    (root / "dledger-n0" / "checkpoint").write_text("")
    assert any("no committedIndex" in reason for reason in reasons(root))
