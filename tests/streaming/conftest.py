"""A micro-batch engine for all tests here, and a topic to read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "dledger_stream_engine", Path(__file__).parent / "stream_engine.py"
)
assert _spec is not None
assert _spec.loader is not None
sys.modules["dledger_stream_engine"] = _engine = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_engine)


@pytest.fixture
def log(group: Any) -> Any:
    group.create_topic("t")
    group.append("t", 0, _engine.numbers(0, 1, 2))
    return group
