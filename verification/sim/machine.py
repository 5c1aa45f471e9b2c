"""The simulated `dledger.environment`: a process's clocks, its dice, and its threads as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dledger.environment import Environment, Turn, Worker
from verification.sim.loop import SimLoop
from verification.sim.rng import Rng
from verification.sim.scheduler import MS, SECOND
from verification.sim.turns import TurnUnderWay


class Machine(Environment):
    """Clocks, dice and threads that one process takes from its machine."""

    def __init__(
        self,
        loop: SimLoop,
        dice: Rng,
        bad_luck: int = 0,
        on_bad_luck: Callable[[], None] = lambda: None,
    ) -> None:
        """``bad_luck``: so many draws in a million are the lowest or the highest there is: the
        earliest time-out, the same one everywhere, the longest pause."""
        self._loop = loop
        self._dice = dice
        self._bad_luck = bad_luck
        self._on_bad_luck = on_bad_luck

    def now_ms(self) -> int:  # type: ignore[override]
        return self._loop.clock.local_ns() // MS

    def wall_us(self) -> int:  # type: ignore[override]
        return self._loop.clock.wall_us()

    def below(self, n: int) -> int:  # type: ignore[override]
        if n < 1 << 60 and self._dice.chance(self._bad_luck):
            self._on_bad_luck()
            return 0 if self._dice.chance(700_000) else n - 1
        return self._dice.below(n)

    @staticmethod
    def is_here(host: str) -> bool:
        """No two processes of a simulation share a machine, under any name of the host."""
        return False

    def pid(self) -> int:  # type: ignore[override]
        return 1

    def program(self) -> str:
        return self._loop.name

    def worker(self, name: str, turn: Turn, pause_s: float = 0.0) -> Worker:
        return SimWorker(self._loop, turn, int(pause_s * SECOND))


class SimWorker:
    """A thread: takes all jobs that wait, a little later; its callbacks arrive when the disk is
    done."""

    def __init__(self, loop: SimLoop, turn: Turn, pause_ns: int) -> None:
        self._loop = loop
        self._turn = turn
        self._pause_ns = pause_ns
        self._jobs: list[Any] = []
        self._started = False
        self._ended = False
        self._due = False
        self._busy = False
        self._again_ns = 0
        self._under_way: TurnUnderWay | None = None
        self._now = self._run_now
        self.put: Callable[[Any], None] = self._put

    def start(self) -> None:
        self._started = True
        if self._jobs:
            self._arm(0)

    def join(self) -> None:
        if not self._ended:
            self._ended = True
            if self._under_way is not None:
                self._loop.turns.finish(self._under_way)
            jobs, self._jobs = self._jobs, []
            self._turn(jobs, True)

    def _put(self, job: Any) -> None:
        self._jobs.append(job)
        self._arm(0)

    def _arm(self, delay_ns: int) -> None:
        if self._started and not self._due and not self._busy and not self._ended:
            self._due = True
            self._loop.turns.due.append(self._now)
            latency = self._loop.latency_ns()
            early = self._loop.rng.below(latency + 1)
            self._loop.scheduler.after(delay_ns + early, self._run, latency - early)

    def _run(self, rest: int) -> None:
        loop = self._loop
        if not self._due or loop.hold(self._run, rest):
            return
        self._due = False
        self._loop.turns.due.remove(self._now)
        if self._ended:
            return
        jobs, self._jobs = self._jobs, []
        self._busy = True
        self._under_way = loop.turns.begin(lambda: self._turn(jobs, False), rest, self._done)

    def _run_now(self) -> None:
        """Begin while the loop is inside an operation of the disk."""
        self._run(0)

    def _done(self, wait: float | None) -> None:
        self._loop.scheduler.after(self._pause_ns, self._free, wait)

    def _free(self, wait: float | None) -> None:
        """The turn is over."""
        self._busy = False
        if self._loop.dead:
            return
        if self._jobs:
            self._arm(0)
        elif wait is not None:
            self._again_ns = now = self._loop.scheduler.now_ns + int(wait * SECOND)
            self._loop.scheduler.at(now, self._again, now)

    def _again(self, now: int) -> None:
        if now == self._again_ns and not self._loop.dead:
            self._arm(0)
