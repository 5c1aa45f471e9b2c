"""The threads that the product starts by itself, as threads of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dledger.environment import Environment, Turn, Worker
from verification.interleave.scheduler import Scheduler, Thread


class SwitchedEnvironment(Environment):
    """As the machine is, but for threads, which the scheduler runs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @staticmethod
    def below(n: int) -> int:
        """Always the same: a schedule depends on chance only by its seed."""
        return n // 2

    def worker(self, name: str, turn: Turn, pause_s: float = 0.0) -> Worker:
        return SwitchedWorker(self._scheduler, name, turn)


class SwitchedWorker:
    """See `dledger.environment.ThreadWorker`; its waits by the clock end when no other thread can
    run."""

    def __init__(self, scheduler: Scheduler, name: str, turn: Turn) -> None:
        self._scheduler = scheduler
        self._name = name
        self._turn = turn
        self._jobs: list[Any] = []
        self._ending = False
        self._thread: Thread | None = None
        self.put: Callable[[Any], None] = self._put

    def __str__(self) -> str:
        return f"work for {self._name}"

    def start(self) -> None:
        self._thread = self._scheduler.spawn(self._name, self._run, service=True)

    def join(self) -> None:
        self._ending = True
        self._scheduler.wake(self)
        while self._thread is not None and not self._thread.done:
            self._scheduler.block(self._thread)

    def _put(self, job: Any) -> None:
        self._jobs.append(job)
        self._scheduler.wake(self)
        self._scheduler.point("give", self)

    def _run(self) -> None:
        wait: float | None = None
        last = False
        while not last:
            if not self._jobs and not self._ending:
                self._scheduler.block(self, may_time_out=wait is not None)
            jobs, self._jobs = self._jobs, []
            last = self._ending
            wait = self._turn(jobs, last)
            self._scheduler.point("turn done", self)
        assert self._thread is not None
        self._thread.done = True
        self._scheduler.wake(self._thread)
