"""Writes that may be part of foreachBatch though Spark does not say so."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger.datasource.write import nameless

Processes = Callable[..., Path]
QUERY = "stream executio"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """``proc((pid, name, threads), ...)``: a /proc in which each process is the child of the next
    one."""

    def make(*processes: tuple[int, str, Sequence[str]]) -> Path:
        parents = [str(pid) for pid, _, _ in processes[1:]] + ["1"]
        for (pid, name, threads), parent in zip(processes, parents, strict=True):
            for number, thread in enumerate(threads, pid):
                (tmp_path / f"{pid}/task/{number}").mkdir(parents=True)
                (tmp_path / f"{pid}/task/{number}/comm").write_text(f"{thread}\n")
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            (tmp_path / f"{pid}/stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
        return tmp_path

    monkeypatch.setattr(os, "getpid", lambda: 100)
    return make


def test_a_query_is_seen_by_its_thread_in_the_jvm_above(proc: Processes) -> None:
    above = (
        (100, "python3", []),
        (90, "a (b) c", []),
        (80, "java", ["main", "GC Thread#0", QUERY]),
    )
    assert nameless.runs_streams(proc(*above))


def test_a_jvm_without_a_query_is_none(proc: Processes) -> None:
    assert not nameless.runs_streams(
        proc((100, "python3", []), (80, "java", ["main", "streaming-x"]))
    )


def test_threads_that_end_while_they_are_looked_at_are_none(proc: Processes) -> None:
    found = proc((100, "python3", []), (80, "java", ["main", QUERY]))
    (found / "80/task/80/comm").unlink()
    assert nameless.runs_streams(found)


@pytest.mark.parametrize("where", ["no JVM", "no /proc", "gone"])
def test_where_nothing_can_be_seen_there_is_no_query(
    proc: Processes, tmp_path: Path, where: str
) -> None:
    found = proc((100, "python3", []), (80, "bash" if where == "no JVM" else "java", [QUERY]))
    if where == "gone":
        (found / "80/stat").unlink()
    assert not nameless.runs_streams(tmp_path / "none" if where == "no /proc" else found)


def test_this_process_is_no_part_of_a_query() -> None:
    assert not nameless.runs_streams()
