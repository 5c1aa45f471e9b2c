"""A topic to read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streaming.stream_engine import numbers


@pytest.fixture
def log(group: Any) -> Any:
    group.create_topic("t")
    group.append("t", 0, numbers(0, 1, 2))
    return group
