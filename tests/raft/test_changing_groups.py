"""Seeded worlds that change their members among lost messages, cuts and crashes: machines are
added, promoted, demoted, removed and replaced, and the disks of removed ones come back."""

from __future__ import annotations

import random

from dledger.protocol.messages.membership import Member
from dledger.types import NodeId
from tests.raft.members_world import (
    LEARNER,
    OBSERVER,
    VOTER,
    ChangingWorld,
    List,
    member,
    with_role,
    without,
)
from tests.raft.raft_harness import SimDisk, check_seeds
from tests.raft.test_raft_chaos import chaos_of, cut_links, keep_busy

SEEDS = 40
TROUBLE_MS = 8000
MOST = 6


class Operator:
    """Proposes one change after the other, sensible or not."""

    def __init__(self, world: ChangingWorld, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.drawn = 1000
        self.away: list[tuple[NodeId, SimDisk]] = []
        """Disks of machines whose places others took."""

    def go_on(self) -> None:
        world, dice = self.world, self.dice
        if world.now_ms >= TROUBLE_MS:
            return
        leader = world.leader
        if leader is not None:
            self._strike(leader)
        world.after(dice.randint(30, 500), self.go_on)

    def _strike(self, leader: NodeId) -> None:
        world, dice = self.world, self.dice
        listed = world.list_at(leader)
        one = dice.choice(listed)
        what, members = dice.choice(
            [self._add, self._promote, self._promote, self._demote, self._remove, self._old_disk]
        )(leader, listed, one)
        if members is not None and world.change(leader, members) is None:
            world.counts[what] += 1
            if what in {"removed", "demoted"} and one.id == leader:
                world.counts["leader taken out"] += 1

    def _add(self, leader: NodeId, listed: List, one: Member) -> tuple[str, List | None]:
        names = [NodeId(f"n{number}") for number in range(MOST)]
        free = [name for name in names if name not in {other.id for other in listed}]
        if not free or len(listed) >= 5 or self.world.node(leader).change is not None:
            return "", None  # a removal that is not committed may be undone
        name = self.dice.choice(free)
        if name not in self.world.members or self.dice.random() < 0.7:
            self._machine(name)
        return "added", (
            *listed,
            member(name, self.dice.choice([LEARNER, LEARNER, LEARNER, OBSERVER])),
        )

    def _machine(self, name: NodeId) -> None:
        """A new machine takes this name."""
        world = self.world
        if name in world.members:
            self.away.append((name, world.members[name].disk))
        self.drawn += 1
        world.boot(name, self.drawn)

    def _promote(self, leader: NodeId, listed: List, one: Member) -> tuple[str, List | None]:
        others = [other for other in listed if other.role is not VOTER]
        one = self.dice.choice(others) if others else one
        heard = self.world.node(leader).heard.get(one.id)
        if one.role is VOTER or heard is None:
            return "", None
        if one.role is OBSERVER:
            return "learns", with_role(listed, one.id, LEARNER)
        return "promoted", with_role(listed, one.id, VOTER, incarnation=heard)

    def _demote(self, leader: NodeId, listed: List, one: Member) -> tuple[str, List | None]:
        if one.role is not VOTER:
            return "", None
        return "demoted", with_role(listed, one.id, self.dice.choice([LEARNER, OBSERVER]))

    def _remove(self, leader: NodeId, listed: List, one: Member) -> tuple[str, List | None]:
        return "removed", without(listed, one.id)

    def _old_disk(self, leader: NodeId, listed: List, one: Member) -> tuple[str, List | None]:
        """The machine that was there before starts at the address, until the present one is
        back."""
        world = self.world
        if not self.away:
            return "", None
        name, disk = self.away.pop(self.dice.randrange(len(self.away)))
        present = world.members[name].disk
        if present is disk:
            return "", None
        world.put(name, disk)
        world.counts["old disks"] += 1

        def back() -> None:
            if world.members[name].disk is disk and not self._is_voter(name, disk):
                world.put(name, present)

        world.after(self.dice.randint(100, 2500), back)
        return "", None

    def _is_voter(self, name: NodeId, disk: SimDisk) -> bool:
        """Whether it was promoted meanwhile, by any node's list: then it is no old one any more."""
        voter = (name, VOTER, disk.membership.incarnation)
        nodes = [state.node for state in self.world.members.values() if state.node is not None]
        return any((one.id, one.role, one.incarnation) == voter for n in nodes for one in n.members)


def run_world(seed: int) -> ChangingWorld:
    dice = random.Random(f"members {seed}")
    count = dice.choice([1, 2, 3, 3, 4, 5])
    world = ChangingWorld(count, seed, cache_bytes=dice.choice([100, 500, 4000]))
    world.elect()
    world.chaos = chaos_of(dice)
    keep_busy(world, dice)
    cut_links(world, dice)
    world.after(300, Operator(world, dice).go_on)
    world.run(TROUBLE_MS + 3000)
    world.mend()
    before = len(world.committed)
    world.run_until(lambda: len(world.committed) > before + 3)
    return world


BITES = {"added": 35, "promoted": 5, "demoted": 10, "removed": 25, "old disks": 3}
BITES |= {"leader taken out": 6}


def test_groups_that_change_their_members_break_no_promise():
    check_seeds(run_world, SEEDS, BITES)
