"""What the tests with real nodes share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dledger.embedded.home import Home
from dledger.embedded.start import stop_group

SMALL: dict[str, Any] = {"segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}
"""Files that cost a test little disk."""


@pytest.fixture
def until() -> Callable[..., None]:
    """``until(condition, what)``: wait for it, at most half a minute."""

    def wait(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
        deadline, tick = time.monotonic() + timeout_s, Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
            tick.wait(0.02)

    return wait


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A directory without a group."""
    return Home(tmp_path)


@pytest.fixture
def log_path(tmp_path: Path) -> Iterator[Path]:
    """A directory for a group; whatever still runs in it, or beside it, is ended afterwards."""
    yield tmp_path / "log"
    for path in tmp_path.iterdir():
        home = Home(path)
        file = home.read() if path.is_dir() else None
        if file is not None:
            stop_group(home, file)
