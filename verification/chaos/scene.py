"""The scene of a fault: nodes, links, the small disk, dice, and the problems found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dledger.client import AsyncClient
from dledger.errors import DLedgerError
from verification.chaos.acks import Acks
from verification.chaos.appends import Appends
from verification.chaos.floor import Floor
from verification.chaos.nodes import Nodes
from verification.chaos.process import REMOVED, Node
from verification.chaos.proxy import CLIENT, Link, Proxy, Rules
from verification.chaos.smalldisk import SmallDisk

BACK_S: Final = 30.0
"""So long a node may take to come back, and the group to acknowledge again."""


AGAIN: Final = 0.5
"""So often a node that was removed and has ended is started once more."""
SAID: Final = "was removed from the group"


class NoProgress(Exception):
    """The group does nothing although nothing is wrong any more: the run is over."""


@dataclass(slots=True)
class Scene:
    """One group under torture. ``dice`` are drawn anew for each fault."""

    nodes: Nodes
    proxy: Proxy
    acks: Acks
    appends: Appends
    floor: Floor
    small: SmallDisk
    say: Callable[[str], None]
    dice: random.Random = field(default_factory=random.Random)
    hush: Callable[[bool], None] = lambda quiet: None
    """True: clients begin nothing new until False."""
    problems: list[str] = field(default_factory=list)
    former: list[Node] = field(default_factory=list)
    """Nodes that the group has removed, until they are buried."""
    said_again: int = 0
    """So often an operator had to say a command once more."""

    def seconds(self, low: float = 1.5, high: float = 5.0) -> float:
        """For how long a fault lasts."""
        return self.dice.uniform(low, high)

    def problem(self, text: str) -> None:
        """Something that must not be; the run goes on and is red."""
        self.problems.append(f"at {self.acks.now_s():.1f} s: {text}")
        self.say(f"PROBLEM: {text}")

    async def leader(self) -> Node | None:
        """The node that leads; None when there is no leader for long."""
        name = await self.nodes.leader()
        return self.nodes[name] if name else None

    async def lead(self, nodes: list[Node]) -> Node | None:
        """The leader, after leadership was handed to one of ``nodes`` if that was possible."""
        leader = await self.leader()
        if leader is None or leader in nodes:
            return leader
        async with AsyncClient(self.nodes.bootstrap_servers, request_timeout_ms=5000) as client:
            with suppress(DLedgerError):
                await client.transfer(self.dice.choice(nodes).name)
        return await self.leader()

    def any_node(self, but: Node | None = None) -> Node:
        return self.nodes[
            self.dice.choice([name for name in self.nodes.names if but is None or name != but.name])
        ]

    async def follower(self) -> Node:
        """Any node but the leader."""
        return self.any_node(await self.leader())

    def minority(self) -> list[str]:
        """Any nodes without which the others can go on; one of two while another one moves."""
        most = max(1, len(self.nodes.names) - self.nodes.majority)
        return self.dice.sample(self.nodes.names, self.dice.randint(1, most))

    def around(self, names: list[str]) -> list[Link]:
        """All links between these nodes and all other nodes and clients, both ways."""
        others = [name for name in self.nodes.names if name not in names]
        return self.proxy.links(names, [*others, CLIENT], both_ways=True)

    async def hurt(self, links: list[Link], rules: Rules, seconds: float, counter: str) -> int:
        """These rules on these links for so long; how much of ``counter`` they did."""
        before = sum(getattr(link.counts, counter) for link in links)
        try:
            for link in links:
                link.set(rules)
            await asyncio.sleep(seconds)
        finally:
            for link in links:
                link.set(Rules())
        await asyncio.sleep(0.05)  # what was held learns now what becomes of it
        return int(sum(getattr(link.counts, counter) for link in links) - before)

    async def back(self, node: Node) -> None:
        """Wait until a node that was started answers, or ends where the group removes it."""

        async def answers() -> bool:
            return not node.running or bool(await node.status())

        await self.nodes.until(answers, BACK_S)
        if not await node.status() and not node.leaving:
            self.problem(f"{node.name} does not come back:\n{node.last_words()}")

    async def restart(self, *nodes: Node) -> None:
        """Start these, which have ended, and wait until they answer."""
        for node in nodes:
            if not node.running and not node.gone:
                node.start()
        for node in nodes:
            await self.back(node)

    def look_for_dead(self) -> None:
        """No node may end without being told to."""
        for node in self.nodes:
            if not node.running:
                node.reap()
                self.problem(
                    f"{node.name} ended by itself with code {node.exits[-1]}:\n{node.last_words()}"
                )
                node.start()

    async def bury(self) -> None:
        """Each node that was removed has ended for that, and a start of it is refused; then its
        files go."""
        for node in self.former:
            if not node.gone or self.dice.random() < AGAIN:
                if not node.running:
                    node.start()
                code = await node.ended(BACK_S)
                if code != REMOVED:
                    self.problem(
                        f"{node.name} was removed, and its start ends with code {code}:\n"
                        f"{node.last_words()}"
                    )
                    node.kill()
            if SAID not in node.last_words():
                self.problem(f"{node.name} was removed, and does not say so:\n{node.last_words()}")
            node.exchange_disk()
        self.former.clear()

    async def progress(self) -> None:
        """Wait until an append or a transaction is acknowledged.

        Raises:
            NoProgress: none is, though every node runs and every link works.
        """
        count = self.acks.count

        async def more() -> bool:
            return self.acks.count > count

        if not await self.nodes.until(more, BACK_S):
            states = {
                name: {
                    key: s.get(key)
                    for key in ("role", "term", "leader_id", "committed_index", "disk_level")
                }
                for name, s in (await self.nodes.statuses()).items()
            }
            raise NoProgress(f"nothing was acknowledged for {BACK_S:g} s; {states}")
