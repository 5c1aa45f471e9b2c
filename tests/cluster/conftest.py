"""What the kill campaigns share: how often, and one Spark session."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest
from pyspark.sql import SparkSession

from examples.session import spark_session


@pytest.fixture
def kills() -> int:
    """Kills of each kind: one in ``make test``, more in ``make kills``."""
    return int(os.environ.get("DLEDGER_KILLS", "1"))


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chooses the moments. The seed is shown when a test fails; DLEDGER_SEED gives it again."""
    seed = int(os.environ.get("DLEDGER_SEED", str(time.time_ns() % 1_000_000)))
    request.node.add_report_section("setup", "seed", f"DLEDGER_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def until() -> Callable[..., None]:
    """``until(condition, what)``: wait for it, at most five minutes."""

    def wait(condition: Callable[[], bool], what: str, timeout_s: float = 300) -> None:
        deadline, tick = time.monotonic() + timeout_s, Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
            tick.wait(0.02)

    return wait


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session. Tasks are not retried in local mode, so whatever goes on does so by
    itself."""
    session = spark_session("kills")
    yield session
    session.stop()
