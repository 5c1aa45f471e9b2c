"""Maintenance: the work of a node by the clock, ten times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from dledger.node.context import NodeContext, NodePart

TICK_S: Final = 0.1
"""Short enough that not much more than half of the default disk_reserve_bytes can be written
between two checks of the disk."""


class MaintenanceTask(Protocol):
    """One thing to look after."""

    def tick(self, now_ms: int) -> Coroutine[Any, Any, None] | None:
        """Do the work that is due at ``now_ms``, on the node's loop. Longer work is returned, and
        runs beside."""


class Maintenance(NodePart):
    """Carries out the tasks of one node, in their order."""

    def __init__(self, context: NodeContext, tasks: Sequence[MaintenanceTask]) -> None:
        super().__init__(context)
        self._tasks = tasks
        self._running: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running:
            task.cancel()

    def _tick(self) -> None:
        if self._ready_loop.failed:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now_ms = self._now_ms()
        for task in self._tasks:
            work = task.tick(now_ms)
            if work is not None:
                running = self._loop.create_task(work)
                self._running[running] = None
                running.add_done_callback(self._running.pop)
