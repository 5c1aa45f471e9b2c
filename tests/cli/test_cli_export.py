"""``dledger export`` from a real group: what is written, and what is refused."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.cli.staging import MARK, staged
from dledger.errors import PathError
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.ranges import plan_store, read_range
from dledger.rocketmq.files.storage import Storage
from tests.cli.commands import out, refusal
from tests.killed_names import Names


def read_all(root: Path, layout: str = "rocketmq") -> list[dict[str, object]]:
    storage = Storage.of(str(root), {})
    plan = plan_store(open_store(storage, layout))
    batches = [batch for one in plan.ranges for batch in read_range(storage, layout, one)]
    assert not [batch.damage for batch in batches if batch.damage]
    return [row for batch in batches if batch.rows for row in batch.rows.to_pylist()]


@pytest.fixture(scope="module")
def orders(group: EmbeddedGroup) -> EmbeddedGroup:
    """A topic of two partitions with 40 records."""
    with Client(group.bootstrap_servers) as client:
        client.create_topic("my.orders", 2)
        for partition in range(2):
            client.append(
                "my.orders",
                [b"%d-%d" % (partition, n) for n in range(20)],
                keys=[b"k%d" % n for n in range(20)],
                headers=[[("TAGS", b"t%d" % (n % 3))] for n in range(20)],
                partition=partition,
                timestamps=[1_700_000_000_000_000 + 2000 * n + 1000 * partition for n in range(20)],
            )
    return group


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["rocketmq", "dledger"])
def test_a_topic_is_exported_with_its_partitions_keys_headers_and_times(
    orders: EmbeddedGroup, tmp_path: Path, form: str
) -> None:
    target = tmp_path / "store"
    source = f"-b {orders.bootstrap_servers} --topic my.orders --as orders"
    words = f"export {target} --format {form} {source} --file-size 8192"
    report = json.loads(out(f"{words} --broker 10.0.0.1:10911"))
    assert (report["topic"], report["messages"]) == ("orders", 40)
    assert report["queues"][1] == {"queue": 1, "begin_offset": 0, "end_offset": 20}
    found = read_all(target)
    assert [(r["queue_id"], r["queue_offset"], r["body"], r["keys"], r["tags"]) for r in found] == [
        (n % 2, n // 2, b"%d-%d" % (n % 2, n // 2), f"k{n // 2}", f"t{n // 2 % 3}")
        for n in range(40)
    ]
    times = [row["store_timestamp"].timestamp() for row in found]  # type: ignore[attr-defined]
    assert times == [1_700_000_000 + n / 1000 for n in range(40)]
    assert {row["store_host"] for row in found} == {"10.0.0.1:10911"}
    assert "is there already" in refusal(words)


@pytest.mark.cluster
def test_topic_with_name_invalid_in_rocketmq_is_refused(
    orders: EmbeddedGroup, tmp_path: Path
) -> None:
    """The command makes no files."""
    words = f"--format rocketmq -b {orders.bootstrap_servers} --topic my.orders"
    assert "--as" in refusal(f"export {tmp_path}/store {words}")
    assert not any(tmp_path.iterdir())


def test_log_of_stopped_node_is_exported_entry_by_entry_and_repeatably(
    stopped_node: Path, tmp_path: Path
) -> None:
    """A second export gives the same result."""
    target = tmp_path / "ledger"
    words = f"export {target} --format dledger --node {stopped_node} --file-size 1048576"
    report = json.loads(out(words))
    entries = read_all(target, "dledger")
    assert [entry["entry_index"] for entry in entries] == list(range(report["end_index"] + 1))
    assert {entry["magic"] for entry in entries} == {1}
    bodies = b"".join(entry["body"] for entry in entries if entry["body"])  # type: ignore[misc]
    assert all(value in bodies for value in (b"first", b"second", b"third"))
    assert (report["left_out"], report["too_large_to_replicate"]) == ("", 0)
    checkpoint = (target / "dledger-n0" / "checkpoint").read_text()
    assert f"committedIndex={report['committed_index']}\n" in checkpoint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--format rocketmq", "what to export"),
        ("--format rocketmq --node n0", "--node is for --format dledger"),
        ("--format dledger --node n0 --self-id ../x", "--self-id"),
        ("--format rocketmq -b 127.0.0.1:1 --topic t --broker host", "--broker host"),
        ("--format dledger --node nowhere", "does not exist"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_a_word_on_it(
    tmp_path: Path, words: str, says: str
) -> None:
    assert says in refusal(f"export {tmp_path}/out {words}")
    assert not any(tmp_path.iterdir())


def test_a_directory_is_there_only_when_all_is_in_it(tmp_path: Path) -> None:
    def fail() -> None:
        with staged(tmp_path / "out") as place:
            (place / "half").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not any(tmp_path.iterdir())
    left = tmp_path / "out.partial"
    left.mkdir()
    (left / MARK).touch()
    (left / "of a killed export").touch()
    with staged(tmp_path / "out") as place:
        (place / "whole").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]
    assert not left.exists()


def export(target: Path) -> None:
    with staged(target) as place:
        (place / "data").mkdir()
        (place / "data" / "file").touch()


def test_export_killed_at_any_step_is_whole_or_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)
    for at in count():
        target = tmp_path / str(at) / "out"
        if not names.killed(at, partial(export, target)):
            break
        is_there = target.exists()
        assert not is_there or (target / "data" / "file").exists()
        if is_there:
            with pytest.raises(PathError, match="is there already"):
                export(target)
        else:
            export(target)
        assert [one.name for one in target.iterdir()] == ["data"]
        assert not list(target.parent.glob("out.*"))
    assert at > 10


def test_export_that_has_its_name_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, target = Names(monkeypatch), tmp_path / "new" / "out"
    marks = []

    def before_unlink(path: Path) -> None:
        marks.append(path.name)
        assert not names.unsynced

    names.before_unlink = before_unlink
    export(target)
    assert marks == ["out.partial.written"]


def test_removal_of_an_export_that_was_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)
    for mark in (f"out.partial/{MARK}", "out.partial.written"):
        for at in count():
            target = tmp_path / mark / str(at) / "out"
            (target.parent / "out.partial" / "half").mkdir(parents=True)
            (target.parent / mark).touch()
            is_killed = names.killed(at, partial(export, target))
            if not target.exists():
                export(target)
            assert [one.name for one in target.iterdir()] == ["data"]
            if not is_killed:
                break
        assert at > 10


def test_what_somebody_else_has_put_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "full.partial.written").write_text("a report")
    for name in ("full", "other", "link"):
        with pytest.raises(PathError), staged(tmp_path / name):
            pass
    assert (tmp_path / "full" / "file").exists()
    assert (tmp_path / "other.partial" / "file").exists()
    assert (tmp_path / "full.partial.written").exists()
    with staged(tmp_path / "empty") as place:
        (place / "whole").touch()
    assert (tmp_path / "empty" / "whole").exists()


@pytest.mark.parametrize("self_id", ["n", "nn0", "0", "broker", "n2147483647", "n0x", "n-1"])
def test_a_self_id_that_a_broker_does_not_start_with_is_refused(
    tmp_path: Path, self_id: str
) -> None:
    for source in ("-b 127.0.0.1:1 --topic t", f"--node {tmp_path} --messages"):
        words = f"export {tmp_path}/out --format dledger {source} --self-id {self_id}"
        assert "one letter and a whole number" in refusal(words)


def test_dledger_alone_takes_other_ids_than_a_broker(tmp_path: Path) -> None:
    words = f"--format dledger --node {tmp_path}/nowhere --self-id broker"
    said = refusal(f"export {tmp_path}/out {words}")
    assert "--self-id" not in said
    assert "does not exist" in said
