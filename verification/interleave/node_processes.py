"""Processes of nodes under the scheduler: their locks, ports and ends, without a store."""

from __future__ import annotations

import os
from typing import Any, Final

from dledger.embedded.child import Addresses, Watch
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home, PidFile
from dledger.embedded.spawning import Killed
from dledger.errors import DLedgerError, PortInUse
from dledger.net.address import split_address
from dledger.types import NodeId
from verification.interleave.machine import Machine, Process

FORMER_S: Final = 20.0
"""As `dledger.embedded.child` waits for a former process of its node."""
NO_SERVER: Final[Any] = None
"""The questions of a `Watch` to a server are answered elsewhere here."""


class NodeProcess:
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
            me, Watch(self._home, Addresses(self._home, file), pid_file=pid_file, server=NO_SERVER)
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


class NodeProcesses:
    """All node processes of one boot."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.started: list[NodeProcess] = []

    def spawn(self, where: Home, nodes: list[NodeId]) -> dict[NodeId, DLedgerError | None]:
        """See `dledger.embedded.spawning.spawn_nodes`."""
        if not nodes:
            return {}
        made = [NodeProcess(self._machine, where, node) for node in nodes]
        self.started += made
        self._machine.let_the_killed_end()
        for node in made:
            while not node.has_said:
                self._machine.wait(node)
        return {node.node_id: node.error for node in made}

    def leader(
        self, addresses: dict[NodeId, str], group: str, timeout_s: float, tls: object
    ) -> NodeId | None:
        """See `dledger.embedded.probe.wait_for_leader`."""
        deadline = self._machine.now_s + timeout_s
        while True:
            self._machine.let_the_killed_end()
            self._machine.point("ask for the leader")
            there = [
                node
                for node, address in addresses.items()
                if split_address(address)[1] in self._machine.ports
            ]
            if 2 * len(there) > len(addresses):
                return there[0]
            if self._machine.now_s >= deadline:
                return None
            self._machine.sleep(0.01)

    def serving(self, file: GroupFile) -> set[NodeId]:
        """Nodes that can be reached where group.json says, or are about to."""
        found = {node.node_id for node in self.started if node.is_starting and node.process.lives}
        for node, address in file.addresses.items():
            owner = self._machine.ports.get(split_address(address)[1])
            if owner is not None and owner.lives:
                found.add(node)
        return found
