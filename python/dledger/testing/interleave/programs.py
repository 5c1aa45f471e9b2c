"""Programs that start, join and end the group of one directory under the scheduler, and the
processes of its nodes.

The directory, its files and their locks are real. Processes are threads of the schedule, signals
end them at their next switching point, and what waits by the clock goes on when nothing else can
happen.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from dledger import forks
from dledger.embedded import group, home, process, start
from dledger.embedded.child import Addresses, Watch
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home, PidFile
from dledger.embedded.spawning import Killed
from dledger.errors import DLedgerError, PortInUse
from dledger.net.address import split_address
from dledger.testing.disk.memory_disk import ProcessKilled
from dledger.testing.interleave.scheduler import Scheduler, Thread
from dledger.testing.sim.rng import Rng
from dledger.types import NodeId

FORMER_S: Final = 20.0
"""As `dledger.embedded.child` waits for a former process of its node."""
NO_SERVER: Final[Any] = None
"""What a `Watch` asks it is asked elsewhere here."""
SHORT_SLEEPS: Final = 2
"""So many first sleeps of a process may be shorter than what others do meanwhile."""
POINTS: Final = ("open", "pread", "pwrite", "ftruncate")
FIRST_PID: Final = 1 << 30
"""Above every real one, so that what is looked up in /proc by mistake is not there."""
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
    """As the table of processes has it, whatever the process still holds."""
    terminated: bool = False
    sleeps: int = 0
    holds: Counter[str] = field(default_factory=Counter)
    """What `EmbeddedGroup` counts in it."""

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
        """Called where somebody is about to end a node."""
        self.nodes: list[Node] = []
        self._boot = boot
        self.ports: dict[int, Process] = {}
        """Who listens."""
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
        """See `os.kill`. Who is killed is there until it has its turn."""
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
        """Those that were killed and are not gone, but for whoever asks."""
        return [
            one
            for one in self._processes.values()
            if one.killed and one is not self.me and one.thread is not None and not one.thread.done
        ]

    @property
    def is_ending(self) -> bool:
        """Whether something was killed that is not gone yet."""
        return bool(self._ending())

    def _let_the_killed_end(self) -> None:
        """What takes its time takes longer than the kernel needs for them."""
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
        self._let_the_killed_end()
        me.sleeps += 1
        if me.sleeps <= SHORT_SLEEPS:
            self.now_s += seconds
            self.point("sleep")
            return
        heappush(self._due, (self.now_s + seconds, me.pid, me))
        self.scheduler.wake(self._clock)
        self.wait(me)

    def _let_time_pass(self) -> None:
        """The clock's thread: what is due first goes on, once nothing else can happen."""
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

    @contextmanager
    def stands_in(self) -> Iterator[None]:
        """For the system, in the modules that start, join and end groups."""
        system = SwitchingOs(self)
        clock = SimpleNamespace(time=time.time, monotonic=lambda: self.now_s, sleep=self.sleep)
        locks = SimpleNamespace(**{**vars(fcntl), "flock": system.flock})
        others: dict[Any, dict[str, Any]] = {
            home: {
                "os": system,
                "fcntl": locks,
                "time": clock,
                "reap": lambda pid: None,
                "open_for_lock": system.open_for_lock,
                "let_go": system.let_go,
            },
            process: {"os": system, "start_time": self.start_time},
            start: {
                "time": clock,
                "free_ports": self.free_ports,
                "note_group": lambda *_: None,
                "_check_free_space": lambda *_: None,
                "spawn_nodes": self._spawn,
                "wait_for_leader": self._leader,
            },
            group: {
                "os": system,
                "time": clock,
                "wait_for_leader": self._leader,
                "application_pid": self.getpid,
                "_holds": Holds(self),
            },
        }
        before = {
            module: {name: vars(module)[name] for name in names} for module, names in others.items()
        }
        for module, names in others.items():
            vars(module).update(names)
        try:
            yield
        finally:
            for module, names in before.items():
                vars(module).update(names)

    # --- nodes ------------------------------------------------------------------------------------

    def _spawn(self, where: Home, nodes: list[NodeId]) -> dict[NodeId, DLedgerError | None]:
        """See `dledger.embedded.spawning.spawn_nodes`."""
        if not nodes:
            return {}
        made = [Node(self, where, node) for node in nodes]
        self.nodes += made
        self._let_the_killed_end()
        for node in made:
            while not node.has_said:
                self.wait(node)
        return {node.node_id: node.error for node in made}

    def _leader(
        self, addresses: dict[NodeId, str], group: str, timeout_s: float, tls: object
    ) -> NodeId | None:
        """See `dledger.embedded.probe.wait_for_leader`."""
        deadline = self.now_s + timeout_s
        while True:
            self._let_the_killed_end()
            self.point("ask for the leader")
            there = [
                node
                for node, address in addresses.items()
                if split_address(address)[1] in self.ports
            ]
            if 2 * len(there) > len(addresses):
                return there[0]
            if self.now_s >= deadline:
                return None
            self.sleep(0.01)


