"""Stores to read, made by tests/foreign/store_maker.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

if "dledger_store_maker" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("dledger_store_maker", Path(__file__).parent / "store_maker.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["dledger_store_maker"] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)


@pytest.fixture
def stores() -> ModuleType:
    """What makes stores."""
    return sys.modules["dledger_store_maker"]
