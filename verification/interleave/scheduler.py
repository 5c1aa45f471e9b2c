"""One thread of a scenario runs at a time; at each switching point a strategy says which one goes
on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from verification.disk.memory_disk import ProcessKilled
from verification.greenlets import Greenlet, current_greenlet, new_greenlet

NEVER: Final = 1 << 60
MOST_STEPS: Final = 50_000
"""A schedule with more steps runs in circles."""


class End(Enum):
    """How a schedule ended."""

    DONE = "done"
    CRASHED = "crashed"
    DEADLOCK = "deadlock"


@dataclass(slots=True, eq=False)
class Thread:
    """One thread of a scenario."""

    number: int
    name: str
    service: bool
    """It waits for work for ever: the schedule does not wait for its end."""
    greenlet: Greenlet
    waits_for: object = None
    """The object that it is blocked on; None: it can run."""
    may_time_out: bool = False
    """Its wait ends by itself, once no other thread can run."""
    done: bool = False
    priority: int = 0
    """For the strategy."""


class Strategy:
    """Chooses the thread that goes on."""

    quiet_until = 0
    """The number of the next step at which it wants to be asked although nothing has changed."""

    def born(self, thread: Thread) -> None:
        """There is one more thread."""

    @staticmethod
    def usual(ready: list[Thread], current: Thread | None) -> Thread:
        """The running thread, and the one of the lowest number where that cannot run."""
        return current if current is not None and current in ready else ready[0]

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        """One of the threads that can run, in the order of their numbers; ``current`` was running
        until now, and is at ``what`` of `SwitchingDisk` or a lock, or empty when it has to wait."""
        raise NotImplementedError


@dataclass(slots=True, frozen=True)
class Step:
    """One switching point: the operation that the thread is about to do, or has just done."""

    number: int
    thread: str
    what: str
    where: object

    def __str__(self) -> str:
        return f"{self.number:>5} {self.thread:<12} {self.what} {self.where}"


@dataclass(slots=True)
class Scheduler:
    """One schedule. `run` ends with all threads ended, blocked for ever, or killed at step
    ``crash_at``."""

    strategy: Strategy
    crash_at: int = NEVER
    traced: bool = False
    threads: list[Thread] = field(default_factory=list)
    current: Thread | None = None
    """The thread that runs; None: none of the scenario's."""
    step: int = 0
    trace: list[Step] = field(default_factory=list)
    decisions: list[tuple[int, int]] = field(default_factory=list)
    """(step, thread's number) wherever the choice was another one than to go on with the same
    thread, or with the one of the lowest number where that cannot run."""
    error: BaseException | None = None
    """The first error with which a thread ended."""
    dead: bool = False
    """The process is gone: calls of its threads have no effect."""
    crashed: bool = False
    _hub: Greenlet = field(init=False)
    _ask_at: int = 0

    def __post_init__(self) -> None:
        self._hub = current_greenlet()

    def spawn(self, name: str, function: Callable[[], object], service: bool = False) -> Thread:
        """One more thread; it runs when it is chosen."""
        thread: Thread

        def body() -> None:
            try:
                function()
            except ProcessKilled:
                pass
            except BaseException as error:
                if not self.dead:
                    self.error = self.error or error
            thread.done = True

        thread = Thread(len(self.threads), name, service, new_greenlet(body, self._hub))
        self.threads.append(thread)
        self.strategy.born(thread)
        self._ask_at = 0
        return thread

    def run(self) -> End:
        """Run all threads.

        Raises:
            BaseException: the error of the first thread that failed.
        """
        end: End | None = None
        while end is None:
            ready = self._ready()
            if self.crashed:
                end = End.CRASHED
            elif self.error is not None or not ready:
                left = any(not thread.done and not thread.service for thread in self.threads)
                end = End.DEADLOCK if left and self.error is None else End.DONE
            else:
                self.step += 1
                self._switch(self._chosen(ready, None))
        self._bury(end)
        if self.error is not None:
            raise self.error
        return end

    def _bury(self, end: End) -> None:
        """End all threads, so that no code of theirs runs later, when memory is freed."""
        self.current, self.dead = None, True
        if end is not End.DEADLOCK:  # else `waiting` still has to report it
            for thread in self.threads:
                thread.waits_for = None
        for thread in self.threads:
            if not thread.done:
                with suppress(ProcessKilled):  # one that never ran ends with it
                    thread.greenlet.throw(ProcessKilled("the schedule is over"))
        self.dead = end is not End.DONE  # else the process goes on, with what called `run`

    def point(self, what: str, where: object) -> None:
        """A switching point.

        Raises:
            ProcessKilled: the process is gone.
        """
        current = self.current
        if current is None:
            if self.dead:
                raise ProcessKilled(what)
            return
        self.step = step = self.step + 1
        if self.traced:
            self.trace.append(Step(step, current.name, what, where))
        if step >= self._ask_at:
            self._asked(current, step, what)

    def _asked(self, current: Thread, step: int, what: str) -> None:
        if step >= self.crash_at:
            self.crashed = True
            self._hub.switch()
        if step > MOST_STEPS:
            raise RuntimeError(f"no end after {MOST_STEPS} steps: a thread waits without blocking")
        chosen = self._chosen(self._ready(), current, what)
        if chosen is not current:
            self._switch(chosen)

    def _chosen(self, ready: list[Thread], current: Thread | None, what: str = "") -> Thread:
        chosen = ready[0]
        usual = current if current is not None and current.waits_for is None else chosen
        if len(ready) > 1:
            chosen = self.strategy.choose(ready, current, self.step, what)
        if chosen is not usual:
            self.decisions.append((self.step, chosen.number))
        self._ask_at = min(self.strategy.quiet_until, self.crash_at)
        return chosen

    def _ready(self) -> list[Thread]:
        ready = [thread for thread in self.threads if thread.waits_for is None and not thread.done]
        if not ready:  # time passes only then
            ready = [thread for thread in self.threads if thread.may_time_out and not thread.done][
                :1
            ]
            for thread in ready:
                thread.waits_for, thread.may_time_out = None, False
        return ready

    def _switch(self, thread: Thread) -> None:
        self.current = thread
        thread.greenlet.switch()

    def block(self, on: object, may_time_out: bool = False) -> None:
        """The running thread waits until `wake` is called for ``on``; with ``may_time_out`` at the
        longest until no other thread can run.

        Raises:
            ProcessKilled: the process is gone, or the schedule is over.
        """
        current = self.current
        if current is None:
            if self.dead:
                raise ProcessKilled("the schedule is over")
            raise RuntimeError(f"waits for {on}, which no thread can give")
        self.step += 1
        current.waits_for, current.may_time_out = on, may_time_out
        ready = self._ready()
        if not ready:
            self._hub.switch()
        chosen = self._chosen(ready, current)
        if chosen is not current:
            self._switch(chosen)

    def wake(self, on: object) -> None:
        """Those that wait for it can run again."""
        for thread in self.threads:
            if thread.waits_for is on:
                thread.waits_for, thread.may_time_out = None, False
                self._ask_at = 0

    def waiting(self) -> str:
        """The threads that wait, each with the object that it waits for."""
        return ", ".join(
            f"{thread.name} for {thread.waits_for}" for thread in self.threads if thread.waits_for
        )
