"""``dledger rocketmq adopt``: what it says, what it asks, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from dledger.cli.staging import MARK
from dledger.config import GroupConfig
from dledger.errors import ConfigError, PathError
from dledger.rocketmq.store.store_lock import StoreLock
from tests.cli.commands import attempt
from tests.node.old_stores import SIZE, files_of, make_old_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_old_store(tmp_path / "store")


def run(root: Path, words: str) -> Result:
    given = "--self-id n0 --group g --index-file-bytes 3200"
    return attempt(f"rocketmq adopt {root} {given} {words}")


def adopted(root: Path, words: str) -> Result:
    """As `run`, of what is no error."""
    done = run(root, words)
    assert done.exception is None, done.exception
    return done


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(store: Path) -> None:
    (store / "lock").unlink()
    before = files_of(store)
    done = adopted(store, "--dry-run")
    assert files_of(store) == before
    assert "300 messages in 2 files of 65,536 bytes" in done.output
    assert "fingerprint " in done.output
    assert f"close {store}/commitlog/{SIZE:020d} by a blank of" in done.output
    made = "node n0 of group g, whose log begins at 131,072"
    assert f"make {store}/dledger-n0: {made}" in done.output


def test_nothing_is_done_unless_somebody_says_yes(store: Path) -> None:
    before = files_of(store)
    done = run(store, "")
    assert isinstance(done.exception, ConfigError)
    assert "--yes" in str(done.exception)
    assert "close " in done.output
    assert files_of(store) == before


def test_adopted_store_names_its_start_command_and_is_not_adopted_twice(store: Path) -> None:
    done = adopted(store, "--yes")
    options = "--set commit_log=rocketmq --set segment_bytes=65536"
    assert f"--dir {store}/dledger-n0 {options}" in done.output
    settings = dict(text.strip().split("=") for text in done.output.split("--set ")[1:])
    commit_log = settings.pop("commit_log")
    assert GroupConfig(commit_log=commit_log, **{name: int(v) for name, v in settings.items()})
    before = files_of(store)
    assert "this is done already" in adopted(store, "--yes").output
    assert files_of(store) == before


def test_a_copy_is_adopted_and_the_store_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    before = files_of(store)
    left = tmp_path / "copy.partial"  # by one that was killed
    left.mkdir()
    (left / MARK).touch()
    done = adopted(store, f"--yes --to {tmp_path}/copy")
    assert f"make {tmp_path / 'copy'}/dledger-n0" in done.output
    assert files_of(store) == before
    assert not left.exists()
    copy = files_of(tmp_path / "copy")
    assert "dledger-n0/adopted" in copy
    assert {name for name in copy if not name.startswith("dledger-n0")} == set(before) - {"lock"}
    assert isinstance(run(store, f"--yes --to {tmp_path}/copy").exception, PathError)


def test_a_store_that_a_broker_holds_is_refused(store: Path) -> None:
    lock = StoreLock(store)
    for words in ("--yes", "--dry-run"):
        refused = run(store, words)
        assert isinstance(refused.exception, PathError)
        assert "is in use: a broker" in str(refused.exception)
    lock.release()
    (store / "abort").touch()
    refused = run(store, "--yes")
    assert "its broker runs, or was not stopped well" in str(refused.exception)


def test_arguments_that_cannot_be_are_refused(store: Path) -> None:
    for words in (
        "--self-id ../n0",
        "--group 'a b'",
        "--index-file-bytes 33",
        f"--to {store}/copy",
    ):
        assert isinstance(run(store, f"{words} --yes").exception, ConfigError)
    assert not list(store.glob("*n0*"))
