"""A group of real nodes within one process, for tests: on a loop in a thread of its own, in memory
or on a disk, over sockets of loopback."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from dledger import forks
from dledger.client import Client
from dledger.config import GroupConfig, NodeConfig, from_settings, nearest
from dledger.config.dynamic import check_preferred
from dledger.embedded.group import NodeInfo
from dledger.embedded.ports import free_ports
from dledger.embedded.settings import check_replicas
from dledger.errors import ConfigError, PortInUse, Unavailable, UnknownOption
from dledger.net.loop import loop_factory
from dledger.node.node import NodeServer
from dledger.testing.volatile_disk import VolatileDisk
from dledger.types import NodeId, Role

T = TypeVar("T")

HOST: Final = "127.0.0.1"
_IN_MEMORY: Final = Path("/in-memory")
"""What messages name as the place of files that are on no disk."""
LEADER_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.005
"""Time between two looks at the nodes' roles."""
_TRIES: Final = 5
"""How often ports are drawn, in all: another process may take one before its node listens."""
DEFAULTS: Final[dict[str, Any]] = {
    "group": "test",
    "segment_bytes": 64 << 20,
    "index_file_bytes": 1 << 20,
    # how full the machine's own disk is says nothing about the program under test
    "disk_warn_ratio": 1.0,
    "disk_full_ratio": 1.0,
    "disk_reserve_bytes": 0,
    "scrub_bytes_per_s": 0,
}
"""Where they differ from those of other groups."""
_DECIDED: Final = ("members", "node_id", "host", "port")
_KNOWN: Final = ["replicas", *GroupConfig.__dataclass_fields__, *NodeConfig.__dataclass_fields__]


