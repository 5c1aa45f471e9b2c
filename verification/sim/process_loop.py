"""The part of a simulated process's loop that its threads use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from verification.sim.disk_waits import DiskWaits
from verification.sim.rng import Rng
from verification.sim.scheduler import Action, Handle, Scheduler


class ProcessLoop(Protocol):
    """See `verification.sim.loop.SimLoop`."""

    name: str
    scheduler: Scheduler
    rng: Rng
    dead: bool
    in_callback: bool
    posted: list[Handle] | None
    spent_ns: int
    after_callback: Callable[[], None] | None
    latency_ns: Callable[[], int]
    disk_waits: DiskWaits

    def create_future(self) -> asyncio.Future[Any]: ...

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any: ...

    def hold(self, action: Action, *arguments: Any) -> bool: ...

    def deliver(self, said: Any) -> None: ...
