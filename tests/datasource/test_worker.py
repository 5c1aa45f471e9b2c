"""What Spark's worker processes keep out of their garbage collections."""

from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from dledger.datasource import worker


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each freeze; nothing is frozen in the process of the tests."""
    found: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append(None))
    monkeypatch.setattr(worker, "_calls", 0)
    return found


def started_as(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if name is None else ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_daemons_process_leaves_out_what_its_first_task_has_loaded(
    monkeypatch: pytest.MonkeyPatch, frozen: list[None]
) -> None:
    started_as(monkeypatch, "pyspark.daemon")
    worker.settle()
    assert len(frozen) == 1
    worker.settle()
    assert len(frozen) == 2, "what the first piece of work has loaded"
    worker.settle()
    assert len(frozen) == 2, "what came since is collected"


@pytest.mark.parametrize(
    "name", [None, "pytest.__main__", "pyspark.sql.streaming.python_streaming_source_runner"]
)
def test_a_process_that_is_not_the_daemons_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, frozen: list[None], name: str | None
) -> None:
    started_as(monkeypatch, name)
    worker.settle()
    assert not frozen
