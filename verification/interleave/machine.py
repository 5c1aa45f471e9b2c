"""One boot of a machine under the scheduler: processes, ports and the time.

Processes are threads of the schedule, signals end them at their next switching point, and a wait by
the clock ends when no other thread can run.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from verification.disk.memory_disk import ProcessKilled
from verification.interleave.scheduler import Scheduler, Thread
from verification.sim.rng import Rng

SHORT_SLEEPS: Final = 2
"""So many first sleeps of a process may be shorter than what others do meanwhile."""
FIRST_PID: Final = 1 << 30
"""Above every real one, so that a process looked up in /proc by mistake is not there."""
MOST_PROCESSES: Final = 1 << 16
"""In one boot."""


@dataclass(eq=False)
class Process:
    """A program or a node, which is one thread of the schedule."""

    pid: int
    thread: Thread | None = None
    killed: bool = False
    """It ends at its next switching point."""
    is_there: bool = True
    """Whether the table of processes has it. A process that has left the table may still hold
    files."""
    terminated: bool = False
    sleeps: int = 0
    holds: Counter[str] = field(default_factory=Counter)
    """The counts of `EmbeddedGroup` in this process."""

    @property
    def lives(self) -> bool:
        """Whether it goes on."""
        return self.is_there and not self.killed


class Machine:
    """One boot: processes, ports and the time. Its calls stand in for the system's in
    `dledger.embedded`."""

    def __init__(self, scheduler: Scheduler, rng: Rng, boot: int = 0) -> None:
        """``boot``: another number for each; no process of one is there in the next one."""
        self.scheduler = scheduler
        self.rng = rng
        self.kills = 0
        """SIGKILLs so far."""
        self.on_terminate: Callable[[], object] = lambda: None
        """Called when a program is about to end a node."""
        self._boot = boot
        self.ports: dict[int, Process] = {}
        """Port -> the process that listens there."""
        self.now_s = 0.0
        self._processes: dict[int, Process] = {}
        self._due: list[tuple[float, int, Process]] = []
        self._next_port = 20_000
        self._clock = scheduler.spawn("clock", self._let_time_pass, service=True)

    # --- processes --------------------------------------------------------------------------------

    def run(
        self, name: str, function: Callable[[Process], object], service: bool = False
    ) -> Process:
        """Start one. ``service``: see `Scheduler.spawn`."""
        made = Process(FIRST_PID + self._boot * MOST_PROCESSES + len(self._processes))
        made.sleeps = SHORT_SLEEPS * self.rng.below(2)
        self._processes[made.pid] = made

        def body() -> None:
            try:
                function(made)
            finally:
                made.is_there = False
                self.scheduler.wake(made)
                for port in [port for port, owner in self.ports.items() if owner is made]:
                    del self.ports[port]

        made.thread = self.scheduler.spawn(name, body, service)
        return made

    @property
    def me(self) -> Process | None:
        current = self.scheduler.current
        return (
            next((one for one in self._processes.values() if one.thread is current), None)
            if current
            else None
        )

    def point(self, what: str, where: object = "") -> None:
        """A switching point, at which a process that was killed ends."""
        self.scheduler.point(what, where)
        me = self.me
        if me is not None and me.killed:
            raise ProcessKilled(what)

    def wait(self, on: object) -> None:
        """Until `Scheduler.wake` is called for it, or the process is killed."""
        self.scheduler.block(on)
        self.point("woken")

    def kill(self, pid: int, number: int) -> None:
        """See `os.kill`. A killed process is there until it has its turn."""
        found = self._processes.get(pid)
        if found is None or not found.is_there:
            raise ProcessLookupError(pid)
        if number == signal.SIGKILL:
            self.kills += 1
            found.killed = True
        else:
            self.on_terminate()
            found.terminated = True
        if found.thread is not None and found.thread.waits_for is not None:
            self.scheduler.wake(found.thread.waits_for)
        self.point("signal", pid)

    def _ending(self) -> list[Process]:
        """Processes that were killed and are not gone; the calling process is left out."""
        return [
            one
            for one in self._processes.values()
            if one.killed and one is not self.me and one.thread is not None and not one.thread.done
        ]

    @property
    def is_ending(self) -> bool:
        """Whether a process was killed and is not gone yet."""
        return bool(self._ending())

    def let_the_killed_end(self) -> None:
        """Wait until all killed processes are gone: a call that takes time takes longer than the
        kernel needs to end them."""
        while ending := self._ending():
            self.wait(ending[0])

    def start_time(self, pid: int) -> str:
        """See `dledger.embedded.process.start_time`."""
        found = self._processes.get(pid)
        return "1" if found is not None and found.is_there else ""

    def getpid(self) -> int:
        me = self.me
        return FIRST_PID - 1 if me is None else me.pid

    # --- time -------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`."""
        me = self.me
        if me is None:
            self.now_s += seconds
            return
        self.let_the_killed_end()
        me.sleeps += 1
        if me.sleeps <= SHORT_SLEEPS:
            self.now_s += seconds
            self.point("sleep")
            return
        heappush(self._due, (self.now_s + seconds, me.pid, me))
        self.scheduler.wake(self._clock)
        self.wait(me)

    def _let_time_pass(self) -> None:
        """The clock's thread: the process that is due first goes on, once no other thread can
        run."""
        while True:
            self.scheduler.block(self._clock)
            while self._due:
                self.scheduler.block(self, may_time_out=True)
                self.now_s, _, sleeper = heappop(self._due)
                self.scheduler.wake(sleeper)

    def free_ports(self, _: str, count: int, avoid: set[int] | None = None) -> list[int]:
        """See `dledger.embedded.ports.free_ports`; a stranger may take one before its node does."""
        found = range(self._next_port, self._next_port + count)
        self._next_port += count
        if self.rng.chance(100_000):
            self.ports[found[0]] = Process(0)
        return list(found)
