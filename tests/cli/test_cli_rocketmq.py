"""``dledger rocketmq verify`` over stores that RocketMQ wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.cli.main import main
from dledger.errors import PathError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A plain commit log with the log of DLedger mode behind it, as an upgraded broker leaves them."""
    for folder, name, golden, size in (
        ("commitlog", "0" * 20, "old_commitlog.bin", 65_536),
        ("dledger-n0/data", f"{65_536:020d}", "dledger_data_after_migration.bin", 65_536),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_bytes((GOLDEN / golden).read_bytes().ljust(size, b"\0"))
    return tmp_path


def test_verify_of_an_upgraded_store_counts_the_messages_of_both_logs(store: Path) -> None:
    done = CliRunner().invoke(main, ["rocketmq", "verify", str(store)], standalone_mode=False)
    report = json.loads(done.output)
    assert (report["ok"], report["messages"], len(report["files"])) == (True, 7, 2)
    assert done.exit_code == 0


def test_verify_of_a_damaged_store_names_file_and_bytes_and_changes_nothing(store: Path) -> None:
    path = store / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[201 + 100] ^= 1
    path.write_bytes(bytes(data))
    done = CliRunner().invoke(main, ["rocketmq", "verify", str(store)], standalone_mode=False)
    report = json.loads(done.output)
    assert done.exit_code == 1
    assert report["messages"] == 6
    ((damage),) = report["damage"]
    assert (damage["file"], damage["start"], damage["end"]) == (str(path), 201, 402)
    assert path.read_bytes() == data


def test_verify_of_what_is_no_store_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes").write_text("")
    done = CliRunner().invoke(main, ["rocketmq", "verify", str(tmp_path)], standalone_mode=False)
    assert isinstance(done.exception, PathError)
    assert "no commit log files" in str(done.exception)
