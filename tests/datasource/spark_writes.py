"""What Spark's driver and tasks write to a group in memory."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.datasource.write.sink_task import Task

OUTSIDE = Task(0, 0, None, "", 0)
"""A task of no query."""


class Writes:
    """Options of a write, and ``task``, which is the one that runs."""

    def __init__(self, group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group = group
        self.task = OUTSIDE
        monkeypatch.setattr(Task, "current", staticmethod(lambda: self.task))

    def options(self, **more: str) -> dict[str, str]:
        """An empty one is left out."""
        where = {"dledger.bootstrap.servers": self.group.address, "topic": "t"}
        given = {**where, "createTopic": "true", **more}
        return {name: value for name, value in given.items() if value}
