"""Seeded worlds: every promise of `raft_harness` after every step, then progress once the world is
well again.

A failure names its seed; ``run_world(seed)`` repeats it.
"""

from __future__ import annotations

import random

from tests.raft.raft_harness import Chaos, World, check_seeds

SEEDS = 100
TROUBLE_MS = 5000


def chaos_of(dice: random.Random) -> Chaos:
    """Each seed has some troubles and not others, so that none hides another."""
    return Chaos(
        loss=dice.choice([0, 0.02, 0.2]),
        double=dice.choice([0, 0.1, 0.4]),
        delay_ms=dice.choice([2, 20, 100]),
        long_delay=dice.choice([0, 0.02, 0.1]),
        sync_ms=dice.choice([0, 5, 50, 400]),
        crash=dice.choice([0, 0.0005, 0.003]),
        reset=dice.choice([0, 0.01, 0.05]),
    )


def keep_busy(world: World, dice: random.Random) -> None:
    """A client that appends, reads and now and then moves leadership, sometimes on the wrong
    node."""
    member = dice.choice(tuple(world.members)) if dice.random() < 0.2 else world.leader
    if member is not None and world.members[member].node is not None:
        world.propose(member, *[b"v%d" % dice.randrange(1000)] * dice.choice([1, 1, 3, 10]))
        if world.members[member].node is not None and dice.random() < 0.3:
            world.read(member)
        if world.members[member].node is not None and dice.random() < 0.03:
            to = dice.choice(tuple(world.members))
            world.call(member, lambda node: node.transfer(to, world.now_ms))
    world.after(dice.randint(1, 100), lambda: keep_busy(world, dice))


def cut_links(world: World, dice: random.Random) -> None:
    if world.now_ms >= TROUBLE_MS:
        return
    kind, names = dice.random(), tuple(world.members)
    if kind < 0.3 or len(names) < 2:
        world.isolate(dice.choice(names))
    elif kind < 0.5:
        world.cut(*dice.sample(names, 2))
    elif kind < 0.6:
        one, other = dice.sample(names, 2)
        world.cuts.add((one, other))  # one way only
    elif kind < 0.85:
        world.heal()
    world.after(dice.randint(200, 2500), lambda: cut_links(world, dice))


def run_world(seed: int) -> World:
    dice = random.Random(f"world {seed}")
    preferred = dice.choice([(), (), ("n0",)])
    world = World(
        dice.choice([3, 3, 3, 5, 2, 4]),
        seed,
        chaos_of(dice),
        cache_bytes=dice.choice([100, 500, 4000]),
        preferred_leaders=preferred,
    )
    keep_busy(world, dice)
    cut_links(world, dice)
    world.run(TROUBLE_MS)
    world.mend()
    before = len(world.committed)
    world.run_until(lambda: len(world.committed) > before + 3)
    world.counts["terms"] = len(world.leaders)
    world.counts["committed"] = len(world.committed)
    return world


BITES = {
    "terms": 100,
    "committed": 5000,
    "messages lost": 2000,
    "crashes": 30,
    "resets": 500,
    "entries lost in a crash": 10,
    "entries cut": 200,
    "loads": 1000,
    "reads": 500,
}


def test_chaos_breaks_no_promise_and_healing_brings_progress():
    check_seeds(run_world, SEEDS, BITES)
