"""``dledger export`` from a real group: what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dledger import Client, EmbeddedGroup
from dledger.cli.main import main
from dledger.cli.staging import MARK, staged
from dledger.errors import PathError
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.ranges import plan_store, read_range
from dledger.rocketmq.files.storage import Storage


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["export", *words])


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
    words = (
        "--format",
        form,
        "-b",
        orders.bootstrap_servers,
        "--topic",
        "my.orders",
        "--file-size",
        "8192",
    )
    done = run(str(target), *words, "--as", "orders", "--broker", "10.0.0.1:10911")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["topic"], report["messages"]) == ("orders", 40)
    assert report["queues"][1] == {"queue": 1, "begin_offset": 0, "end_offset": 20}
    found = read_all(target)
    assert [(r["queue_id"], r["queue_offset"], r["body"], r["keys"], r["tags"]) for r in found] == [
        (n % 2, n // 2, b"%d-%d" % (n % 2, n // 2), f"k{n // 2}", f"t{n // 2 % 3}")
        for n in range(40)
    ]
    assert [row["store_timestamp"].timestamp() for row in found] == [
        1_700_000_000 + n / 1000 for n in range(40)
    ]  # type: ignore[attr-defined]
    assert {row["store_host"] for row in found} == {"10.0.0.1:10911"}
    again = run(str(target), *words, "--as", "orders")
    assert again.exit_code == 2
    assert "is there already" in again.stderr


@pytest.mark.cluster
def test_topic_with_name_invalid_in_rocketmq_is_refused(
    orders: EmbeddedGroup, tmp_path: Path
) -> None:
    """The command makes no files."""
    words = ("--format", "rocketmq", "-b", orders.bootstrap_servers, "--topic", "my.orders")
    done = run(str(tmp_path / "store"), *words)
    assert done.exit_code == 2
    assert "--as" in done.stderr
    assert not any(tmp_path.iterdir())


def test_log_of_stopped_node_is_exported_entry_by_entry_and_repeatably(
    stopped_node: Path, tmp_path: Path
) -> None:
    """A second export gives the same result."""
    target = tmp_path / "ledger"
    done = run(
        str(target), "--format", "dledger", "--node", str(stopped_node), "--file-size", "1048576"
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
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
        (["--format", "rocketmq"], "what to export"),
        (["--format", "rocketmq", "--node", "n0"], "--node is for --format dledger"),
        (["--format", "dledger", "--node", "n0", "--self-id", "../x"], "--self-id"),
        (
            ["--format", "rocketmq", "-b", "127.0.0.1:1", "--topic", "t", "--broker", "host"],
            "--broker host",
        ),
        (["--format", "dledger", "--node", "nowhere"], "does not exist"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_a_word_on_it(
    tmp_path: Path, words: list[str], says: str
) -> None:
    done = run(str(tmp_path / "out"), *words)
    assert done.exit_code == 2
    assert says in done.stderr
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


def test_what_somebody_else_has_put_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("full", "other", "link"):
        with pytest.raises(PathError), staged(tmp_path / name):
            pass
    assert (tmp_path / "full" / "file").exists()
    assert (tmp_path / "other.partial" / "file").exists()
    with staged(tmp_path / "empty") as place:
        (place / "whole").touch()
    assert (tmp_path / "empty" / "whole").exists()


@pytest.mark.parametrize("self_id", ["n", "nn0", "0", "broker", "n2147483647", "n0x", "n-1"])
def test_a_self_id_that_a_broker_does_not_start_with_is_refused(
    tmp_path: Path, self_id: str
) -> None:
    done = run(
        str(tmp_path / "out"),
        "--format",
        "dledger",
        "-b",
        "127.0.0.1:1",
        "--topic",
        "t",
        "--self-id",
        self_id,
    )
    assert done.exit_code == 2
    assert "one letter and a whole number" in done.stderr
    words = ["--format", "dledger", "--node", str(tmp_path), "--messages", "--self-id", self_id]
    done = run(str(tmp_path / "out"), *words)
    assert done.exit_code == 2
    assert "one letter and a whole number" in done.stderr


def test_dledger_alone_takes_other_ids_than_a_broker(tmp_path: Path) -> None:
    done = run(
        str(tmp_path / "out"),
        "--format",
        "dledger",
        "--node",
        str(tmp_path / "nowhere"),
        "--self-id",
        "broker",
    )
    assert "--self-id" not in done.stderr
    assert "does not exist" in done.stderr
