"""Notes of which write goes by which name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.datasource.write.write_fence import KEPT_S, WriteNote, check_claim, claim
from dledger.errors import ConfigError, PathError

FIRST = WriteNote("run", 5, "host:1", "name", "t", "job-1")
SECOND = replace(FIRST, job="job-2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"dledger-spark-{os.getuid()}"


def test_of_two_writes_that_checked_at_once_one_is_refused() -> None:
    check_claim(FIRST)
    check_claim(SECOND)
    claim(FIRST)
    with pytest.raises(ConfigError, match="txnId"):
        claim(SECOND)


def test_a_write_may_note_itself_twice() -> None:
    claim(FIRST)
    claim(FIRST)
    check_claim(FIRST)


def test_another_run_batch_name_or_group_is_no_second_write() -> None:
    claim(FIRST)
    for other in ({"run_id": "later"}, {"batch_id": 6}, {"name": "other"}, {"group": "host:2"}):
        claim(replace(SECOND, **other))


def test_only_the_newest_note_of_a_name_is_kept_and_old_runs_go(folder: Path) -> None:
    for batch_id in range(5):
        claim(replace(FIRST, batch_id=batch_id))
    (run,) = folder.iterdir()
    assert len(list(run.iterdir())) == 1
    os.utime(run, (0, run.stat().st_mtime - KEPT_S - 9))
    claim(replace(FIRST, run_id="later"))
    assert run not in folder.iterdir()


def test_a_directory_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    owner = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    folder.rename(folder.with_name(f"dledger-spark-{owner + 1}"))
    with pytest.raises(PathError, match="TMPDIR"):
        claim(FIRST)


def test_each_log_has_names_of_its_own() -> None:
    claim(FIRST)
    claim(replace(SECOND, group="host:2"))
    check_claim(FIRST)


def test_a_write_of_the_very_batch_before_is_refused() -> None:
    claim(replace(FIRST, batch_id=6))
    with pytest.raises(ConfigError, match="left running"):
        check_claim(SECOND)


def test_error_for_writes_by_topic_column_does_not_name_topic_star() -> None:
    claim(replace(FIRST, topic="*"))
    with pytest.raises(ConfigError, match="batch 5 writes to the topics of column 'topic' twice"):
        check_claim(replace(SECOND, topic="*"))
