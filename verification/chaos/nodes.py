"""The processes of a group: its members now, those that came and went, and all gone in the end."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dledger.config import MIB
from dledger.embedded.ports import free_ports
from verification.chaos.process import HOST, PROXY_HOST, Node

PLAIN_FROM: Final = 5
"""Nodes from which on one is run as a user runs it."""
NODE_SETTINGS: Final[dict[str, Any]] = {
    "checkpoint_bytes": 2 * MIB,
    "disk_reserve_bytes": 8 * MIB,
    "disk_full_ratio": 1.0,
    "disk_warn_ratio": 1.0,
    "scrub_pause_ms": 500,
    "idle_timeout_ms": 180_000,
}
"""The last one: nodes whose campaign was killed end by themselves."""


class Nodes:
    """All nodes of a group; iterated, its members now.

    Args:
        path: an empty directory for all of them.
        count: how many. The first of five or more is run by ``dledger serve``: its power cannot be
            cut, and in a smaller group it would bring back what all others have lost.
        settings: of each node's `NodeConfig`, over `NODE_SETTINGS`.

    Attributes:
        names: of the members now; one list, which changes.
    """

    def __init__(self, path: Path, count: int, settings: Mapping[str, Any] | None = None) -> None:
        ports = free_ports(HOST, count)
        self.names = [f"n{at}" for at in range(count)]
        peers = {name: f"{PROXY_HOST}:{port}" for name, port in zip(self.names, ports, strict=True)}
        self.founders = count
        self._path = path
        self._settings = {**NODE_SETTINGS, **(settings or {})}
        self._by_name: dict[str, Node] = {}
        for name, port in zip(self.names, ports, strict=True):
            self._make(name, port, peers, plain=name == "n0" and count >= PLAIN_FROM)

    def _make(self, name: str, port: int, peers: Mapping[str, str], *, plain: bool) -> Node:
        home = self._path / name
        home.mkdir(parents=True)
        node = Node(name, port, home, peers, plain=plain, settings=self._settings)
        self._by_name[name] = node
        return node

    def new(self) -> Node:
        """A node with an empty directory and an id that none had, to be started; no member yet."""
        name, port = f"n{len(self._by_name)}", self.free_port()
        peers = {node.name: node.address for node in self}
        own = {name: f"{PROXY_HOST}:{port}"}
        node = self._make(name, port, {**peers, **own}, plain=False)
        node.joins = True
        return node

    def free_port(self) -> int:
        """A port that no node here has."""
        taken = {node.port for node in self._by_name.values()}
        return free_ports(HOST, 1, taken)[0]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the members now."""
        return ",".join(node.address for node in self)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Node]:
        return iter([self._by_name[name] for name in self.names])

    @property
    def ever(self) -> list[Node]:
        """The members now, and all that were."""
        return list(self._by_name.values())

    @property
    def majority(self) -> int:
        return len(self.names) // 2 + 1

    def start_missing(self) -> None:
        """Start every member that does not run."""
        for node in self:
            if not node.running:
                node.start()

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """The status of each member, all asked at the same time."""
        asked = list(self)
        found = await asyncio.gather(*(node.status() for node in asked))
        return dict(zip([node.name for node in asked], found, strict=True))

    async def leader(self, timeout_s: float = 20.0) -> str | None:
        """The node that leads in the highest term, waited for; None when there is none by then."""
        leaders: list[tuple[int, str]] = []

        async def there() -> bool:
            leaders[:] = [
                (s["term"], n)
                for n, s in (await self.statuses()).items()
                if s.get("role") == "LEADER"
            ]
            return bool(leaders)

        return max(leaders)[1] if await self.until(there, timeout_s) else None

    async def in_step(self, timeout_s: float) -> bool:
        """Wait until all run and have the same log, all of it committed and applied."""

        async def level() -> bool:
            found = (await self.statuses()).values()
            ends = {
                (s.get("end_index"), s.get("committed_index"), s.get("applied_index"))
                for s in found
            }
            return (
                len(ends) == 1 and len(set(next(iter(ends)))) == 1 and None not in next(iter(ends))
            )

        return await self.until(level, timeout_s)

    @staticmethod
    async def until(condition: Callable[[], Any], timeout_s: float) -> bool:
        """Ask again and again until it is so, or for so long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if await condition():
                return True
            await asyncio.sleep(0.05)
        return False

    async def stop(self) -> dict[str, int | None]:
        """End all gracefully, one after the other; node -> return code, None for one that had to be
        killed."""
        codes: dict[str, int | None] = {}
        for node in self:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
            codes[node.name] = await node.ended()
        self.kill()
        return codes

    def kill(self) -> None:
        """SIGKILL all that runs."""
        for node in self._by_name.values():
            node.kill()

    def remove(self) -> None:
        """Delete all files."""
        for node in self._by_name.values():
            shutil.rmtree(node.home, ignore_errors=True)