class SwitchingOs:
    """``os`` and ``fcntl.flock`` with switching points."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.getpid, self.kill = machine.getpid, machine.kill
        self.flock = self._behind("flock", fcntl.flock)
        self.open_for_lock = self._behind("open", forks.open_for_lock)

    def _behind(self, point: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._machine.point(point)
            return function(*arguments)

        return call

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._behind(name, found) if name in POINTS else found

    def let_go(self, descriptor: int) -> None:
        forks.let_go(descriptor)  # whatever happens to the process: its files are closed
        self._machine.point("close")


class Holds:
    """A counter of each process's own."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._outside: Counter[str] = Counter()

    def _mine(self) -> Counter[str]:
        me = self._machine.me
        return self._outside if me is None else me.holds

    def __getitem__(self, name: str) -> int:
        return self._mine()[name]

    def __setitem__(self, name: str, count: int) -> None:
        self._mine()[name] = count


class Node:
    """A node's process: as `dledger.embedded.child`, without a store."""

    def __init__(self, machine: Machine, where: Home, node_id: NodeId) -> None:
        self._machine, self._home = machine, where
        self.node_id = node_id
        self.has_said = False
        self.error: DLedgerError | None = Killed(f"node {node_id} was killed before it served")
        self.is_starting = False
        """It has its lock, or waits for it, and does not serve yet."""
        self._asked = False
        self.process = machine.run(str(node_id), self._main, service=True)

    def _main(self, me: Process) -> None:
        try:
            pid_file = PidFile(self._home, self.node_id)
            try:
                self._serve(me, pid_file)
            finally:
                self._let_go(me, pid_file)
        finally:
            self._say(self.error)

    def _let_go(self, me: Process, pid_file: PidFile) -> None:
        """The lock goes before the process, or behind it, as the kernel ends several threads in any
        order."""
        scheduler = self._machine.scheduler
        first = me.killed and self._machine.rng.chance(500_000)
        if first:
            me.is_there = False
        try:
            if not scheduler.dead:
                scheduler.point("ends", self.node_id)
        finally:
            os.close(pid_file._descriptor)
            scheduler.wake(me)

    def _say(self, error: DLedgerError | None) -> None:
        if not self.has_said:
            self.has_said, self.error = True, error
            self._machine.scheduler.wake(self)

    def _serve(self, me: Process, pid_file: PidFile) -> None:
        machine = self._machine
        self.is_starting = True
        if not pid_file.acquire(FORMER_S):
            self.is_starting = False
            self._say(None)  # it runs already
            return
        file = self._home.read()
        assert file is not None, "group.json is there before a node is started"
        port = split_address(file.addresses[self.node_id])[1]
        self.is_starting = False
        if port in machine.ports:
            self._say(PortInUse(f"port {port}"))
            return
        machine.ports[port] = me
        machine.point("serves", self.node_id)
        self._say(None)
        self._wait_for_a_reason(
            me, Watch(self._home, Addresses(self._home, file), pid_file, NO_SERVER)
        )
        pid_file.write(ending=True)
        machine.point("drains", self.node_id)
        del machine.ports[port]
        pid_file.clear()

    def _wait_for_a_reason(self, me: Process, watch: Watch) -> None:
        while not me.terminated:
            asked, self._asked = self._asked, False
            if asked and watch.unneeded() and watch._announce_end():
                return
            if not me.terminated and not self._asked:
                self._machine.wait(me)

    def look_whether_idle(self) -> None:
        """The time for it has come."""
        self._asked = True
        self._machine.scheduler.wake(self.process)
        self._machine.point("idle", self.node_id)


def serving(machine: Machine, file: GroupFile) -> set[NodeId]:
    """Nodes that can be reached where group.json says, or are about to."""
    found = {node.node_id for node in machine.nodes if node.is_starting and node.process.lives}
    for node, address in file.addresses.items():
        owner = machine.ports.get(split_address(address)[1])
        if owner is not None and owner.lives:
            found.add(node)
    return found


class Directory:
    """Of a group, removed when the schedule has ended."""

    def __init__(self) -> None:
        shm = Path("/dev/shm")
        self._folder = Path(
            tempfile.mkdtemp(prefix="dledger-programs-", dir=shm if shm.is_dir() else None)
        )
        self.path = self._folder / "log"

    def remove(self) -> None:
        with suppress(OSError):
            shutil.rmtree(self._folder)
