"""Programs that start, join and end the group of one directory under the scheduler: the stand-ins
for the system in `dledger.embedded`.

The directory, its files and their locks are real.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from dledger import forks
from dledger.embedded import group, home, process, start
from verification.interleave.machine import Machine
from verification.interleave.node_processes import NodeProcesses

POINTS: Final = ("open", "pread", "pwrite", "ftruncate")


@contextmanager
def stands_in(machine: Machine, nodes: NodeProcesses) -> Iterator[None]:
    """The machine and its nodes stand in for the system, in the modules that start, join and end
    groups."""
    system = SwitchingOs(machine)
    clock = SimpleNamespace(time=time.time, monotonic=lambda: machine.now_s, sleep=machine.sleep)
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
        process: {"os": system, "start_time": machine.start_time},
        start: {
            "time": clock,
            "free_ports": machine.free_ports,
            "note_group": lambda *_: None,
            "_check_free_space": lambda *_: None,
            "spawn_nodes": nodes.spawn,
            "wait_for_leader": nodes.leader,
        },
        group: {
            "os": system,
            "time": clock,
            "wait_for_leader": nodes.leader,
            "application_pid": machine.getpid,
            "_holds": Holds(machine),
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
        forks.let_go(descriptor)  # even when the process is killed: its files are closed
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
