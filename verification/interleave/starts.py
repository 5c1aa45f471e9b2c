"""Programs that start, join and end one group at the same time, while nodes and programs are
killed: a program that has asked for the group has a whole one, and always the same one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar

from dledger.embedded.group import EmbeddedGroup, connect_path
from dledger.embedded.home import Home
from dledger.errors import DLedgerError
from verification.disk_states.promise import require
from verification.interleave.machine import Machine, Process
from verification.interleave.node_processes import NodeProcesses
from verification.interleave.programs import Directory, stands_in
from verification.interleave.scenarios import LOG, Run, Scenario
from verification.interleave.scheduler import Scheduler
from verification.interleave.strategies import Replay
from verification.sim.rng import Rng

IDLE: Final[dict[str, Any]] = {"idle_timeout_ms": 1}
T = TypeVar("T")


class Programs:
    """The programs of a schedule, and the checks of their answers."""

    def __init__(self, run: Run) -> None:
        self._directory = Directory()
        self.machine = Machine(run.scheduler, run.rng.fork("machine"))
        self._nodes = NodeProcesses(self.machine)
        self.machine.on_terminate = self._no_other_uses_it
        self._replicas = run.rng.pick((1, 3, 3))
        self._group = ""
        """The id of the first group that was seen."""
        self.users: dict[Process, tuple[int, bool]] = {}
        """Programs that use the group -> the number of kills before, and whether the program holds
        an `EmbeddedGroup`."""
        self._busy: set[Process] = set()
        """Programs that have not done yet what they wanted."""
        self._stack = ExitStack()
        self._stack.enter_context(stands_in(self.machine, self._nodes))
        run.life.was_damaged = True  # the store beside it has nothing to do with it
        run.at_end.append(self._look_at_users)
        run.at_start.append(lambda disk: self._after_a_boot())
        run.at_last += [self._stack.close, self._directory.remove]

    def _no_other_uses_it(self) -> None:
        others = [user.pid for user in self.users if user is not self.machine.me and user.lives]
        require(not others, f"a node is ended although programs {others} use the group")

    def run(self, name: str, wants: Callable[[Process], object]) -> Process:
        """A program that goes on living when it has what it wants."""

        def body(me: Process) -> None:
            self._busy.add(me)
            wants(me)
            self._busy.discard(me)
            if me in self.users:
                self.machine.wait(body)
            self.let_idle()

        return self.machine.run(name, body, service=True)

    def hold(self, me: Process, then: Callable[[EmbeddedGroup], object] = lambda _: None) -> None:
        """A program with an `EmbeddedGroup`."""
        held = self._asked(
            me, partial(EmbeddedGroup, self._directory.path, self._replicas, **IDLE), holds=True
        )
        if held is not None:
            then(held)

    def hold_and_end(self, me: Process) -> None:
        def end(held: EmbeddedGroup) -> None:
            self.users.pop(me, None)
            held.stop()

        self.hold(me, end)

    def hold_and_start_again(self, me: Process) -> None:
        """Start the group again: nodes may have been killed meanwhile."""

        def start_again(held: EmbeddedGroup) -> None:
            self.kill_nodes(3)
            self.users.pop(me, None)
            self._asked(me, held.start, holds=True)

        self.hold(me, start_again)

    def connect(self, me: Process) -> None:
        """A program that names the path."""
        self._asked(
            me, partial(connect_path, self._directory.path, self._replicas, **IDLE), holds=False
        )

    def _asked(self, me: Process, call: Callable[[], T], *, holds: bool) -> T | None:
        """The result of the call; None where it failed because a process was killed. A program that
        only names the path looks once: a node that was just killed may then look as if it ran."""
        before = -1 if self.machine.is_ending and not holds else self.machine.kills
        try:
            given = call()
        except DLedgerError as error:
            require(
                self.machine.kills > before, f"nothing was killed, and there is no group: {error}"
            )
            return None
        self._look(before, holds)
        self.users[me] = before, holds
        return given

    def connect_and_leave(self, me: Process) -> None:
        """A program that ends soon: it stops counting as a user of the group."""
        self.connect(me)
        self.users.pop(me, None)

    def _look(self, before: int, holds: bool) -> None:
        """The group is whole, unless a process was killed since. A program that only names the path
        leaves a node alone that has just failed to start (`start._without_hopeless`)."""
        where = Home(self._directory.path)
        file = where.read()
        require(file is not None, "there is a group without a group.json")
        assert file is not None
        self._group = self._group or file.group
        require(file.group == self._group, "there is another group than before")
        left_alone = set() if holds else {node for node in file.local if where.failed_lately(node)}
        missing = set(file.local) - self._nodes.serving(file) - left_alone
        if self.machine.kills == before:
            require(
                not missing,
                f"a program was told that the group runs, without {', '.join(sorted(missing))}",
            )

    def _look_at_users(self) -> None:
        busy = [process.pid for process in self._busy if process.lives]
        require(not busy, f"programs {busy} wait for ever")
        for user, (before, holds) in self.users.items():
            if user.lives:
                self._look(before, holds)

    def kill(self, processes: list[Process]) -> None:
        """SIGKILL, without waiting for their ends."""
        for process in processes:
            if process.is_there:
                self.users.pop(process, None)
                self.machine.kill(process.pid, signal.SIGKILL)

    def kill_nodes(self, most: int) -> None:
        """So many of those that run."""
        there = [
            node.process
            for node in self._nodes.started
            if node.process.is_there and not node.process.killed
        ]
        self.kill(there[:most])

    def let_idle(self) -> None:
        """The idle time is over."""
        used = self._directory.path / ".used"
        if used.parent.exists():
            used.touch()
            os.utime(used, (0, 0))
        for node in list(self._nodes.started):
            node.look_whether_idle()

    def _after_a_boot(self) -> None:
        """All processes are gone; the next program finds the group."""
        self._stack.close()
        scheduler = Scheduler(Replay({}))
        self.machine = machine = Machine(scheduler, Rng(1), boot=1)
        self._nodes = NodeProcesses(machine)
        self.users.clear()
        with stands_in(machine, self._nodes):
            self.run("program", self.hold)
            scheduler.run()
            self._look_at_users()
            require(bool(self.users), "no group was started after a boot")


def starts(run: Run) -> None:
    """Two to four programs, with kills of them and of nodes meanwhile."""
    programs, rng = Programs(run), run.rng
    wants = (
        programs.connect,
        programs.connect_and_leave,
        programs.hold,
        programs.hold_and_end,
        programs.hold_and_start_again,
    )
    made = []
    for number in range(rng.between(2, 4)):
        what = rng.pick(wants)
        made.append(programs.run(f"program {number}", what))
    if run.now_and_then():
        run.thread("killer", *run.times(partial(programs.kill_nodes, rng.between(1, 3)), 2))
    if rng.chance(600_000):
        run.thread("idle", *run.times(programs.let_idle, 3))
    if rng.chance(200_000):
        run.thread("user", partial(programs.kill, made[:1]))


PROGRAM_SCENARIOS: Final = (Scenario("embedded starts", LOG, starts),)
