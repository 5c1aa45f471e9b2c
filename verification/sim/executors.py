"""The executors of a process: calls begin in their order, on as many threads as each executor
has."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from verification.disk.memory_disk import ProcessKilled
from verification.sim.process_loop import ProcessLoop
from verification.sim.turns import Turns

DEFAULT: Final = 1 << 30
"""Threads of the loop's own executor: a call on it never waits for another thread to end."""


@dataclass(slots=True)
class Job:
    """One call. ``rest_ns``: for how long its result is on its way."""

    future: asyncio.Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    rest_ns: int


@dataclass(slots=True)
class Executor:
    """``free``: threads that have nothing to do."""

    free: int
    waiting: deque[Job] = field(default_factory=deque)


class Executors:
    """Those of one loop."""

    def __init__(self, loop: ProcessLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._known: dict[Any, Executor] = {}

    def run(
        self, executor: Any, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop.run_in_executor`."""
        loop, future = self._loop, self._loop.create_future()
        latency = loop.latency_ns()
        early = loop.rng.below(latency + 1)
        one = self._known.setdefault(executor, Executor(getattr(executor, "_max_workers", DEFAULT)))
        one.waiting.append(Job(future, function, args, latency - early))
        loop.scheduler.after(early, self._begin, one)
        return future

    def _begin(self, one: Executor) -> None:
        if self._loop.hold(self._begin, one) or not one.free or not one.waiting:
            return
        job = one.waiting.popleft()
        one.free -= 1
        self._turns.begin(lambda: self._carry_out(one, job), job.rest_ns, lambda _: None)

    def _carry_out(self, one: Executor, job: Job) -> None:
        loop = self._loop
        try:
            result = job.function(*job.args)
        except ProcessKilled:
            return
        except BaseException as error:
            loop.call_soon_threadsafe(_fail, job.future, error)
        else:
            loop.call_soon_threadsafe(_succeed, job.future, result)
        one.free += 1
        if one.waiting:
            loop.scheduler.after(0, self._begin, one)


def _succeed(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
