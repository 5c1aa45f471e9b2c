"""A machine with an empty disk takes the place of a member whose id was removed and added again.

It is started without ``--join``, as any machine is that takes another one's place under its id.
With the log it gets the entry that removed the id, which is no reason to end
(`dledger.raft.roles.removal`).
"""

from __future__ import annotations

from typing import Final

from dledger.types import NodeId
from verification.sim.cluster import Node, World
from verification.sim.damage import Damage
from verification.sim.scheduler import MS

FAULT: Final = "machine of an id that was added again"
LOSE_A_DISK: Final = ("empty disk", "machine back")
"""A seed with one of these has it."""
LATEST_MS: Final = 5000
"""By then after the id was added again."""


class Renewed:
    """Replaces such machines, of those whose disks may be lost."""

    def __init__(self, world: World, damage: Damage) -> None:
        self._world = world
        self._damage = damage
        self._rng = world.rng.fork(FAULT)
        self._removed: set[NodeId] = set()
        self.active = any(map(world.plan.has, LOSE_A_DISK))

    def removed(self, node: Node) -> None:
        """The group has this id in its list no more."""
        self._removed.add(node.name)

    def added(self, node: Node) -> None:
        """The group has this id in its list."""
        if self.active and node.name in self._removed and self._rng.chance(600_000):
            self._world.scheduler.after(self._rng.spread(5, LATEST_MS) * MS, self._strike, node)

    def _strike(self, node: Node) -> None:
        if not self.active or not self._damage.may_lose(node):
            return
        self._world.story.tell("members", f"another machine is {node.name}, without --join")
        node.joins, node.peers, node.told = False, tuple(self._world.plan.names), ()
        self._damage.lose(node, {})
        self._world.counts.bite(FAULT)
