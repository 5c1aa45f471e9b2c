"""Seeded worlds in which machines die, are replaced and admitted, and come back with the disks that
they had.

One disk of the members is lost at a time, as P1 allows: the next machine dies when the others have
all that is committed. A machine that was replaced may come back at any time, in the place of the
one that replaced it.
"""

from __future__ import annotations

import random

from dledger.types import NodeId
from tests.raft.raft_harness import SimDisk, World, check_seeds, new_group
from tests.raft.test_raft_chaos import chaos_of, cut_links, keep_busy

SEEDS = 60
TROUBLE_MS = 5000


class Machines:
    """Which disk is where."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.drawn = 1000
        self.replaced: NodeId | None = None
        """Its machine was replaced last."""
        self.away: SimDisk | None = None
        """The disk that is not in the member's place: the former one, or the new one while the
        former is back."""
        self.is_back = False

    def go_on(self) -> None:
        world, dice = self.world, self.dice
        if world.now_ms >= TROUBLE_MS:
            return
        if self.is_back or (self.away is not None and dice.random() < 0.3):
            self.swap()
        elif not self._is_admitted():
            self._admit()
        elif dice.random() < 0.6:
            self._replace()
        world.after(dice.randint(50, 700), self.go_on)

    def swap(self) -> None:
        """The other one of the member's two machines starts at its address."""
        world, member = self.world, self.replaced
        assert member is not None
        assert self.away is not None
        away, self.away, self.is_back = self.away, world.members[member].disk, not self.is_back
        world.put(member, away)
        world.counts["machines back"] += self.is_back

    def _is_admitted(self) -> bool:
        world, leader = self.world, self.world.leader
        if self.replaced is None:
            return True
        if leader is None:
            return False
        node, disk = world.node(leader), world.members[self.replaced].disk
        return node.membership.of(self.replaced) == disk.membership.incarnation and node.is_known(
            node.membership.index
        )

    def _admit(self) -> None:
        world, leader = self.world, self.world.leader
        if (
            leader is not None
            and self.replaced is not None
            and world.admit(leader, self.replaced) is not None
        ):
            world.counts["admissions"] += 1

    def _replace(self) -> None:
        world = self.world
        member = self.dice.choice(world.config.members)
        others = [state.disk for name, state in world.members.items() if name != member]
        founded = all(disk.membership.founded for disk in others)
        if founded and all(disk.durable >= len(world.committed) for disk in others):
            self.drawn += 1
            self.replaced, self.away, self.is_back = (
                member,
                world.replace(member, self.drawn),
                False,
            )
            world.counts["machines replaced"] += 1


def run_world(seed: int) -> World:
    dice = random.Random(f"machines {seed}")
    count = dice.choice([3, 3, 3, 4, 5])
    world = new_group(count, seed, cache_bytes=dice.choice([100, 500, 4000]))
    world.elect()
    world.chaos = chaos_of(dice)
    keep_busy(world, dice)
    cut_links(world, dice)
    machines = Machines(world, dice)
    world.after(500, machines.go_on)
    world.run(TROUBLE_MS)
    if machines.is_back:
        machines.swap()
    world.mend()
    before = len(world.committed)
    world.run_until(lambda: len(world.committed) > before + 3)
    return world


BITES = {"admissions": 25, "machines replaced": 50, "machines back": 60}


def test_replaced_machines_that_come_back_break_no_promise():
    check_seeds(run_world, SEEDS, BITES)