class InProcessGroup:
    """Nodes as they run anywhere else, but in this process: they start within moments, and end with
    it.

    Clients of any process on this machine reach them by ``bootstrap_servers``, and so does Spark in
    local mode. As a context manager, ends the group on exit.

    Args:
        replicas: how many nodes: 1, 3, 5 or 7.
        directory: for the nodes' files, which stay there; writes are synced, as anywhere else. In
            memory unless given: nothing is written to a disk, and nothing outlives the group.
        settings: fields of `GroupConfig` and `NodeConfig` by name.

    Raises:
        ConfigError, UnknownOption: a setting cannot be.
        Unavailable: the nodes elect no leader.
    """

    def __init__(
        self, replicas: int = 3, directory: str | os.PathLike[str] | None = None, **settings: Any
    ) -> None:
        check_replicas(replicas)
        for name in settings:
            if name in _DECIDED:
                raise ConfigError(f"{name} is not to choose: the group decides it")
            if name not in _KNOWN:
                raise UnknownOption(f"unknown setting {name!r}{nearest(name, _KNOWN)}")
        chosen = {**DEFAULTS, **settings}
        of_node = {
            name: chosen.pop(name)
            for name in list(chosen)
            if name in NodeConfig.__dataclass_fields__
        }
        members = tuple(NodeId(f"n{number}") for number in range(replicas))
        self._config = from_settings(GroupConfig, {**chosen, "members": members})
        check_preferred(self._config)
        self._node_settings = of_node
        self.directory = None if directory is None else Path(directory).absolute()
        self._disk = VolatileDisk() if directory is None else None
        self._born = forks.generation
        self._servers: dict[NodeId, NodeServer] = {}
        self._clients: list[Client] = []
        self._addresses: dict[NodeId, str] = {}
        self._loop = loop_factory()()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="dledger-test-group", daemon=True
        )
        self._thread.start()
        try:
            self._run(self._start_all())
            self.leader  # noqa: B018 - waits for one
        except BaseException:
            self.stop()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,…`` of all nodes, for `Client` and ``dledger.bootstrap.servers``."""
        return ",".join(self._addresses.values())

    @property
    def nodes(self) -> dict[NodeId, NodeInfo]:
        """Every node, as it is now; those that run are in this process."""
        found = {}
        for node, address in self._addresses.items():
            server = self._servers.get(node)
            role = server.raft.role if server is not None else None
            found[node] = NodeInfo(os.getpid() if server is not None else None, address, role)
        return found

    @property
    def leader(self) -> NodeId:
        """The node that leads now; waits while an election is on.

        Raises:
            Unavailable: there is no leader, e.g. because too few nodes run.
        """
        return self._run(self._find_leader())

    def client(self, **settings: Any) -> Client:
        """A client of the group, which ends with it; ``settings`` are those of `Client`."""
        client = Client(self.bootstrap_servers, **settings)
        self._clients.append(client)
        return client

    def kill(self, node_id: NodeId | str) -> None:
        """End a node at once, as a crash would: it answers nothing more, and saves nothing. The
        call does nothing when the node is not running."""
        self._run(self._kill(self._known(node_id)))

    def restart(self, node_id: NodeId | str) -> None:
        """Start a node again on its files, after a graceful end if it runs. Returns when it serves.

        Raises:
            DLedgerError: what kept the node from starting.
        """
        self._run(self._restart(self._known(node_id)))

    def stop(self) -> None:
        """End the group and its clients. Safe to call twice. In a forked child nothing: the group
        is the parent's."""
        if self._born != forks.generation or self._loop.is_closed():
            return
        for client in self._clients:
            client.close()
        try:
            self._run(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> InProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"InProcessGroup({self.bootstrap_servers!r})"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the nodes' loop, to its end."""
        try:
            forks.check_born_here(self._born, repr(self))
            if self._loop.is_closed():
                raise Unavailable(f"{self!r} has ended")
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _known(self, node_id: NodeId | str) -> NodeId:
        if node_id not in self._addresses:
            hint = nearest(node_id, list(self._addresses))
            raise ConfigError(
                f"there is no node {node_id!r}{hint}; the group has {', '.join(self._addresses)}"
            )
        return NodeId(node_id)

    async def _start_all(self) -> None:
        members = self._config.members
        for attempt in range(_TRIES):
            ports = free_ports(HOST, len(members))
            self._addresses = {
                node: f"{HOST}:{port}" for node, port in zip(members, ports, strict=True)
            }
            try:
                for node in members:
                    await self._start(node)
            except PortInUse:
                await self._kill_all()
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    async def _start(self, node: NodeId) -> None:
        own = {
            **self._node_settings,
            "node_id": node,
            "directory": (self.directory or _IN_MEMORY) / node,
            "port": int(self._addresses[node].rpartition(":")[2]),
        }
        server = NodeServer(
            self._config,
            from_settings(NodeConfig, own),
            addresses=lambda: dict(self._addresses),
            disk=self._disk,
        )
        await server.start()
        self._servers[node] = server

    async def _kill(self, node: NodeId) -> None:
        server = self._servers.pop(node, None)
        if server is not None:
            await server.kill()

    async def _kill_all(self) -> None:
        for node in list(self._servers):
            await self._kill(node)

    async def _end(self) -> None:
        """End the nodes and all tasks of the loop: nothing runs on behind this call."""
        await self._kill_all()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _restart(self, node: NodeId) -> None:
        server = self._servers.pop(node, None)
        if server is not None:
            await server.stop()
        await self._start(node)

    async def _find_leader(self) -> NodeId:
        end = self._loop.time() + LEADER_TIMEOUT_S
        while True:
            led = [
                server
                for server in self._servers.values()
                if server.raft.role is Role.LEADER and server.parts.proposals.caught_up
            ]
            # A leader without a majority leads until it notices, and commits nothing more.
            has_majority = 2 * len(self._servers) > len(self._addresses)
            if led and has_majority:
                return max(led, key=lambda server: server.raft.term).node.node_id
            if not has_majority or self._loop.time() > end:
                down = [node for node in self._addresses if node not in self._servers]
                raise Unavailable(
                    f"{self!r} has no leader; nodes that do not run: {', '.join(down) or 'none'}; "
                    "restart() them"
                )
            await asyncio.sleep(_LOOK_S)
