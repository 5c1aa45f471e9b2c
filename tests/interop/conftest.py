"""The real programs that tests here run against: `make interop` fetches them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

JARS = "DLEDGER_INTEROP"
"""The environment variable with the folder of jars."""


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"dledger_{name}", Path(__file__).parent / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def real() -> ModuleType:
    """tests/interop/real_programs.py."""
    return _module("real_programs")


@pytest.fixture(scope="session")
def traffic() -> ModuleType:
    """tests/interop/traffic.py."""
    return _module("traffic")


@pytest.fixture(scope="session")
def programs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Starts the real programs."""
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(
            f"needs the real RocketMQ: make interop (it sets {JARS} to the folder of its jars)"
        )
    started = request.getfixturevalue("real").Programs(
        Path(jars), tmp_path_factory.mktemp("programs")
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def spark(programs: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on this machine; there is none where the real programs are not."""
    from pyspark.sql import SparkSession

    from dledger.datasource.java import ensure_java

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.python.unix.domain.socket.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
